"""What a package holds, as JSON: `show` prints these facts in both its forms.

Read from small files and the headers of the weights. A package that another tool made may be one that cannot
be run here; it is still described as far as it goes, and `problem` says why no further.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from modelkit.errors import ModelkitError
from modelkit.learned import lessons_of
from modelkit.pack.adapters.stored import read_stored
from modelkit.pack.metadata import Metadata
from modelkit.pack.planning.plan import plan
from modelkit.pack.planning.plan_types import Plan, Role
from modelkit.pack.pooling import FILES as POOLING_FILES
from modelkit.pack.pooling import read_pooling
from modelkit.pack.sources import Source, open_package
from modelkit.ranks.outline import in_whole
from modelkit.showing import texts
from modelkit.showing.row import describe as describe_row
from modelkit.store.outline import outlined
from modelkit.store.package import Package
from modelkit.store.store import Store
from modelkit.tokenizer.infill import marks_in
from runtime.cache.layout import (
    Encoder,
    LayerSpec,
    Pooled,
    Recurrent,
    bytes_per_sequence,
    bytes_per_token,
    keeps_tokens,
    misfits,
)
from runtime.errors import UnsupportedModel, WeightMismatch
from runtime.loading.forecast import foresee
from runtime.loading.unused import unused_parts
from runtime.models import Described, architecture_name, describe

if TYPE_CHECKING:
    from modelkit.chat.capabilities import Capabilities
    from modelkit.chat.styles.choice import Choice
    from modelkit.chat.styles.thinking import Thinking

_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def facts_of(store: Store, package: Package, *, tensors: bool = False) -> dict[str, Any]:
    """Everything `show` can say. `tensors` adds a row for each tensor of target and draft."""
    made = texts.recipe(package)
    facts = {
        **_identity(package),
        **_recipe(made),
        **_texts(package),
        "speculation": _speculation(store, package),
        "adapters": _adapters(package, made),
    }
    facts["outline_of"] = None
    try:
        said = outlined(package)
        if said is not None:
            facts["outline_of"] = {"digest": str(said.package), "address": said.address}
        with in_whole(package, store) as shown:
            origin = open_package(shown, with_draft=False)
            wanted = made.parameters.resolved()
            kv_format = None if wanted.kv_format == "auto" else wanted.kv_format
            target = _model(origin.source, "target", wanted.num_ctx, tensors, kv_format)
            draft = _draft(shown, origin.source, wanted.num_ctx, tensors)
    except ModelkitError as error:
        row = describe_row(package)
        known = {key: row[key] for key in ("architecture", "format", "draft")}
        return {**facts, **known, "problem": error.message}
    can = _capabilities(facts["capabilities"], origin.source, writes=target.pop("writes"))
    return {**facts, **target, "capabilities": can, "draft": draft}


def _draft(package: Package, target: Source, most_tokens: int | None, tensors: bool) -> dict[str, Any] | None:
    """None without one. Of one that cannot be read, what `list` shows of it."""
    try:
        source = open_package(package).draft
        if source is None:
            return None
        facts = _model(source, "draft", most_tokens, tensors)
    except ModelkitError as error:
        return {**describe_row(package)["draft"], "problem": error.message}
    return {**facts, "problem": facts["problem"] or _misfit(source, target)}


def _misfit(draft: Source, target: Source) -> str | None:
    """Why a draft that is sound cannot draft for this target."""
    from runtime.speculate.pair import pair_problem

    try:
        return pair_problem(*(describe(one.inventory.config) for one in (draft, target)))
    except UnsupportedModel:  # the target's own problem says it
        return None


def _capabilities(of_texts: Any, source: Source, *, writes: bool) -> list[str]:
    """of_texts: those of a model that writes. Embeddings count where its files speak of them."""
    pools = not writes or any(name in source.inventory.files for name in POOLING_FILES)
    return [*(of_texts if writes else []), *(["embedding"] if pools else [])]


def _adapters(package: Package, made: Metadata) -> list[dict[str, Any]]:
    """Those that requests may choose, in their order, and those in the weights."""
    try:
        stored = read_stored(package.files, package.name.short)
    except ModelkitError:  # whoever loads it is told
        stored = {}
    rows: list[dict[str, Any]] = [
        {"name": one.name, "kind": one.kind, "base": one.base, "fused": True}
        for one in made.adapters
        if one.fused
    ]
    order = [one.name for one in made.adapters if one.name in stored and not one.fused]
    for name in [*order, *(name for name in stored if name not in order)]:
        own = stored[name]
        facts = {"rank": own.rank, "modules": own.modules, "scale": own.scale, "size_bytes": own.nbytes}
        rows.append({"name": name, "kind": own.kind, "base": own.base, "fused": False, **facts})
    return rows


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


def _speculation(store: Store, package: Package) -> list[dict[str, Any]]:
    """What earlier runs learned about drafts: the depth that paid, and how often each place was accepted."""
    return [
        {
            "setting": setting,
            "drafter": drafter,
            "rows": rows,
            "grade": grade,
            "depth": lesson.depth[grade],
            "acceptance": [round(share, 4) for share, _ in accepted],
        }
        for setting, lessons in lessons_of(store, str(package.digest)).items()
        for (drafter, rows), lesson in sorted(lessons.items())
        for grade, accepted in sorted(lesson.accepted.items())
        if accepted
    ]


def _texts(package: Package) -> dict[str, Any]:
    template, able, problem = _chat(package)
    can = [name for name in ("tools", "thinking") if able and getattr(able, name)]
    can += ["insert"] if _fills_gaps(package) else []
    return {
        "template": template,
        "template_problem": problem,
        "capabilities": ["completion", *(["chat"] if able else []), *can],
        "style": _style(able.style) if able else None,
        "thinking": _thinking(able.thinks) if able else None,
        "licenses": texts.licenses(package),
    }


def _fills_gaps(package: Package) -> bool:
    try:
        return marks_in(texts.added_tokens(package)) is not None
    except ModelkitError:
        return False


def _style(found: "Choice") -> dict[str, Any]:
    return {"name": found.style.name if found.style else None, "found": found.how}


def _thinking(offered: "Thinking") -> dict[str, Any]:
    return {
        "can": offered.can,
        "default": offered.default,
        "can_be_off": not offered.can or offered.off is not None,
        "variable": offered.switch,
        "levels": [*offered.levels],
        "said": offered.description,
    }


def _chat(package: Package) -> "tuple[str | None, Capabilities | None, str | None]":
    """The chat template and what it can do, or why it fails."""
    from modelkit.chat.capabilities import check_template

    template = None
    try:
        template = texts.template(package) or None
        if template is None:
            return None, None, None
        specials, parser = texts.specials(package), texts.recipe(package).parser
        marks = {"bos_token": specials.bos, "eos_token": specials.eos}
        able = check_template(template, **marks, parser=parser, tokens=texts.added_tokens(package))
    except ModelkitError as error:
        return template, None, error.message
    return template, able, None


def _model(
    source: Source, role: Role, most_tokens: int | None, tensors: bool, kv_format: str | None = None
) -> dict[str, Any]:
    """Target or draft."""
    decided = plan(source.inventory, source.kind, None, role=role)
    facts: dict[str, Any] = {
        "architecture": architecture_name(decided.config),
        "parameter_count": decided.elements,
        "format": decided.label,
        "bits_per_weight": round(decided.bits_per_weight, 4),
        "weight_bytes": decided.nbytes,
        "problem": None,
        **_memory(decided, most_tokens, kv_format),
        **_embeddings(source, decided),
    }
    return {**facts, "tensors": _tensors(decided)} if tensors else facts


def _memory(decided: Plan, most_tokens: int | None, kv_format: str | None) -> dict[str, Any]:
    """What the architecture says of itself; nulls and a `problem` where none here runs the config."""
    try:
        described = describe(decided.config)
    except UnsupportedModel as error:
        unknown: dict[str, Any] = dict.fromkeys(("context_length", "embedding_length", "memory", "head"))
        return {**unknown, "unused": [], "writes": True, "problem": str(error)}
    tokens = min(most_tokens or described.context_length, described.context_length)
    dtype = _computed_in(decided)
    unfit = misfits(described.layout, kv_format)
    if unfit:  # it cannot be loaded like this; what it would take with `auto` is shown
        problem, kv_format = f"kv_format {kv_format} does not suit it: {unfit[0]}", None
    else:
        problem = None
    kinds = _kinds(described.layout, tokens, dtype, kv_format)
    return {
        "problem": problem,
        "writes": described.writes,
        "context_length": described.context_length,
        "head": _head(described, decided),
        "unused": list(unused_parts(described, decided.stored())),
        "memory": {
            "dtype": dtype,
            "tokens": tokens,
            "bytes_per_token": sum(kind["layers"] * kind["bytes_per_token"] for kind in kinds),
            "bytes_per_sequence": sum(kind["layers"] * kind["bytes_per_sequence"] for kind in kinds),
            "kinds": kinds,
        },
    }


def _embeddings(source: Source, decided: Plan) -> dict[str, Any]:
    """How a text's hidden states become its embedding, which file says so, and how many elements it has."""
    try:
        described = describe(decided.config)
    except UnsupportedModel:
        return {"embeddings": None}
    pooling = read_pooling(source.inventory.files, described)
    return {"embeddings": pooling.description, "embedding_length": pooling.size(described.hidden_size)}


