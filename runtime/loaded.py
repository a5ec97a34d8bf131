"""A model in memory: its network, what its layers remember, and what it predicts after given tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from runtime.cache.build import build_memory
from runtime.cache.layout import LayerSpec
from runtime.cache.memory import LayerMemory
from runtime.errors import BadTokenIds
from runtime.models.registry.described import Described
from runtime.nn.positions.rope_spec import long_after
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Adapters, Inputs, Step

if TYPE_CHECKING:
    import numpy as np

    from runtime.nn.adapters.adapter import Adapter


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


def check_ids(ids: Sequence[int], vocab_size: int, where: str = "prompt") -> None:
    """Raise BadTokenIds unless every id is an int in [0, vocab_size): MLX would read outside the table.
    where: names what has the ids in the message.
    """
    for place, token in enumerate(ids):
        if type(token) is not int or not 0 <= token < vocab_size:
            raise BadTokenIds(
                f"{where} has the token id {quoted(token)} at place {place}, which is not in the "
                f"vocabulary of {vocab_size}"
            )


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
        self._logits: np.ndarray | None = None

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
        logits = np.asarray(model.network.logits(hidden, step)[0].astype(mx.float32))
        if self._logits is None:  # as wide as the head is, which may have rows for more than the vocabulary
            self._logits = np.empty((len(self._ids), logits.shape[-1]), np.float32)
        self._logits[start : start + len(part)] = logits
        memory.commit(step, step.counts)
        self._done += len(part)
        return len(part)

    def logits(self) -> "np.ndarray":
        """float32 [T, V], once all is read."""
        assert self._logits is not None
        assert self.over, "not all is read"
        return self._logits
