"""What a column of the table of operations has: each operation, what it takes and what it gives.

The columns themselves, and which of them computes, are in `runtime.nn.operations.ops`.

Dimensions: B rows, L new tokens, K visible ones, D hidden size, H query heads, G key-value heads, E experts,
k of them asked per token, C channels, N numbers of a state for each channel or head, P channels of a head, R
rows to draw for.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache, Mask, StepCache
from runtime.nn.operations.recurrent import Counts, DeltaSizes, Folded, SsdSizes
from runtime.parts.attention import AttentionParts, Scoring
from runtime.parts.decoder import DecoderParts
from runtime.parts.draws import DrawParams, GuessParams, NextTokens
from runtime.parts.feed_forward import ExpertParts, FeedForwardParts, Routing
from runtime.parts.rotary import Rotary
from runtime.records import dataclass
from runtime.step import Adapters, Step

Name = Literal["plain", "cpu", "blas", "gpu"]
NAMES: tuple[Name, ...] = ("plain", "cpu", "blas", "gpu")

Unary = Callable[[mx.array], mx.array]
Answer = Callable[[mx.array, mx.array, bool], mx.array]
"""answer(rows [..., n, D], expert of each group of n rows [...], ascending) -> [..., n, D]"""


class Attend(Protocol):
    """softmax(queries · keysᵀ · scale + mask) · values.

    queries [B, H, L, D], keys [B, G, K, D], values [B, G, K, Dv]; mask: "causal", bool (what is seen) or
    added to scores, [B or 1, H or 1, L, K]. step: whose mask it is; None for masks of a layer's own. softcap:
    scores become cap * tanh(score / cap) before masking. sinks [H]: one more logit per head, which takes
    probability and gives nothing.

    Returns [B, H, L, Dv]; of one token the same numbers may come as [B, G, H / G, Dv].
    """

    def __call__(
        self,
        step: Step | None,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        mask: Mask,
        *,
        scale: float,
        softcap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array: ...


class Remember(Protocol):
    """Write a step's keys and values to a layer's memory, then attend with its queries over all they see.

    Each [B, heads, L, D] or [B, L, heads * D]; values None: they are numbers of the keys. Returns
    [B, L, H * Dv].
    """

    def __call__(
        self,
        step: Step,
        cache: AttentionCache,
        queries: mx.array,
        keys: mx.array,
        values: mx.array | None,
        by: Scoring,
    ) -> mx.array: ...


class Recall(Protocol):
    """The same over what is in memory already."""

    def __call__(self, step: Step, cache: AttentionCache, queries: mx.array, by: Scoring) -> mx.array: ...


class Layers(Protocol):
    def __call__(
        self,
        layers: Sequence[Any],
        x: mx.array,
        step: Step,
        caches: Sequence[StepCache | tuple[StepCache, ...]],
        given: mx.array | None = None,
        /,
    ) -> mx.array:
        """What the last of these layers gives, each called as layer(x, step, cache) with what the one before
        it gave, and with all of its memories where it has several; or as layer(x, step, cache, own), own
        [B, L, P] being its part of what is given, [B, L, layers, P]; or [B, L, 1, P], the same for all. A
        column may look into layers that say what they consist of (`sublayer.sublayer_parts_of`).
        """
        ...


@dataclass(frozen=True, slots=True)
class Operations:
    """One column. A module here is one with `weight`, maybe `bias`, and `scales` where it is packed."""

    name: Name

    linear: Callable[[nn.Module, mx.array], mx.array]
    """[..., in] -> [..., out]: x Wᵀ + b, also of an embedding table as the output head."""

    embed: Callable[[nn.Module, mx.array], mx.array]
    """ids [...] -> the rows of a table [..., D]."""

    matmul: Callable[..., mx.array]
    """(x [..., rows, k], w, transposed=False): x w, of arrays w [..., k, n] that are no module's; transposed:
    x wᵀ, w [..., n, k]. Leading dimensions are broadcast.
    """

    gather: Callable[[nn.Module, mx.array, mx.array, bool], mx.array]
    """x [..., n, in], chosen [...] -> [..., n, out] by a stack of matrices [E, out, in]. The flag: `chosen`
    is flat and ascending.
    """

    by_heads: Callable[[nn.Module, mx.array, bool], mx.array]
    """x [B, H, L, in] -> [B, H, L, out], each head by its own matrix of [H, out, in]. The flag: the other
    way, from out to in. All heads of x may be one where it is not set.
    """

    ask: Callable[[mx.array, mx.array, Answer, int | None], mx.array]
    """x [..., D], chosen [..., k] -> answer(token, expert) for each token's experts [..., k, D], in whatever
    order is fast. The number: E, or None where a product of many rows costs as much as many of one.
    """

    rms_norm: Callable[[nn.Module, mx.array], mx.array]
    """x / √(Σx² / D + eps) · weight along the last axis, in x's type whatever the weight's is."""

    add_rms_norm: Callable[[nn.Module, mx.array, mx.array], mx.array]
    """to + rms_norm(module, x), of (module, x, to)."""

    rms: Callable[[mx.array, float], mx.array]
    """rms_norm without a weight."""

    layer_norm: Callable[[nn.Module, mx.array], mx.array]
    """(x - mean) / √(variance + eps) · weight + bias, with or without either of them, in x's type."""

    standardize: Callable[[mx.array, float], mx.array]
    """layer_norm without both."""

    rotate: Callable[[Rotary, mx.array, Step], mx.array]
    """Heads [B, H, L, D], turned at the positions of a step."""

    attend: Attend
    remember: Remember
    recall: Recall

    softmax: Unary
    """Along the last axis, summed in float32."""

    likeliest: Unary
    """int32 [...]: the first place of the greatest along the last axis of [..., V]; any where one is NaN."""

    silu: Unary
    gelu: Unary
    gelu_tanh: Unary
    relu2: Unary
    softplus: Unary

    sigmoid: Unary

    gated: Callable[[str, mx.array, mx.array], mx.array]
    """act(gate) · up, act by its name in `runtime.nn.activation.NAMES`."""

    clipped_gate: Callable[[mx.array, mx.array, float, float], mx.array]
    """(up + 1) · gate · sigmoid(slope · gate), for gate at most `limit` and up within it on both sides: of
    (gate, up, limit, slope).
    """

    cut: Callable[[mx.array, float], mx.array]
    """max(x - (mean + times · deviation), 0) along the last axis, of (x, times)."""

    bend: Callable[[Any, mx.array], mx.array]
    """xIELU (arXiv 2411.13010), of (module, x): a module with `alpha_p` and `alpha_n` [1], `beta` and `eps`,
    eps at most 0.
    """

    mix_streams: Callable[[mx.array, mx.array], mx.array]
    """Of (streams, by): S streams side by side, [..., S · D], each plus what a row of `by`, [..., S · S],
    makes of all of them.
    """

    correct_streams: Callable[[mx.array, mx.array, mx.array, int], mx.array]
    """Of (streams, answer, by, place): to each stream comes 1 + by, [..., S], times how far the answer,
    [..., D], is from the stream at that place.
    """

    join_streams: Callable[[mx.array, mx.array], mx.array]
    """Of (streams, answer): the answer [..., D] comes to all but the first."""

    softcap: Callable[[mx.array, float], mx.array]
    """cap · tanh(x / cap)."""

    conv: Callable[[Any, mx.array, mx.array, Counts, bool], Folded]
    """x [B, L, C] and the k-1 inputs before them [B, k-1, C] -> Σ filters · inputs + bias of each token, and
    the inputs that the next one needs. The flag: through silu. A module with `weight` [C, k, 1], maybe
    `bias`.

    This and the next ones are folds over tokens: counts int32 [B] says how many tokens of each row are real
    (None: all), and they return the state after the last of them (`runtime.nn.operations.recurrent`).
    """

    gated_conv: Callable[[Any, mx.array, mx.array, Counts], Folded]
    """(before | after | x) [B, L, 3 C] -> after · conv(before · x). LFM2's."""

    delta: Callable[[Any, DeltaSizes, mx.array, mx.array, mx.array, mx.array, Counts], Folded]
    """The gated delta rule of unit queries and keys (`gated_delta`, `channel_delta`): (queries | keys |
    values) [B, L, C], decays [B, L, H] or [B, L, H Dk] and strengths [B, L, H] before their activations,
    state float32 [B, H, Dk, Dv] -> [B, L, H Dv]. A module with `A_log` [H] and `dt_bias`.
    """

    selective_scan: Callable[[Any, mx.array, mx.array, mx.array, mx.array, mx.array, Counts], Folded]
    """Mamba's (`selective_scan`): x and steps before their softplus [B, L, C], inputs and outputs
    [B, L, N], state float32 [B, N, C] -> [B, L, C]. A module with `A_log` [C, N] and `D` [C].
    """

    ssd: Callable[[Any, SsdSizes, mx.array, mx.array, mx.array, Counts], Folded]
    """Mamba-2's (`ssd`): (x | inputs | outputs) [B, L, C], steps before their softplus [B, L, H], state
    float32 [B, H, N, P] -> [B, L, H P]. A module with `A_log`, `dt_bias` and `D`, [H] each.
    """

    rg_lru: Callable[[Any, mx.array, mx.array, mx.array, Counts], Folded]
    """x [B, L, C], positions int32 [B, L], state float32 [B, C] -> [B, L, C]. A module as `rg_lru.Gates`."""

    gated_norm: Callable[[Any, mx.array, mx.array], mx.array]
    """x, gate [..., C] -> [..., C]. A module as `gated_norm.GatedRMSNorm`."""

    projections: Callable[[Sequence[nn.Module], mx.array], Sequence[mx.array]]
    """Several products of one x, each as `linear` has it."""

    closing: Callable[[nn.Module, mx.array, mx.array, nn.Module | None], mx.array]
    """(module, x, to, after) -> to + after(linear(module, x)); after: an RMS norm, or None."""

    feed_forward: Callable[[mx.array, FeedForwardParts], mx.array]
    """(x, by) -> x + what `by` says of it."""

    attention: Callable[[mx.array, AttentionParts, Step, AttentionCache], mx.array]
    """(x, by, step, cache) -> x + what `by` says of it; heads see as in `remember`."""

    layers: Layers

    experts: Callable[[ExpertParts, mx.array, mx.array, mx.array, int | None], mx.array]
    """(by, x, chosen, weights, together) -> what the experts `chosen` [..., k] answer to x [..., D], weighed
    by weights [..., k] and summed [..., D]. together: as in `ask`.
    """

    route: Callable[[Routing, mx.array], tuple[mx.array, mx.array] | None]
    """(by, scores) -> experts and their weights, as `runtime.nn.feed_forward.router.choose` says it step by
    step; None: not as one operation.
    """

    penalise: Callable[..., mx.array | None]
    """(logits [R, T, V], by, pasts, inputs [R, T]): logits less what penalties take off; `by` is a
    `runtime.parts.draws.PenaltyParams`, pasts are each row's ids before the step. None: step by step
    (`runtime.sampling.penalties`).
    """

    draw: Callable[[mx.array, DrawParams, Sequence[int]], mx.array | None]
    """(logits [R, T, V], by, positions of each row's first column) -> tokens int32 [R, T], as
    `runtime.sampling.group` draws them step by step; None: not as one operation.
    """

    guess: Callable[[DecoderParts, Step, int | None, Sequence[StepCache], GuessParams], NextTokens | None]
    """(network, step, count, caches, by) -> tokens int32 [B, count] that follow those of the step, each
    drawn behind the one before; the step's and all of them but the last are to be committed. Of count None:
    int32 [B, T], one behind each of the step's own, and none of them is read; only there `by` may look. None,
    with nothing done: not as one operation.
    """

    add_pairs: Callable[[Adapters, Any, nn.Module, mx.array, mx.array], mx.array | None]
    """(adapters, stack, module, x, y) -> y = linear(module, x) with what the adapters of a step's rows add to
    it, stack being all that adapters add behind the module; None: not as one operation.
    """

    pick: Callable[..., mx.array]
    """(x [..., L, in], matrices [n, in, out], at [...], own=None, same=None) -> [..., L, out], each by the
    matrix that it is given. own: x's own places, counted, where somebody has them; same: the place of the one
    that all are given, where it is one.
    """

    settled: Unary
    """Indices as they are: what was chosen by scores has no gradient, and MLX refuses to look for one. The
    plain column says so to MLX, since it is the one that is differentiated; the others say nothing.
    """

    steady: bool = False
    """A row's numbers must not depend on how many share its step: no formula is chosen by width."""
