"""What is computed on here, and what that wants: memory, the float type, whether quantized products pay.

Facts, not decisions: the loader decides. Measured reasons, on Linux CPU: bf16 and f16 products are emulated
element by element (f32 through a bound BLAS is 30 times faster); quantized products run on one thread without
vector instructions, so weights dequantized to f32 at load decode about 4 times faster than quantized ones in
f32, at 7 to 8 times the memory. Kernels of our own (`runtime.cpu.native`) read weights as they are stored,
packed or in 16 bits, beside f32 activations. Metal and CUDA have real kernels for all of these and want the
source's own types.
"""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx

from runtime import host, streams
from runtime.cpu import native
from runtime.nn.operations import ops
from runtime.records import dataclass

Kind = Literal["metal", "cuda", "cpu"]


@dataclass(frozen=True, slots=True)
class Device:
    """MLX's default device. Bytes are of the memory it computes in, a GPU's or the machine's; 0: unknown."""

    kind: Kind
    name: str
    total_bytes: int
    available_bytes: int
    """What could be allocated now, MLX's own reusable buffers included."""
    fast_dtype: str | None
    """The float type that weights and activations should have; None: the source's."""
    fast_quantized: bool
    """Products with quantized weights are at least as fast as with float ones."""
    cores: int
    """Physical processor cores this process may use."""
    as_stored: bool = False
    """Products read matrices in the type they are stored in, beside activations of `fast_dtype`."""


def device() -> Device:
    """The device as it is now: `available_bytes` is read afresh at every call."""
    kind = _kind()
    info = mx.device_info()
    as_stored = ops.by_kernels("linear")
    total, available = _memory(kind, info)
    return Device(
        kind=kind,
        name=str(info.get("device_name", "unknown")),
        total_bytes=total,
        available_bytes=available,
        fast_dtype="float32" if kind == "cpu" else None,
        fast_quantized=kind != "cpu" or as_stored,
        cores=host.cores(),
        as_stored=as_stored,
    )


def available_bytes() -> int:
    """That of the device as it is now, and nothing else: a look at it takes a millisecond."""
    return _memory(_kind(), mx.device_info())[1]


KEPT_IN = "MLX_PTX_CACHE_DIR"
"""The environment variable that says where MLX keeps the CUDA kernels that it compiles at their first use."""


def keep_compiled(folder: Path) -> None:
    """Have MLX keep them below this folder, unless somebody has said where. Left to itself it takes a
    temporary folder, which the next start of the machine empties and which may be another user's. Nothing
    elsewhere than on CUDA. To be said before anything is computed there.
    """
    if mx.cuda.is_available():
        from importlib.metadata import version  # only here: slow to import

        # By release and architecture: neither is in the names of the files, and homes may be shared.
        made_for = f"mlx-{version('mlx')}-{mx.device_info().get('architecture', 'unknown')}"
        os.environ.setdefault(KEPT_IN, str(folder / made_for))


SPARE_BYTES = 8 << 20


def spare_little() -> None:
    """On a processor MLX keeps 32 MB of buffers for reuse, which steps are not faster for than for 8."""
    if native.on_processor():
        before = mx.set_cache_limit(SPARE_BYTES)
        if before < SPARE_BYTES:  # somebody wants less
            mx.set_cache_limit(before)


def give_back() -> None:
    """Return to the system what nothing uses any more: the buffers that MLX keeps for reuse, and what the C
    library keeps of them. Costs milliseconds, and the next allocations are slower: for after loading and
    closing, not for between steps.

    On Metal, what is still held then stays in memory from there on, whatever else wants it. That is the
    weights: macOS compresses what was not used for a while, and the next answer waits for it. It is not all
    that may be held: machines whose whole memory is wired have panicked.
    """
    if not streams.is_stuck():
        _clear_cache()
    host.trim()
    if _kind() == "metal":
        most = int(mx.device_info().get("max_recommended_working_set_size", 0))  # more is an error
        mx.set_wired_limit(min(mx.get_active_memory(), most))


def _clear_cache() -> None:
    if native.on_processor():
        streams.on_own_thread(mx.clear_cache)
    else:
        mx.clear_cache()


def describe() -> dict[str, Any]:
    """MLX and its device as plain data, for a report to the user."""
    from importlib.metadata import version  # only here: slow to import

    return {"mlx": version("mlx"), "device": asdict(device())}


def _kind() -> Kind:
    if native.on_processor():
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def _memory(kind: Kind, info: dict[str, Any]) -> tuple[int, int]:
    """Total and available bytes.

    Metal shares the machine's memory and makes one process slow beyond its recommended working set, so both
    bound it. CUDA reports its own card; what MLX holds for reuse is counted as free.
    """
    total, available = host.memory()
    reusable = mx.get_cache_memory()
    if kind == "metal":
        total = int(info.get("max_recommended_working_set_size", total))
        return total, min(total - mx.get_active_memory(), available + reusable)
    if kind == "cuda":
        return int(info.get("total_memory", 0)), int(info.get("free_memory", 0)) + reusable
    return total, min(total, available + reusable)
