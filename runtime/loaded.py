"""A model in memory: its network, what its layers remember, and the limits that follow.

It also answers two questions before anything is loaded: do these tensors fit this config, and how many bytes
will the model take?
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from runtime.blocks.stored import stored_types, unfolded
from runtime.cache.build import LayerMemory, build_memory
from runtime.cache.layout import LayerSpec
from runtime.cpu.native.mapped import Mapped, mapped
from runtime.cpu.native.products import BLOCKS
from runtime.device import Device
from runtime.errors import BadTokenIds, TooLarge, WeightMismatch, shown
from runtime.holding import fill, held_bytes, weight_bytes
from runtime.models.architecture import Described, describe
from runtime.nn import ops
from runtime.nn.ordered import set_apart
from runtime.nn.ready import make_ready
from runtime.nn.rope_spec import long_after
from runtime.planned import Part, Plan, apart, fit_network, float_of, head_layout, plan_for, wanted_dtype
from runtime.records import dataclass
from runtime.step import Adapters, Inputs, Step
from runtime.streams import on_own_thread
from runtime.weights import DTYPES, load_file, misread, unread

if TYPE_CHECKING:
    import numpy as np

    from runtime.nn.adapters import Adapter


@dataclass(frozen=True, slots=True)
class Head:
    """A draft head from the target's own file."""

    network: Any
    """Its modules, filled with weights."""
    layout: tuple[LayerSpec, ...]
    """What each of its layers remembers."""
    weight_bytes: int
    """As they are held."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A network filled with weights."""

    described: Described
    """What its config says."""
    network: Any
    """Its modules, as the family's `build` made them."""
    dtype: mx.Dtype
    """What activations and layer memory use."""
    weight_bytes: int
    """Of the network's weights, as they are held."""
    head: Head | None = None
    """The draft head, if there is one and it was asked for."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""
    everywhere: tuple[LayerSpec, ...] = ()
    """If other machines have parts of it: what all layers remember, each on the machine that has it, while
    `described` says what is remembered here. () for a whole model.
    """
    adapters: "Mapping[str, Adapter]" = field(default_factory=dict[str, "Adapter"])
    """If other machines have parts of it: adapters by name, cut as the weights are."""

    beside: "Callable[..., LayerMemory] | None" = None
    """If other machines have parts of it: builds memory in place of `build_memory`."""

    def memory(self, rows: int = 1, kept_format: str | None = None, grain: int = 256) -> LayerMemory:
        """New memory for texts that are read independently of the engine; see `build_memory`."""
        build = self.beside or build_memory
        layout = self.described.layout
        return build(layout, rows=rows, dtype=self.dtype, kept_format=kept_format, grain=grain)

    @property
    def shared(self) -> bool:
        """Do other machines have parts of it?"""
        return bool(self.everywhere)

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding table, V; every id fed to the network is below it."""
        return self.described.vocab_size

    @property
    def context_length(self) -> int:
        return self.described.context_length


def check_weights(
    config: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    widths: Mapping[str, int] | None = None,
) -> list[str]:
    """What is wrong with these tensors for this config: one sentence each, [] when they fit.

    tensors: name -> (safetensors dtype name, shape), exactly as stored. widths: the lengths of rows of packed
    matrices by config.json's description of them, which other programs go by; they are compared with the
    shapes. Nothing is allocated or read. Raises UnsupportedModel when the config itself cannot be run.
    """
    described = describe(config)
    odd = unread(tensors)
    if odd:
        return odd

    def problems() -> list[str]:
        placeholders = {name: mx.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in tensors.items()}
        try:
            opened = unfolded(placeholders, config, floats="none").weights
            set_apart(opened)
            network, _ = fit_network(described, config, opened)
        except WeightMismatch as mismatch:
            return mismatch.problems
        return misread(network, widths or {})

    return on_own_thread(problems)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a loaded model will take."""

    described: Described
    """What the config says."""
    weight_bytes: int
    """Of the weights, as they will be held."""
    element_bytes: int
    """Of one activation, and so of one number of keys and values unless another format is asked for."""
    head_bytes: int = 0
    """Of the draft head's weights, as they will be held."""
    head_layout: tuple[LayerSpec, ...] = ()
    """What the draft head's layers remember; () for no head."""


def foresee(
    config: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    on: Device | None = None,
    with_head: bool = False,
) -> Demand:
    """What `load_model` will hold of these tensors, given as in `check_weights`. Nothing is allocated or
    read. Raises WeightMismatch, UnsupportedModel.
    """
    described = describe(config)
    odd = unread(tensors)
    if odd:
        raise WeightMismatch(odd)

    def demand() -> Demand:
        stored = {name: mx.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in tensors.items()}
        planned = plan_for(described, config, stored, on, with_head=with_head)
        return _demand(described, planned, wanted_dtype(on) or float_of(stored))

    return on_own_thread(demand)


def _demand(described: Described, planned: Plan, dtype: mx.Dtype) -> Demand:
    """dtype: of activations."""
    if len(planned.parts) == 1:
        return Demand(described, planned.sizes[0], dtype.size)
    return Demand(described, planned.sizes[0], dtype.size, planned.sizes[1], head_layout(described))


