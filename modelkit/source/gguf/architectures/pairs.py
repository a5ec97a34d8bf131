"""Adapters in GGUF: pairs of matrices for llama.cpp's tensors, as pairs for a checkpoint's, by the same
table.

To W = [R, C] is added left right, with left [R, r] and right [r, C] (a stack has another dimension in front
of each). What moves rows of W moves rows of left, what moves columns moves those of right, and what turns W
over makes each the other's transpose. Numbers that a converter changes (a norm plus one) are no product and
have no pairs.

A file has `X.lora_a` [r, C] and `X.lora_b` [R, r]; for the embedding, `lora_a` [R, r] and `lora_b` [C, r].
The converter also writes norms that were trained, whole, which llama.cpp passes over.
"""

from collections.abc import Callable, Mapping
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.architectures.architecture import Architecture, Kind, links_from_theirs
from modelkit.source.gguf.architectures.changes import Columns, Turned
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Origin, Shape
from modelkit.source.gguf.architectures.numbers import shortest
from modelkit.source.gguf.architectures.table import ROWS
from runtime.quoting import quoted, shown
from runtime.records import dataclass

EMBEDDING = "token_embd.weight"
_SHOWN = 3
TASK = "adapter.lora.task_name"
PREFIX = "adapter.lora.prompt_prefix"
"""What a reader is told of, as llama.cpp's server tells it."""
_READ = frozenset(("adapter.type", "adapter.lora.alpha", TASK, PREFIX))

Pair = tuple[Any, Any]
"""left [..., R, r] and right [..., r, C]."""


@dataclass(frozen=True, slots=True)
class AdapterParts:
    """What a GGUF adapter adds to which matrices of a checkpoint."""

    alpha: float
    """A pair of rank r counts alpha / r times."""
    tensors: Mapping[str, Origin]
    """The checkpoint's matrices by name; `tensors` of an origin are those of the model that the file's pairs
    are for."""
    norms: Mapping[str, str]
    """Whole norms by the checkpoint's name: the file's tensors."""


def read_adapter(
    metadata: Mapping[str, Any], shapes: Mapping[str, Shape], config: Mapping[str, Any], label: str
) -> AdapterParts:
    """shapes: of the file's tensors, slowest dimension first. config: the base model's, flat.

    Raises UnsupportedSource for another base, another kind of adapter or a tensor without a place,
    MalformedFile for halves of pairs and for pairs that do not meet.
    """
    _check_kind(metadata, label)
    unread = [key for key in metadata if key.startswith("adapter.") and key not in _READ]
    if unread:
        raise UnsupportedSource(
            f"{label}: `{shown(unread[0])}` may change the adapter's numbers and is not known"
        )
    alpha = metadata.get("adapter.lora.alpha")
    if type(alpha) not in (int, float) or alpha is None or not abs(alpha) < 1e9:
        raise MalformedFile(f"{label}: `adapter.lora.alpha` is {quoted(alpha)}; a number was expected")
    row = _row(metadata.get("general.architecture"), config, label)
    norms = {name: shape for name, shape in shapes.items() if name.endswith(_NORM)}
    pairs = {name: shape for name, shape in shapes.items() if name not in norms}
    whole = {name: _whole(name, shapes, label) for name in _names(pairs, label)} | norms
    links, left = links_from_theirs(row, whole, Facts(config))
    origins = [origin for link in links for origin in link.undo()]
    changed = [o.name for o in origins if not (o.whole if o.tensors[0] in norms else _has_pair(o))]
    if left or changed:
        listed = ", ".join(f"`{shown(name)}`" for name in [*left, *changed][:_SHOWN])
        raise UnsupportedSource(f"{label}: {listed} of a {row.name} model cannot be in an adapter here")
    return AdapterParts(
        shortest(float(alpha)),
        {o.name: o for o in origins if o.tensors[0] not in norms},
        {o.name: o.tensors[0] for o in origins if o.tensors[0] in norms},
    )