def _head(described: Described, decided: Plan) -> dict[str, int] | None:
    """The draft head in the model's own file, where there is one that fits."""
    if described.family.head is None:
        return None
    try:
        demand = foresee(decided.config, decided.stored(), with_head=True)
    except WeightMismatch:  # running it will say which tensors; what is here is shown all the same
        return None
    if not demand.head_bytes:
        return None
    return {"layers": len(demand.head_layout), "size_bytes": demand.head_bytes}


def _kinds(
    layout: Sequence[LayerSpec], tokens: int, dtype: str, kv_format: str | None
) -> list[dict[str, Any]]:
    """One row per kind of layer, with what each such layer takes and in which formats."""
    element = _ELEMENT_BYTES[dtype]
    return [
        {
            "kind": spec.kind,
            "layers": layers,
            "format": _kept(spec, dtype, kv_format),
            "bytes_per_token": bytes_per_token(spec, element, kv_format),
            "bytes_per_sequence": bytes_per_sequence(spec, tokens, element, kept_format=kv_format),
        }
        for spec, layers in Counter(layout).items()
    ]


def _kept(spec: LayerSpec, dtype: str, kv_format: str | None) -> str | None:
    """The format of keys and values, or the float types of a recurrent layer's states; None without any."""
    own = {state.dtype for state in spec.states.values()} if isinstance(spec, Recurrent) else set[str]()
    floats = [_SHORT[dtype if name == "activation" else name] for name in sorted(own)]
    if keeps_tokens(spec):
        return kv_format or _SHORT[dtype]
    if isinstance(spec, Encoder | Pooled):
        return _SHORT[dtype]
    return ", ".join(dict.fromkeys(floats)) or None


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
