"""Gates beside latent attention: on what heads see, made with its queries, and of low rank on norms."""

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache
from runtime.nn.activation import sigmoid, silu
from runtime.nn.attention.attend import merge_heads, split_heads
from runtime.nn.attention.mla import LatentAttention, LatentShape
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.step import Step


class GatedLatentAttention(LatentAttention):
    """A sigmoid of a number for each head is multiplied to what the head sees (Ling 3, Dots 3 Note)."""

    def __init__(
        self, shape: LatentShape, rope: Rope | None, index_rope: Rope | None = None, chooser: int = 0
    ) -> None:
        super().__init__(shape, rope, index_rope, chooser)
        self.g_proj = nn.Linear(shape.hidden, shape.heads, bias=False)

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        out = super().seen(x, step, cache)
        gate = mx.sigmoid(linear(self.g_proj, x, step).astype(mx.float32)).astype(out.dtype)
        return (out.reshape(*gate.shape, -1) * gate[..., None]).reshape(out.shape)


class GatedQueries(LatentAttention):
    """Queries come with gates of what heads see, of the smaller vector as it is and normed."""

    def __init__(
        self, shape: LatentShape, rope: Rope, index_rope: Rope | None = None, chooser: int = 0
    ) -> None:
        super().__init__(shape, rope, index_rope, chooser)
        assert shape.query_rank is not None
        del self.q_b_proj
        whole = shape.content + shape.position + shape.value
        self.q_gate_proj = nn.Linear(2 * shape.query_rank, shape.heads * whole, bias=False)

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        shape, plain = self._shape, linear(self.q_a_proj, x, step)
        low = self.q_a_layernorm(plain)
        made = linear(self.q_gate_proj, mx.concatenate([low, plain], axis=-1), step)
        cuts = [shape.content, shape.content + shape.position]
        content, position, gate = mx.split(split_heads(made, shape.heads), cuts, axis=-1)
        keys, mask = self._chosen(x, low, self._key(x, step), step, cache)
        out = self._attend(content, self._turned(position, step), keys, mask, step)
        return merge_heads((out * sigmoid(gate.astype(mx.float32))).astype(out.dtype))


class NormGate(Module):
    def __init__(self, hidden: int, rank: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(hidden, rank, bias=False)
        self.fc2 = nn.Linear(rank, hidden, bias=False)


class GatedNorm(Module):
    """norm(x) · sigmoid(fc2(silu(fc1(norm(x)))))"""

    def __init__(self, norm: Normalize, hidden: int, rank: int) -> None:
        super().__init__()
        self.norm: Normalize = norm
        self.mlp = NormGate(hidden, rank)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        normed = self.norm(x)
        gate = linear(self.mlp.fc2, silu(linear(self.mlp.fc1, normed, step)), step)
        return (normed * sigmoid(gate.astype(mx.float32))).astype(normed.dtype)
