"""`modelkit export`: a package as a folder of ordinary files, which `mlx_lm` and others load as it is."""

import json
from pathlib import Path
from typing import Any

import click

from modelkit.cli.home import complete_name, open_store
from modelkit.cli.progress import bar
from modelkit.cli.screen import emit_json, note, state
from modelkit.cli.ui import count, json_option, size
from modelkit.pack.build import CONFIG, INDEX
from modelkit.pack.mlx_lm_limits import notes
from modelkit.store.package import Package


@click.command("export")
@click.argument("name", shell_complete=complete_name)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--copy", is_flag=True, help="Copy the files, to own and change them.")
@json_option
def command(name: str, folder: Path, copy: bool, as_json: bool) -> None:
    """Lay the package NAME out in DIR, a new or empty folder.

    Files are hard links to the store's own read-only files where the disk allows it, so they take no space;
    elsewhere, and with --copy, they are copies. `mlx_lm.load(DIR)` and other MLX tools take the folder as it
    is; what mlx-lm is known to compute otherwise is said.
    """
    store = open_store()
    package = store.resolve(name)
    total_bytes = sum(layer.blob.size_bytes for layer in package.manifest.layers)
    with bar("export", total_bytes, enabled=not as_json) as advance:
        done = store.export(package.name, folder, link=not copy, progress=advance)
    if as_json:
        made = {"linked": done.linked, "copied": done.copied, "present": done.present}
        emit_json(
            {
                "name": str(package.name),
                "digest": str(package.digest),
                "folder": str(folder.absolute()),
                **made,
                "notes": _notes(package),
            }
        )
        return
    ways = [("linked", done.linked), ("copied", done.copied), ("there already", done.present)]
    files = ", ".join(f"{count(number, 'file')} {way}" for way, number in ways if number)
    for text in _notes(package):
        note(text)
    state(f"exported {package.name} to {folder} ({size(total_bytes)}: {files})")


def _notes(package: Package) -> list[str]:
    index = _json(package, INDEX).get("weight_map")
    return list(notes(_json(package, CONFIG), index if isinstance(index, dict) else ()))


def _json(package: Package, path: str) -> dict[str, Any]:
    """{} where a package that others made has no such file."""
    try:
        value = json.loads(package.files[path].read_bytes())
    except (KeyError, OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
