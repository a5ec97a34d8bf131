"""Attention by blocks of keys: each query sees the last blocks, its own included, and every so many of those
before, which are other ones for each head (Phi-3-small).

Source: arXiv 2404.14219, section 2.
"""

import mlx.core as mx

from runtime.parts.attention import Bias
from runtime.step import Step

_UNSEEN = -1e30


class BlockSparse:
    """What is not seen, as a bias on scores that all layers share. Tokens are counted from the text's first.

    size: of a block, in tokens. local: so many blocks are seen by all heads, a query's own included. kept: of
    each head, by how many blocks it is ahead of the first in keeping every `stride`-th one.
    """

    def __init__(self, kept: tuple[int, ...], *, size: int, local: int, stride: int) -> None:
        self._kept, self._size, self._local, self._stride = kept, size, local, stride
        self._parts: dict[tuple[int, int], BlockSparse] = {}

    def of_heads(self, start: int, stop: int) -> "BlockSparse":
        """That of the heads [start, stop), the same for all layers that ask."""
        if (start, stop) not in self._parts:
            sizes = {"size": self._size, "local": self._local, "stride": self._stride}
            self._parts[start, stop] = BlockSparse(self._kept[start:stop], **sizes)
        return self._parts[start, stop]

    def of_step(self, step: Step) -> Bias:
        """[B or 1, H, n, K] for n queries and K keys. Made once per step."""
        rows = 1 if len(set(step.starts)) == 1 else len(step.starts)

        def bias(places: mx.array, asking: range) -> mx.array:
            def build() -> mx.array:
                return self.between(step.indices[:rows, asking.start : asking.stop], places[0])

            return step.shared((self, places.shape[1]), asking, build)

        return bias

    def between(self, queries: mx.array, keys: mx.array) -> mx.array:
        """For places int32 of queries [B, L] and keys, which are [0, K)."""
        blocks = keys[:: self._size] // self._size
        kept = (blocks + mx.array(self._kept)[:, None] + 1) % self._stride == 0
        near = (queries // self._size)[:, None, :, None] - blocks < self._local
        of_blocks = mx.where(near | kept[:, None], 0.0, _UNSEEN)
        return mx.repeat(of_blocks, self._size, axis=-1)[..., : keys.size]
