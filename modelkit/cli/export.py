"""`modelkit export`: a package as a folder of ordinary files, or as one GGUF file."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelkit.arguments import absolute
from modelkit.cli.home import complete_name, open_store
from modelkit.cli.terminal.progress import bar
from modelkit.cli.terminal.screen import echo, emit_json, note, state
from modelkit.cli.terminal.tables import table
from modelkit.cli.terminal.typed import TEXT
from modelkit.cli.terminal.ui import count, json_option, size
from modelkit.pack.adapters.forms import FORMS, AdapterForm
from modelkit.pack.mlx_lm.limits import Limit, limits, sentences
from modelkit.pack.part import CONFIG
from modelkit.source.shards import INDEX
from modelkit.store.export import Exported, export_package, write_folder
from modelkit.store.package import Package
from modelkit.store.store import Store

if TYPE_CHECKING:
    from modelkit.pack.gguf.export import Planned
    from modelkit.pack.gguf.plan import Kind
    from modelkit.pack.mlx_folder.plan import FolderPlan

_HOW = {"copied": "the same bytes", "converted": "the same numbers", "rounded": "rounded"}


@click.command("export")
@click.argument("name", shell_complete=complete_name)
@click.argument("place", metavar="DIR|FILE.gguf", type=click.Path())
@click.option(
    "--adapter",
    type=TEXT,
    metavar="ADAPTER",
    help="Write only this adapter of the package (DIR only).",
)
@click.option(
    "--form",
    type=click.Choice(FORMS),
    help="Whose file layout to write. For an adapter: peft (the default) or mlx-lm. For a model: mlx-lm, "
    "with the names, shapes and fields that it expects.",
)
@click.option(
    "--copy",
    is_flag=True,
    help="Copy the files instead of linking them, so that you can change them (DIR only).",
)
@click.option("--draft", is_flag=True, help="Write the package's draft instead of the model (GGUF only).")
@json_option
def command(
    name: str,
    place: str,
    adapter: str | None,
    form: AdapterForm | None,
    copy: bool,
    draft: bool,
    as_json: bool,
) -> None:
    """Write the package NAME to DIR, a new or empty folder, or to the file FILE.gguf.

    The files in a folder are hard links to the store's read-only files where the disk allows it, and take
    no space; elsewhere, and with --copy, they are copies. `mlx_lm.load(DIR)` and other MLX tools load the
    folder as it is; a note says where mlx-lm is known to compute something else. With --form mlx-lm, the
    folder has the names, shapes and fields that mlx-lm's classes expect, wherever these then compute the
    same model. Weights in GGUF's blocks (K-quants, i-quants), which only modelkit reads, are rewritten in
    MLX's formats, after a table shows their sizes and which of them stay exact.

    A name that ends in .gguf makes one file for llama.cpp and programs based on it, with tokenizer and chat
    template. Weights stay exact where GGUF has a type for them; what must be rounded is shown first.

    With --adapter, the folder holds nothing but that adapter, in PEFT's form or, with --form mlx-lm, in the
    form that `mlx_lm.load(MODEL, adapter_path=DIR)` takes.

    \b
    modelkit export story story-folder
    modelkit export story story-mlx --form mlx-lm
    modelkit export story story.gguf
    modelkit export story story-draft.gguf --draft
    modelkit export story law-folder --adapter law
    modelkit export story law-mlx --adapter law --form mlx-lm
    """
    if not place.strip():
        raise click.UsageError("DIR is empty: name a new folder, or `.` for this one")
    if place == "-":
        raise click.UsageError("a package cannot be exported to standard output: name a folder, or FILE.gguf")
    target = Path(place)
    one_file = target.suffix.lower() == ".gguf" and not place.endswith("/")
    adapted = adapter is not None
    for unfit, why in (
        (draft and not one_file, "--draft is for GGUF files: a folder contains the draft, in draft/"),
        (copy and one_file, "--copy is for folders: a GGUF file is always a copy"),
        (adapted and one_file, "--adapter writes a folder: name one in place of the .gguf file"),
        (adapted and copy, "--adapter always writes new files; leave --copy out"),
        (form and one_file, "--form is for folders: a GGUF file always has llama.cpp's form"),
        (form == "peft" and not adapted, "--form peft is for adapters: name one with --adapter"),
    ):
        if unfit:
            raise click.UsageError(why)
    store = open_store()
    if adapter is not None:
        _export_adapter(store, name, adapter, form or "peft", target, as_json=as_json)
    elif one_file:
        _export_gguf(store, name, target, draft=draft, as_json=as_json)
    else:
        _export_folder(store, name, target, mlx_lm=form is not None, copy=copy, as_json=as_json)


def _export_adapter(
    store: Store, name: str, adapter: str, form: AdapterForm, folder: Path, *, as_json: bool
) -> None:
    from modelkit.pack.adapters.export import adapter_files

    with store.hold(name) as package:
        files = adapter_files(package, adapter, form)
        write_folder(files, folder)
    size_bytes = sum(map(len, files.values()))
    if as_json:
        said = {"name": str(package.name), "adapter": adapter, "form": form}
        emit_json({**said, "files": list(files), "size_bytes": size_bytes})
    else:
        state(f"exported adapter {adapter} of {package.name} to {folder} ({size(size_bytes)})")


def _export_folder(store: Store, name: str, folder: Path, *, mlx_lm: bool, copy: bool, as_json: bool) -> None:
    from modelkit.pack.mlx_folder.plan import plan_folder

    with store.hold(name) as package:
        planned = plan_folder(package, "mlx-lm" if mlx_lm else None)
        notes = package_notes(package, planned.limits)
        if not mlx_lm and is_written_nearer(package):
            notes.append(
                "with --form mlx-lm it is written so that mlx-lm computes it as it is, or nearer to it"
            )
        if not as_json:
            for text in (*(f"for mlx-lm: {text}" for text in planned.rewritten), *notes):
                note(text)
            if planned.kinds:
                echo(_turned_table(planned) + "\n")
        total_bytes = planned.size_of(package)
        with bar("export", total_bytes, enabled=not as_json) as advance:
            done = export_package(package, folder, link=not copy, progress=advance, made=planned.made)
    if as_json:
        facts = _identity(package) | {"folder": str(absolute(folder)), "size_bytes": total_bytes}
        files = {"linked": done.linked, "copied": done.copied, "made": done.made, "present": done.present}
        blocks = {"blocks": [kind.to_json() for kind in planned.kinds]}
        emit_json({**facts, **files, **blocks, "rewritten": list(planned.rewritten), "notes": notes})
    else:
        state(f"exported {package.name} to {folder} ({size(total_bytes)}: {_files(done)})")


def _files(done: Exported) -> str:
    """How many came which way."""
    ways = {
        "linked": done.linked,
        "copied": done.copied,
        "written": done.made,
        "there already": done.present,
    }
    return ", ".join(f"{count(number, 'file')} {way}" for way, number in ways.items() if number)


def _identity(package: Package) -> dict[str, Any]:
    return {"name": str(package.name), "digest": str(package.digest)}


def _export_gguf(store: Store, name: str, target: Path, *, draft: bool, as_json: bool) -> None:
    from modelkit.pack.gguf.export import plan_gguf
    from modelkit.pack.gguf.writing import refuse_taken, write_gguf

    with store.hold(name) as package:
        refuse_taken(target)
        planned = plan_gguf(package, draft=draft)
        if not as_json:
            for text in planned.notes:
                note(text)
            echo(_plan_table(planned) + "\n")
        with bar("export", planned.nbytes, enabled=not as_json) as advance:
            size_bytes = write_gguf(planned, target, advance)
    if as_json:
        emit_json(
            {
                **_identity(package),
                "file": str(absolute(target)),
                "size_bytes": size_bytes,
                "architecture": planned.metadata["general.architecture"],
                "tensors": planned.to_json(),
                "notes": list(planned.notes),
            }
        )
        return
    part = f"the draft of {package.name}" if draft else str(package.name)
    state(f"exported {part} to {target} ({size(size_bytes)}, {count(len(planned.entries), 'tensor')})")


def _numbers(kind: "Kind") -> str:
    return f"{_HOW[kind.how]}: {kind.why}" if kind.why else _HOW[kind.how]


def _plan_table(planned: "Planned") -> str:
    rows = [
        (kind.type.upper(), str(kind.tensors), size(kind.nbytes), _numbers(kind)) for kind in planned.kinds
    ]
    return table(rows, header=("TYPE", "TENSORS", "SIZE", "NUMBERS"), right=(1, 2))


def _turned_table(planned: "FolderPlan") -> str:
    rows = [
        (
            *(kind.type.upper(), str(kind.tensors), size(kind.source_bytes)),
            *(kind.becomes, size(kind.nbytes), "the same" if kind.exact else "the nearest of 8 bits"),
        )
        for kind in planned.kinds
    ]
    header = ("BLOCKS", "TENSORS", "SIZE", "IN MLX", "SIZE THERE", "NUMBERS")
    return table(rows, header=header, right=(1, 2, 4))


def _adapter_notes(package: Package) -> list[str]:
    """Adapters lie in modelkit's own form, which names modules as its networks do."""
    names = sorted({path.split("/")[1] for path in package.files if path.startswith("adapters/")})
    if not names:
        return []
    listed = ", ".join(names)
    return [
        f"other programs leave out the adapters ({listed}); --adapter writes one in PEFT's form or mlx-lm's, "
        "and `create --fuse-adapters` makes them weights"
    ]


def package_notes(package: Package, rows: Collection[Limit] | None = None) -> list[str]:
    """rows: what mlx-lm computes otherwise, where that was asked of what is written."""
    said = held(package) if rows is None else rows
    return [*sentences(_json(package, CONFIG), said), *_adapter_notes(package)]


def is_written_nearer(package: Package) -> bool:
    """Does mlx-lm's form take back a sentence that is said of the package?"""
    from modelkit.pack.mlx_folder.plan import plan_folder

    if not held(package):
        return False
    left = plan_folder(package, "mlx-lm").limits
    return left is not None and len(left) < len(held(package))


def held(package: Package) -> tuple[Limit, ...]:
    """What mlx-lm computes otherwise of the package as it is."""
    index = _json(package, INDEX).get("weight_map")
    return limits(_json(package, CONFIG), index if isinstance(index, dict) else ())


def _json(package: Package, path: str) -> dict[str, Any]:
    """{} where a package that others made has no such file."""
    try:
        value = json.loads(package.files[path].read_bytes())
    except (KeyError, OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
