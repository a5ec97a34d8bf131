"""Attention as operations compute it."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import mlx.core as mx

from runtime.parts.heads import Heads
from runtime.parts.rotary import Rotary
from runtime.step import Step

Bias = Callable[[mx.array, range], mx.array]
"""bias(places, asking): what is added to scores before they are masked, [B or 1, H, n or 1, K], for the K
keys at these places, int32 [B or 1, K], and these n of a step's queries. For layers that see the whole past
the places are [0, K). It is made of them, so that it waits for them, or small.
"""


class Scoring(NamedTuple):
    """How queries score the keys of a layer's memory. A tuple: one is made for every layer and step."""

    size: int
    """Of queries and keys, D."""
    scale: float
    """Of scores; softcap and sinks as in `runtime.nn.operations.signatures.Attend`."""
    rope: Rotary | None = None
    """Turns queries, and keys that are written, at the step's positions first; None: they come turned, or
    have no positions."""
    softcap: float | None = None
    sinks: mx.array | None = None
    bias: Bias | None = None
    """Where keys are written."""
    value_size: int | None = None
    """Values are so many first numbers of the keys; None: they are remembered beside these."""


class OutputGate(NamedTuple):
    """A gate of attention's output: act(by(norm(x)))."""

    by: Any
    """A matrix with one output for each head, or for each number of the heads' outputs."""
    activation: str
    """Its name in `runtime.nn.activation.NAMES`."""


class AttentionParts(NamedTuple):
    """after(close(attention)), whose queries, keys and values the opening modules make of norm(x)."""

    heads: Heads
    norm: Any
    opening: Sequence[Any]
    """A module each for queries, keys and values, or one for all three; two where keys, before their norm,
    are the values, too.
    """
    head_norms: tuple[Any, Any] | None
    """Of queries and of keys: of each head by itself, or of all together (`Heads.normed_together`)."""
    close: Any
    after: Any
    sinks: mx.array | None = None
    """[H], as `runtime.nn.operations.signatures.Attend` has them."""
    value_norm: Any = None
    """Of each head of values: a norm without weights, or None."""
    factors: Callable[[Step], mx.array | None] | None = None
    """Gives [B or 1, L], by which queries are multiplied after their norm and before they are rotated; or
    None for no such factors.
    """
    reads: bool = False
    """Keys and values are those of another layer, which owns the memory: the opening module makes queries
    alone, and only they have a norm.
    """
    share: float = 1.0
    beside: bool = False
    gate: OutputGate | None = None
    """Multiplies attention's output; None: no gate, or one that comes with the queries (`Heads.gated`)."""
    value_scale: float = 1.0
    """Multiplies values; other than 1 only where they have a matrix of their own."""
    key_scale: float = 1.0
    """Multiplies keys before their norm; other than 1 only where they have a matrix of their own."""
    norm_scale: float = 1.0
    sums: Any = None
    low: Sequence[tuple[Any, Any] | None] = ()


class LatentAttentionParts(NamedTuple):
    """after(close(attention)) of latent attention (`runtime.nn.attention.mla`): all heads attend to one
    vector per
    token, a latent and the part of a key that carries the position.
    """

    heads: Heads
    """size: of that vector. Only the part that carries the position is rotated."""
    norm: Any
    opening: Sequence[Any]
    """The matrix of queries, or of the low-rank vector that `widen` makes queries of; and that of keys, the
    latent first.
    """
    low_norm: Any
    """Of the low-rank vector; None where there is none."""
    widen: Any
    """From the low-rank vector to queries; None: the first matrix makes queries."""
    key_norm: Any
    """Of latents."""
    to_latents: Any
    """A matrix for each head (`by_heads` of the table), used from out to in: the part of a query without a
    position becomes a query of latents.
    """
    to_values: Any
    """A matrix for each head, from what it saw of latents to values."""
    close: Any
    after: Any
    factors: Callable[[Step], mx.array | None] | None = None
    """As in `AttentionParts`."""
    share: float = 1.0
    beside: bool = False
    reads: Literal[False] = False
    """Keys are always its own layer's."""
    sums: Any = None