@dataclass(frozen=True, slots=True)
class Held:
    """This machine's part of a model."""

    part: Part
    layout: tuple[LayerSpec, ...]
    """What each layer remembers here."""
    everywhere: tuple[LayerSpec, ...]
    """See LoadedModel."""


class Cut(Protocol):
    """Cuts a model for one of several machines (`runtime.ranks`)."""

    @property
    def ranks(self) -> int:
        """Number of machines."""
        ...

    @property
    def splits(self) -> bool:
        """Are tensors cut, and not only selected?"""
        ...

    @property
    def has_head(self) -> bool:
        """Has this machine the draft head?"""
        ...

    def __call__(
        self, described: Described, planned: Plan, dtype: mx.Dtype, stored: Mapping[str, mx.array]
    ) -> Held:
        """The network and those of its tensors that belong here; no others are read. planned: for the whole
        model. dtype: of activations. stored: all tensors, from which the planned ones were made.
        """
        ...


def load_model(
    config: Mapping[str, Any],
    shards: Sequence[Path] | Mapping[str, mx.array],
    *,
    on: Device | None = None,
    with_head: bool = False,
    fixed: bool = False,
    cut: Cut | None = None,
    told: Callable[[int], object] = lambda _: None,
) -> LoadedModel:
    """Read weights into a network, in the form that is fast on the device `on` (None: as they are stored).

    Where matrix products read weights as they are stored, they stay so. Where products of packed weights are
    slow, as on a processor without kernels of our own, packed weights are expanded to floats if that takes no
    more than half of the free memory.

    shards: safetensors files whose headers the caller has validated, or the tensors themselves. fixed: the
    files will never change, so they may be mapped (`runtime.cpu.native.mapped`). with_head: load the draft
    head too, if there is one; one that does not fit is left out with a note. cut: selects the part that is
    held here; None: all. told: called with the bytes of each tensor that has been read; what it raises ends
    the load.

    Raises WeightMismatch, UnsupportedModel, and TooLarge before anything is allocated.
    """
    return begin_load(config, shards, on=on, with_head=with_head, fixed=fixed, cut=cut).read(on, told)


@dataclass(slots=True)
class Loading:
    """A model whose weights are still where they are: how they will be held is decided."""

    described: Described
    """What its config says, with what is remembered here of all layers."""
    dtype: mx.Dtype
    """As in LoadedModel."""
    planned: Plan
    stored: dict[str, mx.array]
    """The tensors that the planned ones are made of."""
    everywhere: tuple[LayerSpec, ...] = ()
    """As in LoadedModel."""

    @property
    def demand(self) -> Demand:
        """What it will take."""
        return _demand(self.described, self.planned, self.dtype)

    def read(self, on: Device | None, told: Callable[[int], object] = lambda _: None) -> LoadedModel:
        """The model, once and on the thread that began it. on, told, errors: as in `load_model`."""
        planned, size = self.planned, sum(self.planned.sizes)
        if on is not None and size > on.available_bytes > 0:
            raise TooLarge(size, on.available_bytes)
        for tensors in (self.stored, planned.opened.weights):
            tensors.clear()  # those that no part took would stay in memory
        for module, fitted in planned.parts:
            fill(module, fitted, planned.holding, told)
            module.eval()
            make_ready(module, self.dtype)
        (network, _), *heads = planned.parts
        return LoadedModel(
            self.described,
            network,
            self.dtype,
            weight_bytes(network),
            _head(self.described, heads[0][0]) if heads else None,
            planned.notes + planned.opened.notes,
            self.everywhere,
        )


def begin_load(
    config: Mapping[str, Any],
    shards: Sequence[Path] | Mapping[str, mx.array],
    *,
    on: Device | None = None,
    with_head: bool = False,
    fixed: bool = False,
    cut: Cut | None = None,
) -> Loading:
    """What `load_model` does before it reads a number. Raises WeightMismatch, UnsupportedModel."""
    described = describe(config)
    named = isinstance(shards, Mapping)
    stored = dict(shards) if named else read_tensors(shards, config, on, fixed=fixed)
    dtype = wanted_dtype(on) or float_of(stored)
    ops.settle()
    if cut is None:
        planned = plan_for(described, config, stored, on, with_head=with_head)
        return Loading(described, dtype, planned, stored)
    held, planned = _cut(described, config, stored, on, cut, dtype, with_head=with_head)
    return Loading(replace(described, layout=held.layout), dtype, planned, stored, held.everywhere)


def _cut(
    described: Described,
    config: Mapping[str, Any],
    weights: dict[str, mx.array],
    on: Device | None,
    cut: Cut,
    compute: mx.Dtype,
    *,
    with_head: bool,
) -> tuple[Held, Plan]:
    planned = plan_to_cut(described, config, weights, on, cut, with_head=with_head)
    held = cut(described, planned, compute, weights)
    size = held_bytes(*held.part, planned.holding)
    parts, sizes = [held.part, *planned.parts[1:]], (size, *planned.sizes[1:])
    return held, replace(planned, parts=parts, sizes=sizes)


