"""What a network's modules become once their weights are in place: the same functions, cheaper to call.

Two costs of a decoded token that no architecture file should have to think of. `nn.Module` finds a child only
after looking in two wrong places (1.5 us each time), so children become plain attributes. And on a processor
MLX runs every node of the graph by itself, views and broadcasts included (3 to 8 us each), while `nn.Linear`
makes four nodes and `nn.RMSNorm` eleven: there they become modules of one and eight nodes.

Also what keeps activations in one type. MLX's norms answer in the wider of x's type and the weight's, and
weights of norms may be float32 beside 16-bit ones (`runtime.nn.norm`); a microscaled table answers in
bfloat16 whatever the others are.

Invariant: parameters keep their names and arrays. A weight replaced later is noticed; a child replaced later
is not, so whoever does that calls `make_ready` again.
"""

import mlx.core as mx
import mlx.nn as nn

from runtime.device import on_processor
from runtime.nn.module import Module


def make_ready(network: nn.Module, dtype: mx.Dtype = mx.float32) -> None:
    """Call it once all weights are in place. dtype: of activations."""
    lean = _LEAN if on_processor() else {}
    for module in network.modules():
        if isinstance(module, Module):
            continue
        # In place, so that whoever holds the module keeps it.
        module.__class__ = lean.get(type(module)) or _typed(module, dtype)
        if isinstance(module, TypedEmbedding):
            object.__setattr__(module, "_dtype", dtype)
        vars(module).update({name: x for name, x in module.items() if not isinstance(x, mx.array)})


class LeanLinear(nn.Linear):
    """x Wᵀ + b. One row [1, L, D] has nothing to flatten, and Wᵀ is seen as [1, D, E] once and for all."""

    _seen: tuple[mx.array, mx.array | None, mx.array, mx.array | None] | None = None

    def __call__(self, x: mx.array) -> mx.array:
        shape = x.shape
        if len(shape) != 3 or shape[0] != 1:
            return super().__call__(x)
        weight, bias = self["weight"], self.get("bias")
        seen = self._seen
        if seen is None or seen[0] is not weight or seen[1] is not bias:
            seen = (weight, bias, weight.T[None], None if bias is None else bias[None, None])
            mx.eval(*seen[2:])
            object.__setattr__(self, "_seen", seen)
        return x @ seen[2] if seen[3] is None else mx.addmm(seen[3], x, seen[2])


class LeanEmbedding(nn.Embedding):
    """The table, looked up without the detours of indexing; as the output head as `LeanLinear`."""

    _seen: tuple[mx.array, mx.array] | None = None

    def __call__(self, x: mx.array) -> mx.array:
        return mx.take(self["weight"], x, axis=0)

    def as_linear(self, x: mx.array) -> mx.array:
        if x.ndim != 3 or x.shape[0] != 1:
            return super().as_linear(x)
        weight, seen = self["weight"], self._seen
        if seen is None or seen[0] is not weight:
            seen = (weight, weight.T[None])
            mx.eval(seen[1])
            object.__setattr__(self, "_seen", seen)
        return x @ seen[1]


class NarrowRMSNorm(nn.RMSNorm):
    """Computed with its float32 weight; answers in x's type."""

    def __call__(self, x: mx.array) -> mx.array:
        return super().__call__(x).astype(x.dtype)


class NarrowLayerNorm(nn.LayerNorm):
    """Computed with its float32 weight; answers in x's type."""

    def __call__(self, x: mx.array) -> mx.array:
        return super().__call__(x).astype(x.dtype)


class TypedEmbedding(nn.QuantizedEmbedding):
    """A microscaled table whose rows come out in the type of the activations."""

    _dtype: mx.Dtype = mx.float32

    def __call__(self, x: mx.array) -> mx.array:
        return mx.dequantize(
            self["weight"][x],
            self["scales"][x],
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
            dtype=self._dtype,
        )


def _typed(module: nn.Module, dtype: mx.Dtype) -> type[nn.Module]:
    """The module's class, or its twin that answers in the type of activations where its own would not."""
    kind = type(module)
    if kind in _NARROW and dtype != mx.float32 and module["weight"].dtype == mx.float32:
        return _NARROW[kind]
    if isinstance(module, nn.QuantizedEmbedding) and module.mode != "affine":
        return TypedEmbedding
    return kind


class LeanRMSNorm(NarrowRMSNorm):
    """x / √(Σx² / D + eps) · w for float32, all constants of x's own rank."""

    _seen: tuple[mx.array, mx.array, mx.array, mx.array] | None = None

    def __call__(self, x: mx.array) -> mx.array:
        weight, seen = self["weight"], self._seen
        if x.dtype != mx.float32 or x.ndim < 3:
            return super().__call__(x)
        if seen is None or seen[0] is not weight:
            if weight.dtype != mx.float32:
                return super().__call__(x)
            part, eps = mx.full((1, 1, 1), 1 / weight.size), mx.full((1, 1, 1), self.eps)
            seen = (weight, part, eps, weight[None, None])
            mx.eval(*seen[1:])
            object.__setattr__(self, "_seen", seen)
        mean = x.square().sum(-1, keepdims=True) * seen[1]
        return x * mx.rsqrt(mean + seen[2]) * seen[3]


_NARROW: dict[type[nn.Module], type[nn.Module]] = {
    nn.RMSNorm: NarrowRMSNorm,
    nn.LayerNorm: NarrowLayerNorm,
}
_LEAN: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: LeanLinear,
    nn.Embedding: LeanEmbedding,
    nn.RMSNorm: LeanRMSNorm,
}
