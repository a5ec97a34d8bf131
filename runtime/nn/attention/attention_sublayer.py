"""What sublayers that attend have in common: what heads see, closed by a last projection and added to what
was read, as one operation where the class says what it consists of.
"""

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.residual.sublayer import closing
from runtime.parts.attention import AttentionParts
from runtime.step import Step


class AttentionSublayer(Module):
    """[B, L, D] -> [B, L, D]. B rows, L tokens, D hidden size, H heads, V the size of a head's value."""

    o_proj: nn.Linear

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        return linear(self.o_proj, self.seen(x, step, cache), step)

    def added(
        self,
        x: mx.array,
        norm: Normalize | None,
        after: Normalize | None,
        step: Step,
        cache: AttentionCache,
    ) -> mx.array:
        """See `sublayer.added`."""
        seen = self.seen(x if norm is None else norm(x), step, cache)
        return closing(self.o_proj, seen, x, after, step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> AttentionParts | None:
        """What it consists of; None where it is not as operations have it. See `sublayer.added`."""
        raise NotImplementedError

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        """What the heads read, side by side, [B, L, H * V]: all but the last projection."""
        raise NotImplementedError
