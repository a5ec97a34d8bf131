"""What an adapter says, whoever wrote it: which tensors change which matrices of a checkpoint, and how.

A matrix W [R, C] (R outputs; of a table R ids) gets + scale · left right, with left [R, r] and right [r, C];
a stack [E, R, C] likewise for each of its E. Nothing here reads numbers.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from modelkit.errors import SourceError, UnsupportedSource
from modelkit.problems import sentences_of
from modelkit.source.gguf.architectures.moves import Origin
from modelkit.source.inventory import WeightFile
from modelkit.source.tensor import FLOATS, TensorInfo
from modelkit.source.tree import Files
from runtime.quoting import quoted, shown
from runtime.records import dataclass

MAX_RANK = 1 << 16
Q8_0 = "Q8_0"
"""GGUF's blocks of 32 numbers, a type that halves of its pairs may have."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One of the two matrices of a pair, as stored and as meant."""

    tensor: TensorInfo
    turned: bool = False
    """Its last two axes are to be swapped."""
    experts: int = 0
    """PEFT's form for E experts in one matrix, [E · r, C]; 0: as the shape says."""
    rank_last: bool = False
    """Of those, [R, r · E]."""
    meant: tuple[int, ...] = ()
    """Its shape where it is made of several tensors (`GgufOrigin`), of which `tensor` is one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """As meant."""
        if self.meant:
            return self.meant
        *leading, rows, columns = self.tensor.shape
        if self.experts:
            leading = [self.experts]
            rows = rows if self.rank_last else rows // self.experts
            columns = columns // self.experts if self.rank_last else columns
        return (*leading, columns, rows) if self.turned else (*leading, rows, columns)


@dataclass(frozen=True, slots=True)
class GgufOrigin:
    """How a pair is made of those of a GGUF file."""

    origin: Origin
    """What the matrix is made of."""
    factors: Mapping[str, tuple[Factor, Factor]]
    """left and right for each of llama.cpp's tensors that it is made of."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What is added to one matrix."""

    names: tuple[str, ...]
    """Of the matrix, in a checkpoint: `model.layers.0.mlp.up_proj.weight`."""
    left: Factor
    """[R, r] or [E, R, r]."""
    right: Factor
    """[r, C] or [E, r, C]."""
    scale: float
    magnitude: TensorInfo | None = None
    """DoRA: [R]; of a table [C]."""
    bias: TensorInfo | None = None
    """[R]: added with the pair, times its scale."""
    table: bool = False
    """Is the matrix looked up by its rows?"""
    parameter: bool = False
    """Is it said of a parameter, whatever module has it? Then a table's pair is like a layer's."""
    either_way: bool = False
    """May it be meant for the transpose of the matrix? Some versions of PEFT do so for stacks."""
    made: GgufOrigin | None = None
    """None: of `left` and `right` alone."""
    others: "tuple[Pair, ...]" = ()
    """What it may be instead, of other matrices, ranks and scales: the base's shapes alone tell."""

    @property
    def rank(self) -> int:
        return self.left.shape[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix."""
        return (*self.left.shape[:-1], self.right.shape[-1])

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        every = (self.left.tensor, self.right.tensor, self.magnitude, self.bias)
        return tuple(tensor for tensor in every if tensor is not None)


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Rows of a table that are others."""

    name: str
    """Of the table, in a checkpoint."""
    ids: tuple[int, ...]
    values: TensorInfo
    """[n, D]."""


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """One adapter, read by its headers."""

    label: str
    """How messages call it."""
    kind: Literal["peft", "mlx-lm", "gguf"]
    file: WeightFile
    """Where all its tensors are."""
    config: Path | None
    """Its adapter_config.json, which decides its numbers as well; None where the file says it all."""
    pairs: tuple[Pair, ...]
    whole: Mapping[str, TensorInfo] = field(default_factory=dict[str, TensorInfo])
    """Whole tensors, by their names in a checkpoint."""
    rows: tuple[OwnRows, ...] = ()
    kernels: tuple[str, ...] = ()
    """Convolutions with pairs, by their names in a checkpoint: towers for images have such, and nothing that
    runs takes one.
    """
    saved: Mapping[str, TensorInfo] = field(default_factory=dict[str, TensorInfo])
    """Layers of the base that were saved beside their pairs, by their names in a checkpoint."""
    base: str | None = None
    """What it says it was trained on."""
    unties: bool = False
    """Does a whole embedding leave a head that was tied to it as it was?"""
    stacks_turned: Mapping[bool, bool] = field(default_factory=dict[bool, bool])
    """Of pairs that go either way: are they meant for the transpose? By whether the stack is held input
    first, as far as the version that wrote the file tells. Only square matrices need to know.
    """
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For the user: rank, alpha and the like, as its config has them."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""
    beside: Files = field(default_factory=dict[str, Path])
    """All that lies where it does, by name."""

    @property
    def names(self) -> set[str]:
        """What it changes, by the names of checkpoints."""
        return {
            *(name for pair in self.pairs for name in pair.names),
            *self.whole,
            *(one.name for one in self.rows),
            *self.kernels,
        }

    @property
    def replacing(self) -> tuple[TensorInfo, ...]:
        """The tensors that stand for the base's own: whole ones and rows, and layers that were saved."""
        return (*self.whole.values(), *(one.values for one in self.rows), *self.saved.values())

    def renamed(self, name: Callable[[str], str]) -> "AdapterSource":
        """For a checkpoint that calls everything otherwise."""
        return replace(
            self,
            pairs=tuple(_renamed(pair, name) for pair in self.pairs),
            whole={name(one): tensor for one, tensor in self.whole.items()},
            rows=tuple(replace(one, name=name(one.name)) for one in self.rows),
            kernels=tuple(map(name, self.kernels)),
            saved={name(one): tensor for one, tensor in self.saved.items()},
        )

    @property
    def form(self) -> Literal["published", "mlx"]:
        """Whose numbers it changes, where transformers' and mlx-lm's differ."""
        return "mlx" if self.kind == "mlx-lm" else "published"


def _renamed(pair: Pair, name: Callable[[str], str]) -> Pair:
    others = tuple(_renamed(one, name) for one in pair.others)
    return replace(pair, names=tuple(map(name, pair.names)), others=others)


def refuse(label: str, problems: list[str], hint: str | None = None) -> None:
    """Raise SourceError naming the first few problems; nothing where there are none."""
    if problems:
        raise SourceError(f"{label}: {sentences_of(problems)}", hint=hint)


def refuse_field(label: str, name: str, value: object, hint: str | None = None) -> NoReturn:
    said = quoted(value)
    raise UnsupportedSource(
        f"{label}: `{shown(name)}` is {said}, which changes the numbers and is not computed here", hint=hint
    )


def refuse_activated(label: str, name: str) -> NoReturn:
    """name: the field that says which tokens activate it."""
    raise UnsupportedSource(
        f"{label} is an activated LoRA: `{name}` says behind which tokens it acts, and here an adapter acts "
        "on all of a text",
        hint="An adapter that was trained without it is read.",
    )


def other_types(tensors: Iterable[TensorInfo]) -> list[str]:
    """A sentence for each that holds no floats that are read here."""
    wanted = f"{', '.join(FLOATS[:-1])} or {FLOATS[-1]}"
    return [
        f"`{shown(tensor.name)}` is {tensor.dtype}, and {wanted} was expected"
        for tensor in tensors
        if tensor.dtype not in FLOATS
    ]


def check_pair(pair: Pair, wanted: int | None) -> str | None:
    """What is wrong with a pair by itself: shapes that do not meet, a rank other than its config's."""
    name, left, right = pair.names[0].removesuffix(".weight"), pair.left.shape, pair.right.shape
    odd = other_types([one for one in pair.tensors if pair.made is None or one.dtype != Q8_0])
    if odd:
        return odd[0]
    if len(left) != len(right) or left[:-2] != right[:-2] or left[-1] != right[-2]:
        return f"A and B of {shown(name)} do not meet: {list(right)} and {list(left)}"
    if not 0 < pair.rank <= MAX_RANK or 0 in (*left, *right):
        return f"{shown(name)} has the rank {pair.rank}"
    if wanted is not None and pair.rank != wanted:
        return f"{shown(name)} has the rank {pair.rank}, and its config says {wanted}"
    outputs = right[-1] if pair.table else left[-2]
    for extra, what in ((pair.magnitude, "magnitude"), (pair.bias, "bias")):
        if extra is not None and (extra.shape != (outputs,) or len(left) > 2):
            return f"the {what} of {shown(name)} has shape {list(extra.shape)}, [{outputs}] was expected"
    return None
