"""`modelkit doctor`: what modelkit runs on here, and what that means for speed."""

import os
import platform
import sys
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import click

from modelkit import __version__
from modelkit.cli.home import bytes_under, open_store
from modelkit.cli.terminal.screen import echo, emit_json
from modelkit.cli.terminal.tables import WHOLE, sections
from modelkit.cli.terminal.ui import HOW_TO_GET_MLX, count, json_option, size
from modelkit.errors import StoreError
from modelkit.settings import Settings
from runtime.errors import ProcessLimit

if TYPE_CHECKING:
    from runtime.cpu import BlasReport

_READ_ONLY = ", and nothing can be written there (MODELKIT_HOME may name another folder)"
_PACKAGES = (
    "mlx",
    "numpy",
    "safetensors",
    "tokenizers",
    "jinja2",
    "gguf",
    "prompt_toolkit",
    "scipy-openblas32",
)


@click.command("doctor")
@click.option("--hosts", is_flag=True, help="Examine all machines on which mlx.launch started this.")
@json_option
@click.pass_context
def command(ctx: click.Context, hosts: bool, as_json: bool) -> None:
    """Show what modelkit runs on here: versions, device, memory, kernels, BLAS, the store and its disk.

    Paste the output into bug reports; it names no packages. With --hosts, it shows of several machines what
    each has, whether they reach each other, and how fast.
    """
    if hosts:
        from modelkit.cli.hosts import examine as examine_hosts

        examine_hosts(ctx, as_json=as_json)
        return
    facts = examine()
    if as_json:
        emit_json(facts)
    else:
        echo(sections(_shown(facts), limit=WHOLE))


def examine() -> dict[str, Any]:
    """All that is reported, as JSON."""
    from modelkit.disk_faults import free_bytes, nearest
    from modelkit.store import Package

    store = open_store()
    try:
        packages, problem = store.packages(), None
    except StoreError as error:  # here above all, the rest is wanted then
        packages, problem = [], error.message
    existing = nearest(store.root)
    return {
        "modelkit": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        **_mlx(),
        "store": {
            "path": str(store.root),
            "problem": problem,
            "packages": len(packages),
            "broken": sum(not isinstance(package, Package) for package in packages),
            "size_bytes": bytes_under(store.root),
            "free_bytes": free_bytes(existing),
            "writable": existing.is_dir() and os.access(existing, os.W_OK | os.X_OK),
        },
        "packages": {name: _installed(name) for name in _PACKAGES},
    }


def _mlx() -> dict[str, Any]:
    """MLX, its device, kernels and the BLAS, or what keeps it from loading."""
    try:
        from runtime.cpu import native, thread_count, threads_now
        from runtime.device import describe
        from runtime.nn.operations import ops

        ops.use(Settings.from_environment().operations)
        blas, threads = _blas(), threads_now()
        return {
            **describe(),
            "operations": ops.table.name,
            "kernels": asdict(native.status),
            "blas": asdict(blas),
            "threads": {**asdict(threads), "why": str(threads) if thread_count() else "as MLX chooses"},
            "mlx_problem": None,
        }
    except (ImportError, RuntimeError) as error:  # not installed, or no driver for its device
        unknown = dict.fromkeys(("mlx", "device", "operations", "kernels", "blas", "threads"))
        return {**unknown, "mlx_problem": str(error)}


def _blas() -> "BlasReport":
    from runtime.cpu import bind_blas, report

    try:
        return bind_blas()
    except ProcessLimit as fault:
        return replace(report(), reason=str(fault))


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _shown(facts: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    store = facts["store"]
    broken = f", {store['broken']} broken (see `modelkit verify`)" if store["broken"] else ""
    return {
        "modelkit": [
            ("version", facts["modelkit"]),
            ("python", f"{facts['python']} ({facts['executable']})"),
            ("platform", facts["platform"]),
        ],
        "MLX": _shown_mlx(facts),
        "Store": [
            ("folder", store["path"]),
            ("holds", f"{count(store['packages'], 'package')}{broken}, {size(store['size_bytes'])}")
            if store["problem"] is None
            else ("cannot be read", store["problem"]),
            ("disk", f"{size(store['free_bytes'])} free{'' if store['writable'] else _READ_ONLY}"),
        ],
        "Packages": [(name, found or "not installed") for name, found in facts["packages"].items()],
    }


def _shown_mlx(facts: dict[str, Any]) -> list[tuple[str, str]]:
    if facts["mlx_problem"]:
        return [("MLX", f"cannot be loaded: {facts['mlx_problem']}"), ("", HOW_TO_GET_MLX)]
    device, blas = facts["device"], facts["blas"]
    memory = f"{size(device['total_bytes'])}, {size(device['available_bytes'])} available"
    return [
        ("version", facts["mlx"]),
        ("device", f"{device['kind']}: {device['name']}, {count(device['cores'], 'core')}"),
        ("memory", memory if device["total_bytes"] else "unknown"),
        ("computes in", device["fast_dtype"] or "the weights' own float type"),
        ("weights", _shown_weights(device)),
        ("operations", _OPERATIONS[facts["operations"]]),
        *_shown_kernels(facts["kernels"]),
        ("BLAS", _shown_blas(blas)),
        ("threads", facts["threads"]["why"]),
    ]


def _shown_weights(device: dict[str, Any]) -> str:
    """How a model holds them in memory."""
    if device["as_stored"]:
        return "as they are stored, packed or in 16 bits"
    floats = f"floats as {device['fast_dtype']}" if device["fast_dtype"] else "floats as they are stored"
    packed = "as they are" if device["fast_quantized"] else "expanded when loaded, where they fit"
    return f"{floats}, quantized ones {packed}"


_OPERATIONS = {
    "plain": "plain: each as it is defined, slowly (MODELKIT_OPS)",
    "cpu": "cpu: those made for a processor",
    "blas": "blas: MLX's products by a bound BLAS, without kernels of our own",
    "gpu": "gpu: MLX's fused kernels",
}


def _shown_kernels(kernels: dict[str, Any]) -> list[tuple[str, str]]:
    """Those of our own: by which instructions they compute, or why there are none and what helps."""
    if kernels["column"] is not None:
        return [("kernels", f"{kernels['column']}, of {', '.join(kernels['columns'])}")]
    helps = [("", kernels["remedy"])] if kernels["remedy"] else []
    return [("kernels", f"none: {kernels['reason']}"), *helps]


def _shown_blas(blas: dict[str, Any]) -> str:
    if blas["bound"]:
        return f"{blas['name']} bound"
    return f"{blas['name']} ({blas['reason']})"
