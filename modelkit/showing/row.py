"""A package in one line: what `list` shows of each. Of weights it reads only the headers of drafts."""

from typing import Any

from modelkit.errors import ModelkitError
from modelkit.showing.texts import recipe
from modelkit.store import BrokenPackage, Package
from modelkit.units import timestamp


def describe(package: Package | BrokenPackage) -> dict[str, Any]:
    """A package as JSON. A broken one has a `problem`, and null for all that is not known of it."""
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


def _fetched_from(package: Package) -> str | None:
    """The place in the network; None where nothing is known of one."""
    try:
        made = recipe(package).provenance
    except ModelkitError:
        return None
    return made.upstream.place if made and made.upstream else None


def _draft(package: Package) -> dict[str, Any] | None:
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


def _draft_format(package: Package) -> str | None:
    """The word that `create` and `show` have for it, made from what is stored: a config.json names what was
    asked for. None for a draft that cannot be read.
    """
    from modelkit.pack.planning.plan import plan
    from modelkit.source.inventory import read_inventory
    from modelkit.source.prequantized import recognise
    from modelkit.source.tree import subtree

    try:
        inventory = read_inventory(subtree(package.files, "draft"), f"{package.name}/draft")
        return plan(inventory, recognise(inventory), None, role="draft").label
    except ModelkitError:
        return None


def _config(package: Package, path: str) -> dict[str, Any]:
    """A config.json of the package; an empty one where it is missing or damaged: listing goes on."""
    from modelkit.source.strict_json import read_json

    try:
        return read_json(package.files[path], nonfinite=True) if path in package.files else {}
    except ModelkitError:
        return {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
