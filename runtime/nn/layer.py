"""What the parts of a decoder layer are called with, so that the one call all models make is checked.

x is [B, L, D] throughout. A block holds a mixer and a feed-forward part and is itself a layer; any module
with the call fits.
"""

from typing import Protocol

import mlx.core as mx

from runtime.cache.protocol import StepCache
from runtime.step import Step


class Layer(Protocol):
    """One layer of a trunk: the residual stream, the step, and the layer's own memory."""

    def __call__(self, x: mx.array, step: Step, cache: StepCache, /) -> mx.array: ...


class Mixer(Protocol):
    """What mixes tokens: attention, or a recurrence."""

    def __call__(self, x: mx.array, step: Step, cache: StepCache, /) -> mx.array: ...


class FeedForward(Protocol):
    """What each token goes through alone: an MLP, or a mixture of experts."""

    def __call__(self, x: mx.array, step: Step, /) -> mx.array: ...
