"""How attention, MLP and norms are wired around the residual stream. x is [B, L, D] throughout.

Names are those of most checkpoints. A family with other names or a wiring of its own has its own block.
"""

from typing import Any

import mlx.core as mx

from runtime.cache.protocol import StepCache
from runtime.nn.layer import FeedForward, Mixer
from runtime.nn.module import Module
from runtime.nn.norm import Norm, Normalize
from runtime.nn.residual.sublayer import added, sublayer_parts_of
from runtime.parts.attention import AttentionParts, LatentAttentionParts
from runtime.parts.feed_forward import FeedForwardParts, MixtureParts
from runtime.parts.recurrent import RecurrentParts
from runtime.step import Step

NormedSublayer = tuple[Any, Normalize | None, Normalize | None]
"""A sublayer, the norm before it, and the one behind."""


class Block(Module):
    """Sublayers whose answers are added to what enters: a mixer, a feed-forward part, or both, one behind the
    other unless they are `parallel`.
    """

    share: float = 1.0
    """How much of a sublayer's answer is added, in a block that has no norms behind them."""

    parallel: bool = False
    """All read what enters the block."""

    def sublayers(self) -> tuple[NormedSublayer, ...]:
        """All, in order."""
        raise NotImplementedError

    def sublayer_parts(
        self,
    ) -> (
        tuple[AttentionParts | LatentAttentionParts | RecurrentParts | FeedForwardParts | MixtureParts, ...]
        | None
    ):
        """See `sublayer.sublayer_parts_of`."""
        return sublayer_parts_of(self)


class NormedBlock(Block):
    """Each sublayer reads a normed stream and adds to the raw one. Classes of it have a mixer, by the name
    that checkpoints have for it.
    """

    def __init__(self, mlp: FeedForward, norm: Norm) -> None:
        super().__init__()
        self.mlp: FeedForward = mlp
        self.input_layernorm: Normalize = norm()
        self.post_attention_layernorm: Normalize = norm()

    @property
    def mixer(self) -> Mixer:
        raise NotImplementedError

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self.mixer, step, cache, norm=self.input_layernorm)
        return added(x, self.mlp, step, norm=self.post_attention_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (self.mixer, self.input_layernorm, None), (self.mlp, self.post_attention_layernorm, None)


class PreNorm(NormedBlock):
    """Of attention (Llama)."""

    def __init__(self, attention: Mixer, mlp: FeedForward, norm: Norm) -> None:
        super().__init__(mlp, norm)
        self.self_attn: Mixer = attention

    @property
    def mixer(self) -> Mixer:
        return self.self_attn


class PreNormRecurrent(NormedBlock):
    """Of a recurrence (OLMo Hybrid)."""

    def __init__(self, mixer: Mixer, mlp: FeedForward, norm: Norm) -> None:
        super().__init__(mlp, norm)
        self.linear_attn: Mixer = mixer

    @property
    def mixer(self) -> Mixer:
        return self.linear_attn


class Scaled(PreNorm):
    """What each sublayer adds is multiplied by a number (Granite)."""

    def __init__(self, attention: Mixer, mlp: FeedForward, norm: Norm, share: float) -> None:
        super().__init__(attention, mlp, norm)
        self.share = share

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), step, cache) * self.share
        return x + self.mlp(self.post_attention_layernorm(x), step) * self.share

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        """As before: `share` says what is other (`sublayer.defined_together`)."""
        return super().sublayers()


class SideBySide(PreNorm):
    """Both read what enters the block, each behind a norm of its own (Falcon 40B)."""

    parallel: bool = True

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        heard = added(x, self.self_attn, step, cache, norm=self.input_layernorm)
        return heard + self.mlp(self.post_attention_layernorm(x), step)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        """As before: `parallel` says what is other (`sublayer.defined_together`)."""
        return super().sublayers()


class PostNorm(Block):
    """Each sublayer reads the raw stream; what it adds is normed (OLMo 2)."""

    def __init__(self, attention: Mixer, mlp: FeedForward, norm: Norm) -> None:
        super().__init__()
        self.self_attn: Mixer = attention
        self.mlp: FeedForward = mlp
        self.post_attention_layernorm: Normalize = norm()
        self.post_feedforward_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self.self_attn, step, cache, after=self.post_attention_layernorm)
        return added(x, self.mlp, step, after=self.post_feedforward_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (
            (self.self_attn, None, self.post_attention_layernorm),
            (self.mlp, None, self.post_feedforward_layernorm),
        )


class Sandwich(Block):
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
        before, after = self.input_layernorm, self.post_attention_layernorm
        x = added(x, self.self_attn, step, cache, norm=before, after=after)
        before, after = self.pre_feedforward_layernorm, self.post_feedforward_layernorm
        return added(x, self.mlp, step, norm=before, after=after)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (
            (self.self_attn, self.input_layernorm, self.post_attention_layernorm),
            (self.mlp, self.pre_feedforward_layernorm, self.post_feedforward_layernorm),
        )


class Parallel(Block):
    """Both sublayers read the same normed stream (Cohere)."""

    parallel: bool = True

    def __init__(self, attention: Mixer, mlp: FeedForward, norm: Norm) -> None:
        super().__init__()
        self.self_attn: Mixer = attention
        self.mlp: FeedForward = mlp
        self.input_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        normed = self.input_layernorm(x)
        return x + self.self_attn(normed, step, cache) + self.mlp(normed, step)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (self.self_attn, self.input_layernorm, None), (self.mlp, self.input_layernorm, None)