def plan_to_cut(
    described: Described,
    config: Mapping[str, Any],
    weights: Mapping[str, mx.array],
    on: Device | None,
    cut: Cut,
    *,
    with_head: bool,
) -> Plan:
    """Decide how weights are held as if this machine held all of them and had the room of all machines, so
    that all machines decide alike.
    """
    roomy = None if on is None else replace(on, available_bytes=on.available_bytes * cut.ranks)
    roomy = apart(roomy, config) if cut.splits else roomy
    with_head = with_head and cut.has_head
    return plan_for(described, config, weights, roomy, with_head=with_head, to_cut=cut.splits)


def read_tensors(
    shards: Sequence[Path], config: Mapping[str, Any], on: Device | None, *, fixed: bool
) -> dict[str, mx.array]:
    """The tensors of these files, not read yet. fixed: as in `load_model`."""
    may_map = _mappable(config, on) if fixed else None
    weights: dict[str, mx.array] = {}
    for shard in shards:
        there = mapped(shard, may_map) if may_map else Mapped({}, others=True)
        if there.others:
            weights |= load_file(shard)
        weights |= there.arrays
    return weights


def _mappable(config: Mapping[str, Any], on: Device | None) -> Callable[[str], bool] | None:
    """Tells by name which tensors are computed with as they are stored, so that they can be mapped; None if
    the device computes with none so. Blocks that become something else are read, and freed one by one.
    """
    if on is None or not on.as_stored:
        return None
    opened = {f"{module}.weight" for module, kind in stored_types(config).items() if kind.name not in BLOCKS}
    return lambda name: name not in opened


def check_ids(ids: Sequence[int], vocab_size: int, where: str = "prompt") -> None:
    """Raise BadTokenIds unless every id is an int in [0, vocab_size): MLX would read outside the table.
    where: names what has the ids in the message.
    """
    for place, token in enumerate(ids):
        if type(token) is not int or not 0 <= token < vocab_size:
            raise BadTokenIds(
                f"{where} has the token id {shown(token):.40} at place {place}, which is not in the "
                f"vocabulary of {vocab_size}"
            )


def _head(described: Described, network: nn.Module) -> Head:
    return Head(network, head_layout(described), weight_bytes(network))


def score(
    model: LoadedModel,
    ids: Sequence[int],
    chunk: int,
    kept_format: str | None = None,
    source: Sequence[int] = (),
    adapters: Adapters | None = None,
) -> "np.ndarray":
    """What the model predicts after each of `ids`, float32 [T, V], read in steps of `chunk` tokens.

    kept_format: as in KVRows. source: the encoder's prompt, for models that have an encoder; ids are then the
    decoder's, beginning with the id with which answers begin. adapters: of the one row.
    """
    found = Scores(model, ids, kept_format, source, adapters)
    while not found.over:
        found.read(chunk)
    return found.logits()


class Scores:
    """What a model predicts after each token of a text that is read in pieces, so that whoever computes
    between them is not held up for long. It has layer memory of its own. All of it runs on the thread that
    the model's arrays belong to.

    ids: at least one. kept_format: as in KVRows. source: the encoder's prompt, for models that have an
    encoder; ids are then the decoder's, beginning with the id with which answers begin. adapters: of the
    one text. Raises BadTokenIds.
    """

    def __init__(
        self,
        model: LoadedModel,
        ids: Sequence[int],
        kept_format: str | None = None,
        source: Sequence[int] = (),
        adapters: Adapters | None = None,
    ) -> None:
        check_ids(ids, model.vocab_size, "ids")
        check_ids(source, model.vocab_size, "source")
        self._model, self._ids, self._source, self._adapters = model, ids, source, adapters
        border = long_after(model.described.config)
        self._long = None if border is None else (len(ids) > border,)
        self._memory = model.memory(kept_format=kept_format)
        self._done = 0
        self._rows: list[np.ndarray] = []

    @property
    def over(self) -> bool:
        """Is all read?"""
        return self._done == len(self._ids)

    def read(self, tokens: int) -> int:
        """Read the next piece, of at most so many tokens. Returns how many it had."""
        import numpy as np

        model, memory, start = self._model, self._memory, self._done
        part = list(self._ids[start : start + tokens])
        inputs = Inputs(mx.array([part], dtype=mx.int32))
        step = Step(
            starts=(start,), counts=(len(part),), long=self._long, inputs=inputs, adapters=self._adapters
        )
        memory.prepare(step)
        if self._source and not start:
            model.network.encode(Inputs(mx.array([self._source], dtype=mx.int32)), step, memory)
        hidden = model.network(step, memory)
        self._rows.append(np.array(model.network.logits(hidden, step)[0].astype(mx.float32)))
        memory.commit(step, step.counts)
        self._done += len(part)
        return len(part)

    def logits(self) -> "np.ndarray":
        """float32 [T, V], once all is read."""
        import numpy as np

        assert self.over, "not all is read"
        return np.concatenate(self._rows)
