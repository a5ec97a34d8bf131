"""How attention, MLP and norms are wired around the residual stream. x is [B, L, D] throughout.

Names are those of most checkpoints. A family with other names or a wiring of its own has its own block.
"""

import mlx.core as mx

from runtime.cache.protocol import StepCache
from runtime.nn.layer import FeedForward, Mixer
from runtime.nn.module import Module
from runtime.nn.norm import Norm, Normalize, added_normed
from runtime.step import Step


class PreNorm(Module):
    """Each sublayer reads a normed stream and adds to the raw one (Llama)."""

    def __init__(self, attention: Mixer, mlp: FeedForward, norm: Norm) -> None:
        super().__init__()
        self.self_attn: Mixer = attention
        self.mlp: FeedForward = mlp
        self.input_layernorm: Normalize = norm()
        self.post_attention_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), step, cache)
        return x + self.mlp(self.post_attention_layernorm(x), step)


class PostNorm(Module):
    """Each sublayer reads the raw stream; what it adds is normed (OLMo 2)."""

    def __init__(self, attention: Mixer, mlp: FeedForward, norm: Norm) -> None:
        super().__init__()
        self.self_attn: Mixer = attention
        self.mlp: FeedForward = mlp
        self.post_attention_layernorm: Normalize = norm()
        self.post_feedforward_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added_normed(x, self.post_attention_layernorm, self.self_attn(x, step, cache))
        return added_normed(x, self.post_feedforward_layernorm, self.mlp(x, step))


class Sandwich(Module):
    """Normed before and after each sublayer (Gemma 2)."""

    def __init__(self, attention: Mixer, mlp: FeedForward, norm: Norm) -> None:
        super().__init__()
        self.self_attn: Mixer = attention
        self.mlp: FeedForward = mlp
        self.input_layernorm: Normalize = norm()
        self.post_attention_layernorm: Normalize = norm()
        self.pre_feedforward_layernorm: Normalize = norm()
        self.post_feedforward_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        mixed = self.self_attn(self.input_layernorm(x), step, cache)
        x = added_normed(x, self.post_attention_layernorm, mixed)
        thought = self.mlp(self.pre_feedforward_layernorm(x), step)
        return added_normed(x, self.post_feedforward_layernorm, thought)


class Parallel(Module):
    """Both sublayers read the same normed stream (Cohere)."""

    def __init__(self, attention: Mixer, mlp: FeedForward, norm: Norm) -> None:
        super().__init__()
        self.self_attn: Mixer = attention
        self.mlp: FeedForward = mlp
        self.input_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        normed = self.input_layernorm(x)
        return x + self.self_attn(normed, step, cache) + self.mlp(normed, step)
