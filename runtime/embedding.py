"""One vector for each of several texts, from the hidden states behind a model's last norm.

A reading is done in pieces of so many tokens at most, so that whoever computes between them is not held up
for long. It has layer memory of its own and touches nobody else's. A network that looks both ways reads its
texts whole, in one piece.

Pools, as sentence-transformers defines them (B rows, L tokens, D hidden size):
    mean    the mean over a text's tokens       last    at its last token
    first   at its first token                  max     the greatest of each element over its tokens
    weighted    the mean, where the n-th token counts n times
    root        the sum over its tokens, divided by the square root of how many they are

Sums are in float32, whatever the network computes in, and go by position from the first token on: where a
text is cut into pieces moves none of their bits on a processor. What stands behind a text's end counts for
nothing, and so may what it begins with: the first token is the first that counts then.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import mlx.core as mx

from runtime.cache.memory import LayerMemory
from runtime.loaded import LoadedModel, check_ids
from runtime.nn.feed_forward.dense import Dense
from runtime.nn.positions.rope_spec import long_after
from runtime.step import Adapters, Inputs, Step

if TYPE_CHECKING:
    import numpy as np

Pool = Literal["mean", "last", "first", "max", "weighted", "root"]

_GRAIN = 256


class Reading:
    """Texts read side by side. All of it runs on the thread that the model's arrays belong to.

    texts: ids of each, at least one. Several are read in one piece, so together, padded to the longest, they
    must be no more than fits one; a text alone may have any length. adapters: of all of them. dense: what
    their vectors pass through. skipped: how many tokens at the beginning of each count for nothing, fewer
    than it has.
    """

    def __init__(
        self,
        model: LoadedModel,
        texts: Sequence[Sequence[int]],
        pool: Pool,
        kept_format: str | None = None,
        adapters: Adapters | None = None,
        dense: Sequence[Dense] = (),
        skipped: Sequence[int] = (),
    ) -> None:
        for text in texts:
            check_ids(text, model.vocab_size, "texts")
        self._model, self._texts, self._adapters = model, [list(text) for text in texts], adapters
        self._pool: Pool = pool
        self._dense = dense
        self._counts = tuple(len(text) for text in texts)
        self._skipped = tuple(skipped) or (0,) * len(texts)
        assert all(map(int.__lt__, self._skipped, self._counts)), "a text without tokens has no vector"
        border = long_after(model.described.config)
        self._long = None if border is None else tuple(count > border for count in self._counts)
        self._whole = len(texts) > 1 or model.described.looks_ahead
        grain = _GRAIN if len(texts) == 1 else max(self._counts)
        self._memory: LayerMemory | None = model.memory(len(texts), kept_format, grain)
        self._done = 0
        self._pooled: mx.array | None = None

    @property
    def over(self) -> bool:
        """Is all read?"""
        return self._memory is None

    def read(self, tokens: int) -> int:
        """Read the next piece, of at most so many tokens of a text, where it may be cut. Returns how many it
        had, padding included.
        """
        longest = max(self._counts)
        size = longest if self._whole else tokens
        start, stop = self._done, min(self._done + size, longest)
        ids = [text[start:stop] + [0] * (stop - max(start, len(text))) for text in self._texts]
        step = Step(
            starts=(start,) * len(ids),
            counts=tuple(min(count, stop) - start for count in self._counts),
            long=self._long,
            inputs=Inputs(mx.array(ids, dtype=mx.int32)),
            adapters=self._adapters,
        )
        memory = self._memory
        assert memory is not None, "all is read"
        memory.prepare(step)
        self._add(self._model.network(step, memory).astype(mx.float32), step)
        memory.commit(step, step.counts)
        self._done = stop
        if stop == longest:
            self._memory = None
        return len(ids) * (stop - start)

    def vectors(self) -> "np.ndarray":
        """float32 [B, D], once all is read."""
        import numpy as np

        assert self._pooled is not None
        assert self.over, "not all is read"
        counts = zip(self._counts, self._skipped, strict=True)
        sizes = np.array([divisor(count, self._pool, skipped) for count, skipped in counts], np.float32)
        found = np.array(self._pooled) / sizes[:, None]
        if not self._dense:
            return found
        passed = mx.array(found)
        for layer in self._dense:
            passed = layer(passed)
        return np.array(passed)

    def _add(self, hidden: mx.array, step: Step) -> None:
        """hidden: float32 [B, L, D] of the step."""
        counts = mx.array(step.counts)
        found = pooled(hidden, counts, self._pool, self._pooled, self._done, self._skipped)
        mx.eval(found)
        self._pooled = found


def pooled(
    hidden: mx.array,
    counts: mx.array,
    pool: Pool,
    before: mx.array | None = None,
    start: int = 0,
    skipped: Sequence[int] = (0,),
) -> mx.array:
    """[B, D] of one piece [B, L, D] and those before it, whose own is `before`; of means the sum (`divisor`).
    counts: tokens of each text in it, int [B]. start: tokens of each text before it. skipped: how many at its
    beginning count for nothing.
    """
    rows, places = mx.arange(hidden.shape[0]), mx.arange(hidden.shape[1])
    first = mx.array(tuple(skipped)) - start
    if pool == "first":
        found = hidden[rows, mx.clip(first, 0, hidden.shape[1] - 1)]
        return found if before is None else mx.where((first >= 0)[:, None], found, before)
    if pool == "last":
        return hidden[rows, counts - 1]
    if pool == "weighted":
        hidden = hidden * (places + start + 1).astype(hidden.dtype)[:, None]
    own = ((places[None] < counts[:, None]) & (places[None] >= first[:, None]))[..., None]
    values = mx.where(own, hidden, -mx.inf if pool == "max" else 0.0)
    if before is not None:  # as one more token in front: a sum of sums would have other bits
        values = mx.concatenate([before[:, None], values], axis=1)
    return values.max(axis=1) if pool == "max" else values.sum(axis=1)


def divisor(tokens: int, pool: Pool, skipped: int = 0) -> float:
    """What the sum of so many tokens, without those that count for nothing, is divided by."""
    if pool == "mean":
        return tokens - skipped
    if pool == "weighted":
        return (tokens * (tokens + 1) - skipped * (skipped + 1)) / 2
    return (tokens - skipped) ** 0.5 if pool == "root" else 1
