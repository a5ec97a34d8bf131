"""What sublayers consist of: the modules and numbers by which the table's operations compute them, as one
operation or part by part. A network describes its own sublayers (`runtime.nn.sublayer`). Modules are those of
`runtime.nn.operations.Operations`.

Fields that several descriptions share; x is the residual stream:

norm: an RMS or a layer norm of x, or None for none.
norm_scale: what the norm gives is multiplied by this number.
after: an RMS norm of the answer, or None.
share: the answer is multiplied by it before it is added to x; 1 where there is a norm after it.
beside: the sublayer reads what the one before it read, and is added to what that one gave.
sums: the kernels' sums over ranks that have a part of the sublayer each (`Ring.sums` of
    `runtime.ranks.ring`), taken of the answer before anything else is done with it.
low: for each opening module the two matrices of a product of low rank that is added to its own, or None.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import mlx.core as mx

from runtime.cache.protocol import ScanFunction
from runtime.cpu.turn import Rotary
from runtime.records import dataclass
from runtime.step import Step

if TYPE_CHECKING:
    from runtime.nn.heads import Heads


Bias = Callable[[mx.array, range], mx.array]
"""bias(places, asking): what is added to scores before they are masked, [B or 1, H, n or 1, K], for the keys
at these places, int32 [B or 1, K], and these n of a step's queries. For layers that see the whole past the
places are [0, K). It is made of them, so that it waits for them, or small."""


class Scoring(NamedTuple):
    """How queries score the keys of a layer's memory. A tuple: one is made for every layer and step."""

    size: int
    """Of queries and keys, D."""
    scale: float
    """Of scores; softcap and sinks as in `runtime.nn.operations.Attend`."""
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

    heads: "Heads"
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
    """[H], as `runtime.nn.operations.Attend` has them."""
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
    """after(close(attention)) of latent attention (`runtime.nn.mla`): all heads attend to one vector per
    token, a latent and the part of a key that carries the position.
    """

    heads: "Heads"
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


class RecurrentParts(NamedTuple):
    """after(close(gated(a recurrence over tokens, of norm(x))))."""

    norm: Any
    opening: Sequence[Any]
    """What makes the recurrence's inputs, the gate of its output, and the gates of its rule (decays and
    strengths, or step sizes): a module each, or one for all, the output's gate first (selective: the inputs
    first).
    """
    conv: Any
    """The convolution that inputs pass, and silu after it (rg_lru: without silu): see
    `runtime.nn.operations.Operations.conv`.
    """
    kind: Literal["delta", "ssd", "selective", "rg_lru", "conv"]
    """The rule: the operation of that name (selective: `selective_scan`). conv: no rule, but a gated
    convolution (`gated_conv`) of what one module gives.
    """
    rule: Any
    """The module with the rule's parameters."""
    sizes: Any
    """Those of delta and ssd; selective: what makes its gates, a `SelectiveParts`."""
    gated_norm: Any
    """See `runtime.nn.operations.Operations.gated_norm`; None: the output times `activation` of its gate."""
    close: Any
    after: Any
    scan: ScanFunction
    """The convolution and the rule, for a memory with the states of both. selective, rg_lru: takes the step
    first.
    """
    scanned: Callable[[Sequence[mx.array]], Sequence[mx.array]]
    """From what the opening modules give, times `scales`, to what `scan` takes."""
    scales: mx.array | None = None
    """Where one module opens: a factor for each of its outputs."""
    norm_scale: float = 1.0
    share: float = 1.0
    beside: bool = False
    sums: Any = None
    activation: str = "silu"
    """Its name in `runtime.nn.activation.NAMES`."""
    widen: Sequence[Any] = ()
    """For each of several opening modules, a second module that what it gives passes; or None."""

    @property
    def by_step(self) -> bool:
        """Does `scan` take the step first?"""
        return self.kind in ("selective", "rg_lru")

    @property
    def by_position(self) -> bool:
        """Does the rule depend on the positions of tokens?"""
        return self.kind == "rg_lru"


class SelectiveParts(NamedTuple):
    """How step sizes, and inputs and outputs of the state, are made of what passed the convolution
    (Mamba).
    """

    open: Any
    """To a low-rank vector of step sizes, inputs and outputs."""
    norms: Sequence[Any]
    """Of these three; None for no norm."""
    widen: Any
    """From the low-rank vector to step sizes."""


