"""What a package holds, as JSON: `show` prints these facts in both its forms.

Read from small files and the headers of the weights. A package that another tool made may be one that cannot
be run here; it is still described as far as it goes, and `problem` says why no further.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from modelkit.cli import texts
from modelkit.cli.list import describe as describe_row
from modelkit.errors import ModelkitError
from modelkit.modelfile import Reference
from modelkit.pack.metadata import Metadata
from modelkit.pack.plan import plan
from modelkit.pack.planned import Plan, Role
from modelkit.pack.sources import Source, open_origin
from modelkit.store.package import Package
from modelkit.store.store import Store
from runtime.cache.layout import LayerSpec, bytes_per_sequence, bytes_per_token
from runtime.errors import UnsupportedModel
from runtime.models import architecture_name, describe

_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def facts_of(store: Store, package: Package, *, tensors: bool = False) -> dict[str, Any]:
    """Everything `show` can say. `tensors` adds a row for each tensor of target and draft."""
    made = texts.recipe(package)
    facts = {**_identity(package), **_recipe(made), **_texts(package)}
    try:
        origin = open_origin(Reference(package.name.short, None), store)
        tokens = made.parameters.get("num_ctx")
        most = tokens if isinstance(tokens, int) else None
        target = _model(origin.source, "target", most, tensors)
        draft = _model(origin.draft, "draft", most, tensors) if origin.draft else None
    except ModelkitError as error:
        row = describe_row(package)
        known = {key: row[key] for key in ("architecture", "format", "draft")}
        return {**facts, **known, "problem": error.message}
    return {**facts, **target, "draft": draft}


def _identity(package: Package) -> dict[str, Any]:
    row = describe_row(package)
    layers = [
        {
            "path": layer.path,
            "digest": str(layer.blob.digest),
            "size_bytes": layer.blob.size_bytes,
            "media_type": layer.media_type,
        }
        for layer in package.manifest.layers
    ]
    return {**{key: row[key] for key in ("name", "digest", "size_bytes", "modified")}, "layers": layers}


def _recipe(made: Metadata) -> dict[str, Any]:
    sources = {"target": made.provenance, "draft": made.draft_provenance}
    return {
        "parameters": made.parameters.to_json(),
        "system": made.system,
        "messages": [{"role": role, "content": content} for role, content in made.messages],
        "renderer": made.renderer,
        "parser": made.parser,
        "requires": made.requires,
        "provenance": {role: one.to_json() for role, one in sources.items() if one},
    }


def _texts(package: Package) -> dict[str, Any]:
    template = texts.template(package) or None
    return {
        "template": template,
        "capabilities": ["completion", *(_capabilities(package, template) if template else [])],
        "licenses": texts.licenses(package),
    }


def _capabilities(package: Package, template: str) -> list[str]:
    """What the chat template can do; nothing where it fails."""
    from modelkit.chat.capabilities import check_template

    try:
        specials = texts.specials(package)
        able = check_template(template, bos_token=specials.bos, eos_token=specials.eos)
    except ModelkitError:
        return []
    return ["chat", *(name for name in ("tools", "thinking") if getattr(able, name))]


def _model(source: Source, role: Role, most_tokens: int | None, tensors: bool) -> dict[str, Any]:
    """Target or draft."""
    decided = plan(source.inventory, source.kind, None, role=role)
    facts: dict[str, Any] = {
        "architecture": architecture_name(decided.config),
        "parameter_count": decided.elements,
        "format": decided.label,
        "bits_per_weight": round(decided.bits_per_weight, 4),
        "weight_bytes": decided.nbytes,
        "problem": None,
        **_memory(decided, most_tokens),
    }
    return {**facts, "tensors": _tensors(decided)} if tensors else facts


def _memory(decided: Plan, most_tokens: int | None) -> dict[str, Any]:
    """What the architecture says of itself; nulls and a `problem` where none here runs the config."""
    try:
        described = describe(decided.config)
    except UnsupportedModel as error:
        return {"context_length": None, "embedding_length": None, "memory": None, "problem": str(error)}
    tokens = min(most_tokens or described.context_length, described.context_length)
    dtype = _computed_in(decided)
    kinds = _kinds(described.layout, tokens, _ELEMENT_BYTES[dtype])
    return {
        "context_length": described.context_length,
        "embedding_length": described.hidden_size,
        "memory": {
            "dtype": dtype,
            "tokens": tokens,
            "bytes_per_token": sum(kind["layers"] * kind["bytes_per_token"] for kind in kinds),
            "bytes_per_sequence": sum(kind["layers"] * kind["bytes_per_sequence"] for kind in kinds),
            "kinds": kinds,
        },
    }


def _kinds(layout: Sequence[LayerSpec], tokens: int, element_bytes: int) -> list[dict[str, Any]]:
    """One row per kind of layer, with what each such layer takes."""
    return [
        {
            "kind": spec.kind,
            "layers": layers,
            "bytes_per_token": bytes_per_token(spec, element_bytes),
            "bytes_per_sequence": bytes_per_sequence(spec, tokens, element_bytes),
        }
        for spec, layers in Counter(layout).items()
    ]


def _computed_in(decided: Plan) -> str:
    """The float type of activations and layer memory on this machine."""
    from runtime.device import device

    own = Counter(_FLOATS[tensor.dtype] for tensor in decided.tensors if tensor.dtype in _FLOATS)
    return device().fast_dtype or next((dtype for dtype, _ in own.most_common(1)), "float32")


def _tensors(decided: Plan) -> list[dict[str, Any]]:
    return [
        {
            "name": t.name,
            "dtype": t.dtype.lower(),
            "shape": list(t.shape),
            "format": t.label,
            "size_bytes": t.nbytes,
        }
        for t in decided.tensors
    ]
