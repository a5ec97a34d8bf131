"""`modelkit list`: one line per package, newest first. Reads small files, and of weights the headers of
drafts.
"""

from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.home import complete_name, open_store
from modelkit.cli.screen import echo, emit_json, note
from modelkit.cli.tables import table
from modelkit.cli.ui import ago, json_option, size, timestamp
from modelkit.errors import ModelkitError

if TYPE_CHECKING:
    from modelkit.store import BrokenPackage, Package


@click.command("list")
@click.argument("prefix", default="", shell_complete=complete_name)
@json_option
def command(prefix: str, as_json: bool) -> None:
    """List the packages in the store, newest first; with PREFIX, those whose names begin so.

    SIZE counts every file of a package once; packages that share files share their space too.
    """
    found = [p for p in open_store().packages() if p.name.short.startswith(prefix.lower())]
    found.sort(key=lambda package: (-package.modified_s, package.name))
    rows = [describe(package) for package in found]
    if as_json:
        emit_json(rows)
        return
    header = ("NAME", "DIGEST", "SIZE", "FORMAT", "DRAFT", "MODIFIED")
    lines = [(p.name.short, *_cells(row), ago(p.modified_s)) for p, row in zip(found, rows, strict=True)]
    if any(row["from"] for row in rows):
        header = (*header, "FROM")
        lines = [(*line, row["from"] or "") for line, row in zip(lines, rows, strict=True)]
    echo(table(lines, header=header, right=[2]))
    if not rows and not prefix:
        note("there is no package yet; `modelkit create NAME -f Modelfile` makes one")
    for row in rows:
        if row["problem"]:
            note(f"{row['name']} is broken: {row['problem']}")


def describe(package: "Package | BrokenPackage") -> dict[str, Any]:
    """A package as JSON. A broken one has a `problem`, and null for all that is not known of it."""
    from modelkit.store import Package

    whole = package if isinstance(package, Package) else None
    model: dict[str, Any] = whole.config["config"] if whole else {}
    return {
        "name": str(package.name),
        "digest": str(package.digest) if package.digest else None,
        "size_bytes": whole.size_bytes if whole else None,
        "modified": timestamp(package.modified_s),
        "architecture": _text(model.get("architecture")),
        "parameter_size": _text(model.get("paramSize")),
        "format": _text(model.get("quantization") or model.get("precision")),
        "draft": _draft(whole) if whole else None,
        "from": _fetched_from(whole) if whole else None,
        "problem": None if isinstance(package, Package) else package.problem,
    }


def _fetched_from(package: "Package") -> str | None:
    """The place in the network; None where nothing is known of one."""
    from modelkit.cli.texts import recipe

    try:
        made = recipe(package).provenance
    except ModelkitError:
        return None
    return made.upstream.place if made and made.upstream else None


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    digest = row["digest"].removeprefix("sha256:")[:12] if row["digest"] else "-"
    if row["problem"]:
        return digest, "-", "broken", "-"
    draft = row["draft"]
    return digest, size(row["size_bytes"]), row["format"] or "-", (draft["format"] or "yes") if draft else "-"


def _draft(package: "Package") -> dict[str, Any] | None:
    blobs = {layer.blob for layer in package.manifest.layers if layer.path.startswith("draft/")}
    if not blobs:
        return None
    from runtime.models import architecture_name

    config = _config(package, "draft/config.json")
    return {
        "architecture": architecture_name(config) if config else None,
        "format": _draft_format(package),
        "size_bytes": sum(blob.size_bytes for blob in blobs),
    }


def _draft_format(package: "Package") -> str | None:
    """The word that `create` and `show` have for it, made from what is stored: a config.json names what was
    asked for. None for a draft that cannot be read.
    """
    from modelkit.pack.plan import plan
    from modelkit.source.inventory import read_inventory
    from modelkit.source.prequantized import recognise
    from modelkit.source.tree import subtree

    try:
        inventory = read_inventory(subtree(package.files, "draft"), f"{package.name}/draft")
        return plan(inventory, recognise(inventory), None, role="draft").label
    except ModelkitError:
        return None


def _config(package: "Package", path: str) -> dict[str, Any]:
    """A config.json of the package; an empty one where it is missing or damaged: listing goes on."""
    from modelkit.source.strict_json import read_json

    try:
        return read_json(package.files[path], nonfinite=True) if path in package.files else {}
    except ModelkitError:
        return {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