class PerLayerGate(NamedTuple):
    """after(close(act(open(x)) * own)), own being this sublayer's part of what a step brings (Gemma 3n)."""

    open: Any
    activation: str
    """Its name in `runtime.nn.activation.NAMES`."""
    place: int
    """Which of the N sublayers this one is, for which a step brings [B, L, N, P]."""
    close: Any
    after: Any


class Multiply(NamedTuple):
    """The stream is multiplied by this number; nothing is added."""

    by: mx.array
    """[1]"""
    width: int
    """Of the stream."""


class AppendInput(NamedTuple):
    """Appends c, which a step brings for all layers, to the stream: [x | c]."""

    width: int
    """Of x, and of c."""


class UpdateAppended(NamedTuple):
    """The appended c becomes a sublayer's answer to it, or to [x | c] if the sublayer reads both. Nothing is
    added.
    """

    by: "AttentionParts | FeedForwardParts"


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
    """Of each stream in each (`runtime.nn.operations.Operations.mix_streams`)."""
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
    """Of each stream (`runtime.nn.operations.Operations.correct_streams`)."""
    streams: int
    place: int
    scale: mx.array | None = None
    """[D]"""
    norm_scale: float = 1.0


class AltUpActive(NamedTuple):
    """A sublayer that computes on the copy."""

    by: "AttentionParts | LaurelParts | Multiply | FeedForwardParts"
    streams: int


class AltUpJoin(NamedTuple):
    """A sublayer's answer to the copy is added to all streams but the first, and the copy is dropped."""

    by: PerLayerGate
    streams: int


class LaurelParts(NamedTuple):
    """n + after(close(open(n))), n being norm(x) (LAuReL, arXiv 2411.07501)."""

    norm: Any
    open: Any
    close: Any
    after: Any
    beside: bool = False


class FeedForwardParts(NamedTuple):
    """after(down(inner)): inner is act(gate) · up or, of one part, act(part)."""

    norm: Any
    opening: Sequence[Any]
    """Make gate and up of norm(x), or the one part."""
    halves: bool
    """One module makes both, as halves of what it gives."""
    activation: str
    """Its name in `runtime.nn.activation.NAMES`."""
    down: Any
    after: Any
    gate_scale: float = 1.0
    """Multiplies what is activated, before that."""
    share: float = 1.0
    beside: bool = False
    sums: Any = None
    cut: float | None = None
    """What is activated passes `runtime.nn.operations.Operations.cut` with this number before; None: not."""
    bends: Any = None
    """An xIELU module (`runtime.nn.operations.Operations.bend`) in place of the activation of one part."""
    low: Sequence[tuple[Any, Any] | None] = ()


class ExpertParts(NamedTuple):
    """Experts: each answers down(inner), with inner as in `FeedForwardParts`, or by `clip`."""

    opening: Sequence[Any]
    """Stacks of matrices: of [gate, up], or one."""
    activation: str
    clip: tuple[float, float] | None
    """Limit and slope of `clipped_gate`, where that takes the gate's place."""
    down: Any


class DecoderParts(NamedTuple):
    """A network from ids to logits: head(norm(layers(scale * table[ids]))) * times, and a softcap."""

    table: Any
    scale: float | None
    layers: Sequence[Any]
    norm: Any
    head: Any
    times: float = 1.0
    softcap: float | None = None
    """Logits become cap * tanh(x / cap); None: they stay."""
    memories: int = 1
    """Memories of each layer, side by side in the layout."""


def stated_by(network: Any) -> DecoderParts | None:
    """How this network describes itself; not a description of one that it stands for."""
    stated = getattr(type(network), "stated", None)
    return None if stated is None else stated(network)


class DrawParams(NamedTuple):
    """How the tokens of R rows are drawn (`runtime.sampling`); each field has one number per row."""

    seeds: tuple[int, ...]
    temperatures: tuple[float, ...]
    """Above 0."""
    top_k: tuple[int, ...]
    """0: all ids; 1: the likeliest, and of equals the first."""
    top_p: tuple[float, ...]
    """1: all."""
    min_p: tuple[float, ...]
    """0: all."""
    typical_p: tuple[float, ...]
    """1: all."""


