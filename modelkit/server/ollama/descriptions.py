"""Packages and loaded models as `/api/tags`, `/api/show` and `/api/ps` have them. Reads small files."""

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from modelkit.errors import ModelkitError, ModelNotFound, StoreError
from modelkit.server.adapter_choice import chosen_among
from modelkit.server.models.pool_entry import Shown
from modelkit.server.ollama.wire import FOREVER_S, filled, moment
from modelkit.showing import texts
from modelkit.showing.facts import facts_of
from modelkit.showing.row import describe
from modelkit.source.strict_json import read_json
from modelkit.store import Package, Store

_KNOWN = ("completion", "tools", "thinking", "insert", "embedding")
"""Capabilities that clients have words for."""
_MOST_TRIED = 512
_TRIED: dict[str, tuple[str, ...]] = {}
"""Those of packages, by digest."""


def tags(home: Path) -> dict[str, Any]:
    """Every package that can be used, newest first."""
    whole = [one for one in Store(home).packages() if isinstance(one, Package)]
    whole.sort(key=lambda package: (-package.modified_s, package.name))
    return {"models": [_tag(home, one) for one in whole]}


def running(home: Path, shown: Iterable[Shown]) -> dict[str, Any]:
    """What is in memory. One in use leaves at the earliest once its time after that is over."""
    ready = [one for one in shown if one.state == "ready"]
    details: dict[str, dict[str, Any]] = {}
    with suppress(StoreError):  # what is in memory goes on without the store
        details = _details_of(Store(home), {one.digest for one in ready})
    return {"models": [_running(one, details) for one in ready]}


def show(home: Path, name: str, adapters: Sequence[str], *, verbose: bool) -> dict[str, Any]:
    """adapters: those named behind the model's name. Raises ModelNotFound, StoreError, Refused."""
    store = Store(home)
    with store.hold(name) as package:
        return _described(store, package, adapters, verbose=verbose)


def _described(store: Store, package: Package, adapters: Sequence[str], *, verbose: bool) -> dict[str, Any]:
    facts = facts_of(store, package, tensors=verbose)
    chosen_among(adapters, [one["name"] for one in facts["adapters"]])
    parts = {
        "license": "\n".join(facts["licenses"].values()),
        "modelfile": texts.modelfile(package, store),
        "parameters": texts.parameters(package).rstrip("\n"),  # Continue fails at an empty line
        "template": facts["template"] or "",
        "system": facts["system"],
        "renderer": facts["renderer"],
        "parser": facts["parser"],
        "messages": facts["messages"],
        "adapters": [one["name"] for one in facts["adapters"]],  # ours: the page lets a person choose
        "requires": facts["requires"],
    }
    tensors = [
        {"name": one["name"], "type": one["dtype"], "shape": one["shape"]} for one in facts.get("tensors", [])
    ]
    return {
        **filled(parts),
        "details": {
            **_details(package),
            **filled({name: facts.get(name) for name in ("context_length", "embedding_length")}),
        },
        "model_info": _info(facts, _family(package) or "unknown"),
        **filled({"tensors": tensors}),
        "capabilities": [name for name in _KNOWN if name in facts["capabilities"]],
        "modified_at": moment(package.modified_s),
    }


def _tag(home: Path, package: Package) -> dict[str, Any]:
    return {
        "name": package.name.short,
        "model": package.name.short,
        "modified_at": moment(package.modified_s),
        "size": package.size_bytes,
        "digest": _hex(str(package.digest)),
        "details": _details(package),
        "capabilities": list(_capabilities(home, package)),
    }


def _running(one: Shown, details: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    left_s = one.keep_alive_s if one.expires_in_s is None else one.expires_in_s
    expires_s = time.time() + (FOREVER_S if math.isinf(left_s) else left_s)
    return {
        "name": one.name,
        "model": one.name,
        "size": one.taken_bytes,
        "digest": _hex(one.digest),
        "details": details.get(one.digest, _NO_DETAILS),
        "expires_at": moment(expires_s),
        "size_vram": one.taken_bytes,
        "context_length": one.context_tokens,
    }


def _details_of(store: Store, wanted: Collection[str]) -> dict[str, dict[str, Any]]:
    """By digest. Others are not looked at: programs ask again and again, and a store may have hundreds."""
    names = {str(digest): name for name, digest in store.digests().items() if str(digest) in wanted}
    found: dict[str, dict[str, Any]] = {}
    for digest, name in names.items():
        with suppress(ModelNotFound, StoreError):  # gone since, or damaged
            found[digest] = _details(store.resolve(name))
    return found


_NO_DETAILS: dict[str, Any] = {
    "parent_model": "",
    "format": "safetensors",
    "family": "",
    "families": [],
    "parameter_size": "",
    "quantization_level": "",
}


def _details(package: Package) -> dict[str, Any]:
    row = describe(package)
    family = _family(package) or ""
    return {
        **_NO_DETAILS,
        "family": family,
        "families": [family] if family else [],
        "parameter_size": (row["parameter_size"] or "").upper(),  # 8B there, and 8b in ModelPack's config
        "quantization_level": row["format"] or "",
    }


def _family(package: Package) -> str | None:
    """As the model's own config says it: `qwen3`."""
    try:
        found = read_json(package.files["config.json"], nonfinite=True).get("model_type")
    except (ModelkitError, KeyError):
        return None
    return found if isinstance(found, str) else None


def _info(facts: Mapping[str, Any], family: str) -> dict[str, Any]:
    """In GGUF's names: clients take the length of the context from the key that ends in it."""
    found = {
        "general.architecture": family,
        "general.parameter_count": facts.get("parameter_count"),
        f"{family}.context_length": facts.get("context_length"),
        f"{family}.embedding_length": facts.get("embedding_length"),
    }
    return {key: value for key, value in found.items() if value is not None}


def _capabilities(home: Path, package: Package) -> tuple[str, ...]:
    """Trying a template out takes a while, and a digest always has the same; but what went wrong is tried
    again, for a file may be there the next time.
    """
    digest = str(package.digest)
    known = _TRIED.get(digest)
    if known is not None:
        return known
    try:
        found = facts_of(Store(home), package)["capabilities"]
    except ModelkitError:
        return ("completion",)
    if len(_TRIED) >= _MOST_TRIED:
        _TRIED.clear()
    known = _TRIED[digest] = tuple(one for one in _KNOWN if one in found)
    return known


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")
