"""What is done to the residual stream itself, to what is appended to it, and where there are several."""

from typing import Any, NamedTuple

import mlx.core as mx

from runtime.parts.attention import AttentionParts
from runtime.parts.feed_forward import FeedForwardParts
from runtime.parts.recurrent import RecurrentParts


class PerLayerGate(NamedTuple):
    """after(close(act(open(x)) * own)), own being this sublayer's part of what a step brings (Gemma 3n)."""

    open: Any
    activation: str
    """Its name in `runtime.nn.activation.NAMES`."""
    place: int
    """Which of the N sublayers this one is, for which a step brings [B, L, N, P], P numbers each."""
    close: Any
    after: Any


class Multiply(NamedTuple):
    """The stream is multiplied by this number; nothing is added."""

    by: mx.array
    """[1]"""
    width: int
    """Of the stream."""


class LaurelParts(NamedTuple):
    """n + after(close(open(n))), n being norm(x) (LAuReL, arXiv 2411.07501)."""

    norm: Any
    open: Any
    close: Any
    after: Any
    beside: bool = False


class AppendInput(NamedTuple):
    """Appends c, which a step brings for all layers, to the stream: [x | c]."""

    width: int
    """Of x, and of c."""


class UpdateAppended(NamedTuple):
    """The appended c becomes a sublayer's answer to it, or to [x | c] if the sublayer reads both. Nothing is
    added.
    """

    by: AttentionParts | FeedForwardParts


class ReadAppended(NamedTuple):
    """A sublayer reads x + close(c), c being what is appended to the stream, and adds to x. c is dropped."""

    close: Any
    by: RecurrentParts


class AltUpPredict(NamedTuple):
    """AltUp (arXiv 2301.13310) keeps several residual streams side by side, and layers compute on one of
    them, x. Here all of them are predicted from each other, by tanh(norm(x) router) shares. A copy of the new
    x is appended, to which `AltUpActive` adds.
    """

    norm: Any
    router: Any
    """With one output for each stream."""
    shares: Any
    """Of each stream in each (`Operations.mix_streams`)."""
    streams: int
    place: int
    """Which of the streams x is."""
    norm_scale: float = 1.0


class AltUpCorrect(NamedTuple):
    """All streams are corrected by what became of the copy, with shares made of it as in `AltUpPredict`. The
    copy is then one of the corrected x, times `scale`.
    """

    norm: Any
    router: Any
    shares: Any
    """Of each stream (`Operations.correct_streams`)."""
    streams: int
    place: int
    scale: mx.array | None = None
    """[D]"""
    norm_scale: float = 1.0


class AltUpActive(NamedTuple):
    """A sublayer that computes on the copy."""

    by: AttentionParts | LaurelParts | Multiply | FeedForwardParts
    streams: int


class AltUpJoin(NamedTuple):
    """A sublayer's answer to the copy is added to all streams but the first, and the copy is dropped."""

    by: PerLayerGate
    streams: int