@dataclass(frozen=True, slots=True, eq=False)
class LogitBiases:
    """What is added to the logits of R rows. The same object as long as the rows are the same."""

    ids: tuple[tuple[int, ...], ...]
    """Of each row."""
    values: tuple[tuple[float, ...], ...]
    """For each of a row's ids; -inf: it is never drawn."""


class PenaltyParams(NamedTuple):
    """How the logits of ids that came before are lowered, for R rows (`runtime.sampling.penalties`); each
    field has one number per row.
    """

    windows: tuple[int, ...]
    """How many ids a row looks back on; -1: all."""
    repeat: tuple[float, ...]
    presence: tuple[float, ...]
    frequency: tuple[float, ...]

    def recent(self, row: int, ids: Sequence[int], stop: int) -> Sequence[int]:
        """The ids that the row looks back on, of the first `stop` of its ids."""
        window = self.windows[row]
        return ids[0 if window < 0 else max(stop - window, 0) : stop]


class GuessParams(NamedTuple):
    """How the tokens that follow a step's are drawn."""

    ids: int | None
    """Only from so many first ids of the vocabulary; None: from all."""
    draws: DrawParams | None
    """None: the likeliest."""
    positions: Sequence[int]
    """Of each row, the position of the first token that is drawn."""
    looks: bool = False
    """Say of each token whether its logits are numbers; only where one is drawn behind each of a step's."""
    penalised: tuple[PenaltyParams, Sequence[Sequence[int]]] | None = None
    """Penalties, and each row's ids to which they apply: where one token is drawn behind each of a step's,
    those before the step; else all that are known.
    """
    biased: LogitBiases | None = None
    """Added after that."""


class NextTokens(NamedTuple):
    """Tokens that follow those of a step, of n rows."""

    tokens: mx.array
    """int32 [n, L]."""
    broken: mx.array | None
    """bool [n, L], whether one was drawn from logits that are no numbers; None where nobody looked."""


class Routing(NamedTuple):
    """Which experts a row is sent to by its scores, and how much each answer counts
    (`runtime.nn.route.choose`).
    """

    gates: Literal["softmax", "best", "sigmoid", "late", "near", "root"]
    """softmax: over all experts; best: over those that are chosen; sigmoid: each by itself; late: the same,
    of those that are chosen by their scores; near: one after the other, the best that is left, with its share
    in a softmax over those left that are nearly as good (SparseMixer, arXiv 2310.00811), and nothing that
    follows here but `nearness`; root: the root of a softplus, each by itself, which no kernel computes.
    """
    each: int
    """Experts per row: those with the greatest gates."""
    correction: mx.array | None = None
    """float32 [E], added to gates for the choice only."""
    groups: int = 1
    """Experts are in so many equal groups, and only those of the best groups can be chosen."""
    top_groups: int = 1
    """How many groups: those whose best experts' gates have the greatest sum."""
    judges: int = 2
    """How many of a group's best experts are summed, one or two."""
    normalize: bool = False
    """The gates of the chosen are divided by their sum."""
    scale: float = 1.0
    """Gates are then multiplied by it."""
    least: float = 0.0
    """Least divisor, where the sum is smaller."""
    shares: mx.array | None = None
    """float32 [E]: finally each gate is multiplied by its expert's share."""
    nearness: float = 0.0
    """near: how much worse than the best, relatively, an expert may be to count."""


class ScaledRMS(NamedTuple):
    """x / √(mean(x²) + eps) · by · times."""

    by: mx.array
    """[D]"""
    eps: float
    times: float


class MixtureParts(NamedTuple):
    """after(the experts' answers to norm(x), weighed by the router)."""

    norm: Any
    router: Any
    """A linear layer with one output for each expert, its score."""
    routing: Routing
    experts: ExpertParts
    shared: FeedForwardParts | None
    """Experts that always answer, too. If they have a norm of their own, they read that of x in place of
    norm(x).
    """
    gate: Any
    """A linear layer with one output, whose sigmoid multiplies the shared experts' answer; or None."""
    after: Any
    share: float = 1.0
    beside: bool = False
    reading: ScaledRMS | None = None
    """What the router reads; None: norm(x)."""
    answered: Any = None
    """An RMS norm of the experts' answer, before that of the shared ones is added; or None."""
    fed: bool = False
    """Weights multiply what experts read instead of what they answer."""
    sums: Any = None