def _check_kind(metadata: Mapping[str, Any], label: str) -> None:
    if metadata.get("general.architecture") == "controlvector":
        raise UnsupportedSource(
            f"{label} is a control vector, which is added to hidden states; that is not computed here",
            hint="ADAPTER takes LoRA adapters.",
        )
    whole, kind = metadata.get("general.type"), metadata.get("adapter.type")
    if whole != "adapter":
        hint = "FROM and DRAFT take models." if whole == "model" else "ADAPTER takes LoRA adapters."
        raise UnsupportedSource(
            f"{label} is not an adapter: its `general.type` is {quoted(whole)}", hint=hint
        )
    if kind != "lora":
        raise UnsupportedSource(
            f"{label} is not a LoRA adapter: its `adapter.type` is {quoted(kind)}",
            hint="No other kind is computed here.",
        )


_NORM = "_norm.weight"
_MOVED = (type(None), Columns, Turned)


def _has_pair(origin: Origin) -> bool:
    """Mamba 2's norm in groups is a matrix to llama.cpp, and a vector here."""
    return len(origin.shape) > 1 and isinstance(origin.change, _MOVED)


def _row(name: object, config: Mapping[str, Any], label: str) -> Architecture:
    model_type = str(config.get("model_type"))
    found: tuple[Architecture, Kind] | None = None
    for row in ROWS:
        kind = row.kind_named(model_type)
        if row.name == name and kind is not None:
            found = row, kind
    if found is None:
        raise UnsupportedSource(
            f"{label} is an adapter for {quoted(name)}, and the base is a {shown(model_type)} model"
        )
    return found[0]


def _names(shapes: Mapping[str, Shape], label: str) -> list[str]:
    """The model's tensors that have pairs."""
    stems = {name.rpartition(".")[0]: None for name in shapes}
    for name in shapes:
        if not name.endswith((".lora_a", ".lora_b")):
            raise UnsupportedSource(f"{label}: `{shown(name)}` is not half of a pair")
    for stem in stems:
        for leaf in ("lora_a", "lora_b"):
            if f"{stem}.{leaf}" not in shapes:
                raise MalformedFile(f"{label}: `{shown(stem)}` has no `{leaf}`")
    return list(stems)


def _whole(name: str, shapes: Mapping[str, Shape], label: str) -> Shape:
    """The shape of the matrix that a pair is for."""
    a, b = shapes[f"{name}.lora_a"], shapes[f"{name}.lora_b"]
    if name == EMBEDDING:
        a, b = (*b[:-2], *b[:-3:-1]), a
    if not 2 <= len(a) == len(b) <= 3 or a[:-2] != b[:-2] or a[-2] != b[-1]:
        raise MalformedFile(
            f"{label}: the pair of `{shown(name)}` is {list(b)} times {list(a)}, which do not meet"
        )
    return (*b[:-1], a[-1])


def halves(name: str) -> tuple[tuple[str, bool], tuple[str, bool]]:
    """left and right of a pair: the file's tensor, and whether its last two dimensions change places."""
    if name == EMBEDDING:
        return (f"{name}.lora_a", False), (f"{name}.lora_b", True)
    return (f"{name}.lora_b", False), (f"{name}.lora_a", False)


def apply_to_pair(origin: Origin, pair: Callable[[str], Pair], xp: Any) -> Pair:
    """The pair for the checkpoint's matrix. pair: that for a tensor of the model, by its name.

    A matrix that several tensors make has the sum of their ranks.
    """
    pairs = [pair(name) for name in origin.tensors]
    ranks = [right.shape[-2] for _, right in pairs]
    places = {name: place for place, name in enumerate(origin.tensors)}
    parts: list[Any] = []
    for run in origin.runs:
        place = places[run.tensor]
        rows = pairs[place][0].reshape(run.of, -1)[run.start : run.stop : run.step]
        before, behind = sum(ranks[:place]), sum(ranks[place + 1 :])
        blank = [xp.zeros((rows.shape[0], count), dtype=rows.dtype) for count in (before, behind)]
        parts.append(xp.concatenate([blank[0], rows, blank[1]], axis=-1) if before or behind else rows)
    moved = parts[0] if len(parts) == 1 else xp.concatenate(parts)
    right = pairs[0][1] if len(pairs) == 1 else xp.concatenate([one for _, one in pairs], axis=-2)
    shape = origin.shape if origin.change is None else origin.change.before(origin.shape)
    left = moved.reshape(*shape[:-1], sum(ranks))
    if isinstance(origin.change, Turned):
        return right.swapaxes(-1, -2), left.swapaxes(-1, -2)
    if origin.change is not None:
        right = origin.change.apply(right, xp)
    return left, right
