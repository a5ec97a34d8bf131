"""Layer memory on several ranks: what is done to rank 0's own is done to the others'.

There may be several: the engine's, and one for each set of texts that is read beside it (embeddings, scores).
They go by numbers. Each is told for itself, and knows the step that it has seen last: steps of several take
turns.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from runtime.cache.build import build_memory
from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import LayerSpec
from runtime.cache.memory import LayerMemory
from runtime.cache.protocol import Rotate
from runtime.quoting import quoted
from runtime.ranks.decision import Action
from runtime.ranks.group import Group
from runtime.ranks.whole_model import Whole
from runtime.step import Inputs, Step

Done = Callable[..., None]
"""Notes an action, for the others."""
OWN = 0
"""The engine's."""


_TURN = 512
"""Tokens that other networks read in one step at most, if nobody asks for more."""


def read_first(group: Group, network: Any, prompt: Inputs, step: Step, memory: LayerMemory) -> None:
    """What an encoder reads before a step, wherever layers are that remember it. It is waited for, as long as
    for the steps that other networks would read as many tokens in: a prompt is read whole here.
    """
    assert prompt.shape is not None
    tokens = prompt.shape[1]
    group.renew(1 + tokens // _TURN)
    network.encode(prompt, step, memory)
    memory.follow_source(step, tokens)
    mx.eval([array for one in memory.caches if isinstance(one, EncoderCache) for array in one.arrays])
    group.renew()


class LeadingMemory(LayerMemory):
    """What is done to it is done everywhere. What layers write in a forward pass, every rank's own do."""

    def __init__(self, done: Done, number: int, made: LayerMemory) -> None:
        super().__init__(made.layout, made.own, rows=made.rows, budget=made.budget)
        self.number = number
        self._done = partial(done, "memory", number)

    def grow(self, tokens: int, *, exact: bool) -> None:
        before = self.nbytes
        super().grow(tokens, exact=exact)
        if self.nbytes != before:
            self._done("grow", tokens, exact)

    def hold(self, rows: int, *, exact: bool) -> None:
        super().hold(rows, exact=exact)
        self._done("hold", rows, exact)

    def commit(self, step: Step, kept: Sequence[int]) -> None:
        super().commit(step, kept)
        self._done("commit", list(kept))

    def move(self, src: int, dst: int) -> None:
        super().move(src, dst)
        self._done("move", src, dst)

    def clear(self, row: int) -> None:
        super().clear(row)
        self._done("clear", row)

    def remove(self, row: int, start: int, stop: int, rotates: Sequence[Rotate | None] | None = None) -> None:
        super().remove(row, start, stop, rotates)
        self._done("remove", row, start, stop)


class LeadingMemories:
    """Rank 0's, of one model. done: told of all that is done to them."""

    def __init__(self, whole: Whole, done: Done) -> None:
        self._whole, self._done = whole, done
        self._beside: dict[int, weakref.ref[LeadingMemory]] = {}
        self._count = OWN

    def own(self, dtype: mx.Dtype, kept_format: str | None, **options: Any) -> LeadingMemory:
        """The engine's. options: as in build_memory."""
        made = self._made(OWN, dtype=dtype, kept_format=kept_format, **options)
        self._done("remember", kept_format)
        return made

    def beside(
        self,
        _layout: Sequence[LayerSpec],
        *,
        rows: int,
        dtype: mx.Dtype,
        kept_format: str | None,
        grain: int,
    ) -> LeadingMemory:
        """Another, until nobody here has it any more. Arguments as in build_memory."""
        self._count += 1
        made = self._made(self._count, rows=rows, dtype=dtype, kept_format=kept_format, grain=grain)
        self._beside[made.number] = weakref.ref(made)
        self._done("open", made.number, rows, kept_format, grain)
        return made

    def let_go(self) -> None:
        """Tell of those that nobody has any more."""
        for number in [number for number, one in self._beside.items() if one() is None]:
            del self._beside[number]
            self._done("drop", number)

    def has(self, memory: object) -> bool:
        """Is it one of these?"""
        if not isinstance(memory, LeadingMemory):
            return False
        return memory.number == OWN or memory.number in self._beside

    def _made(self, number: int, **options: Any) -> LeadingMemory:
        made = build_memory(self._whole.layout, elsewhere=self._whole.elsewhere, **options)
        return LeadingMemory(self._done, number, made)


class FollowingMemory:
    """Another rank's, with the step that it has seen last. shifts: how keys of each layer are moved."""

    def __init__(self, memory: LayerMemory, shifts: Callable[[], Sequence[Rotate | None]]) -> None:
        self.memory, self._shifts = memory, shifts
        self._step: Step | None = None

    def follow(self, step: Step) -> None:
        """The network has computed this step."""
        self.memory.follow(step)
        self._step = step

    def do(self, action: Action) -> None:
        """See LeadingMemory, where each has the same name."""
        match action:
            case ("grow", tokens, exact):
                self.memory.grow(tokens, exact=exact)
            case ("hold", rows, exact):
                self.memory.hold(rows, exact=exact)
            case ("commit", kept):
                assert self._step is not None
                counts = self._step.counts
                # Where all is kept, layers need not compare.
                self.memory.commit(self._step, counts if (*kept,) == counts else kept)
            case ("move", src, dst):
                self.memory.move(src, dst)
            case ("clear", row):
                self.memory.clear(row)
            case ("remove", row, start, stop):
                self.memory.remove(row, start, stop, self._shifts())
                self.memory.evaluate()
            case _:
                raise ValueError(f"nobody knows how to do {quoted(action)} to layer memory")
