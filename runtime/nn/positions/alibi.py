"""Positions as a bias on attention scores that grows with each key's place, steeper in some heads: ALiBi.

Scores fall by a head's slope with each token that lies between a query and a key. All scores of a query may
be moved alike, so the bias is counted from the text's first token: it is the same for all queries, whoever
asks, and however a text is cut into steps. Source: arXiv 2108.12409.
"""

import mlx.core as mx
import numpy as np

from runtime.parts.attention import Bias
from runtime.step import Step


def slopes(heads: int, steepest: float = 8.0) -> np.ndarray:
    """float32 [heads]: powers of 2 ** (-steepest / heads) where `heads` is a power of two; else those of the
    power of two below, then every other one of that above.
    """
    least = 1 << (heads.bit_length() - 1)
    return np.concatenate([_powers(least, steepest), _powers(2 * least, steepest)[::2][: heads - least]])


def _powers(heads: int, steepest: float) -> np.ndarray:
    return np.power(np.float32(2 ** (-steepest / heads)), np.arange(1, heads + 1, dtype=np.float32))


class Alibi:
    """The bias of all layers of a network. coarse: its numbers are rounded to bf16 before they are scaled."""

    def __init__(self, slopes: np.ndarray, *, scale: float = 1.0, coarse: bool = False) -> None:
        self._slopes, self._scale, self._coarse = slopes, scale, coarse
        self._dtype = mx.bfloat16 if coarse else mx.float32
        self._parts: dict[tuple[int, int], Alibi] = {}

    def of_heads(self, start: int, stop: int) -> "Alibi":
        """That of the heads [start, stop), the same for all layers that ask."""
        if (start, stop) not in self._parts:
            part = Alibi(self._slopes[start:stop], scale=self._scale, coarse=self._coarse)
            self._parts[start, stop] = part
        return self._parts[start, stop]

    def of_step(self, step: Step) -> Bias:
        """[1, H, 1, K] for K keys. Made once per step."""
        return lambda places, _asking: step.memo(
            (self, places.shape[1]), lambda: self.of_keys(places.shape[1])
        )

    def of_keys(self, keys: int) -> mx.array:
        places = mx.arange(keys, dtype=mx.int32).astype(self._dtype)
        grown = (mx.array(self._slopes)[:, None].astype(self._dtype) * places).astype(mx.float32)
        return (grown * self._scale)[None, :, None]
