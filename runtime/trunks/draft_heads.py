"""Draft heads stored as layers after the last one (DeepSeek, GLM): each predicts the token one further ahead.

`model.layers.{N + i}.*`, N the number of layers, holds a decoder layer and what feeds it: two norms
(`enorm` of the embedding, `hnorm` of the hidden state before it), `eh_proj`, and the norm before the output
head. Embedding and output head are the target's; the copies in published files are left out. How many there
are is the config's `num_nextn_predict_layers`. Source: DeepSeek-V3 (arXiv 2412.19437), section 2.2.
"""

import re
from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import Caches, StepCache, by_layout
from runtime.nn.layer import Layer
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.step import Step
from runtime.tensors.experts import Weights

_LAYER = re.compile(r"model\.layers\.(\d{1,6})\.(.+)")
_OWN = ("enorm.", "hnorm.", "eh_proj.")
_COPIES = ("embed_tokens.", "shared_head.head.")


class Predictor(Module):
    """From a token's embedding and the hidden state before it to the one that predicts the token after."""

    def __init__(self, hidden: int, eps: float, block: Layer) -> None:
        super().__init__()
        self.enorm = RMSNorm(hidden, eps=eps)
        self.hnorm = RMSNorm(hidden, eps=eps)
        self.eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.block: Layer = block
        self.norm = RMSNorm(hidden, eps=eps)

    def __call__(self, step: Step, cache: StepCache, hidden: mx.array) -> mx.array:
        joined = mx.concatenate([self.enorm(step.vectors), self.hnorm(hidden)], axis=-1)
        return self.norm(self.block(linear(self.eh_proj, joined, step), step, cache))


class DraftHead(Module):
    def __init__(self, predictors: Sequence[Predictor]) -> None:
        super().__init__()
        self.mtp = list(predictors)

    def __call__(self, step: Step, caches: Caches, hidden: mx.array, *, depth: int = 0) -> mx.array:
        """step: brings the tokens at positions p + 1 as the target's table has them; hidden: the normed
        states at p; all [B, L, D].

        hidden is the target's for depth 0, and what depth - 1 returned for the others.
        """
        return self.mtp[depth](step, by_layout(caches)[depth], hidden)


def without_head(weights: Weights, layers: int, heads: int) -> Weights:
    """The target's own tensors of a file with `layers` layers and `heads` draft heads behind them."""
    return {name: array for name, array in weights.items() if _place(name, layers, heads) is None}


def head_only(weights: Weights, layers: int, heads: int) -> Weights:
    """The draft heads' tensors, named as in DraftHead; {} when the file has none."""
    kept: Weights = {}
    for name, array in weights.items():
        found = _place(name, layers, heads)
        if found is not None and not found[1].startswith(_COPIES):
            kept[f"mtp.{found[0]}.{_inside(found[1])}"] = array
    return kept


def _place(name: str, layers: int, heads: int) -> tuple[int, str] | None:
    """(which draft head, the rest of the name) for a tensor of one."""
    found = _LAYER.fullmatch(name)
    if found is None or not layers <= int(found[1]) < layers + heads:
        return None
    return int(found[1]) - layers, found[2]


def _inside(rest: str) -> str:
    if rest.startswith("shared_head.norm."):
        return rest.removeprefix("shared_head.")
    return rest if rest.startswith(_OWN) else f"block.{rest}"
