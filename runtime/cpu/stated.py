"""What sublayers consist of, as the table's operations take it: a network says it (`runtime.nn.sublayer`),
and a column computes by it at once, or part by part.

norm, everywhere: an RMS or a layer norm, or None; norm_scale: what it gives is multiplied by this number;
after: an RMS norm, or None; share: how much of an answer is added to what was read, where no norm is behind
it; beside: it reads what the sublayer before it read, and is added to what that gave; sums: the kernels' sums
over processes that have a part of it each (`Ring.sums` of `runtime.ranks.ring`), for its answer before
anything else is done with that; low: for each opening module two matrices, one behind the other, whose
product is added to its own, or None. Modules are those of `runtime.nn.operations.Operations`.
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


class Opens(NamedTuple):
    """A gate of what heads see: act(what its matrix makes of norm(x))."""

    by: Any
    """With one output for each head, or for each number that heads see."""
    activation: str
    """Its name in `runtime.nn.activation.NAMES`."""


class Attends(NamedTuple):
    """after(close(what heads see)), whose queries, keys and values are what the opening modules make of
    norm(x).
    """

    heads: "Heads"
    norm: Any
    opening: Sequence[Any]
    """One module each for queries, keys and values, or one for all; two where raw keys are values, too."""
    head_norms: tuple[Any, Any] | None
    """Of the heads of queries and of keys; each head by itself, or all together (`Heads.normed_together`)."""
    close: Any
    after: Any
    sinks: mx.array | None = None
    """[H], as `runtime.nn.operations.Attend` has them."""
    value_norm: Any = None
    """Of the heads of values: a norm without weights, or None."""
    factors: Callable[[Step], mx.array | None] | None = None
    """Queries are multiplied by these numbers [B or 1, L], after their norms and before they turn; where it
    gives None, by none."""
    reads: bool = False
    """Keys and values are what another layer has written, which owns the memory: the opening module makes
    queries, and only they have a norm."""
    share: float = 1.0
    beside: bool = False
    gate: Opens | None = None
    """What heads see is multiplied by it; None: by none, or by those that come with queries."""
    value_scale: float = 1.0
    """Values are multiplied by it; other than 1 only where they have a matrix of their own."""
    key_scale: float = 1.0
    """Keys are multiplied by it, before their norm; as above."""
    norm_scale: float = 1.0
    sums: Any = None
    low: Sequence[tuple[Any, Any] | None] = ()


class Latents(NamedTuple):
    """after(close(what heads see)) of latent attention (`runtime.nn.mla`): all heads see one vector per
    token, a latent and the part of a key that carries position.
    """

    heads: "Heads"
    """size: of that vector. Only the part that carries position turns."""
    norm: Any
    opening: Sequence[Any]
    """The matrix of queries, or of what `widen` makes queries of; and that of keys, the latent first."""
    low_norm: Any
    """Of what queries are made of; None where there is no such thing."""
    widen: Any
    """None: the first matrix makes queries."""
    key_norm: Any
    """Of latents."""
    to_latents: Any
    """Matrices of heads (`by_heads` of the table): the other way, contents of queries become latents."""
    to_values: Any
    """From latents to what heads see."""
    close: Any
    after: Any
    factors: Callable[[Step], mx.array | None] | None = None
    """As in `Attends`."""
    share: float = 1.0
    beside: bool = False
    reads: Literal[False] = False
    """What it sees is its own layer's."""
    sums: Any = None


class Folds(NamedTuple):
    """after(close(what a fold over tokens answers to norm(x), under a gate))."""

    norm: Any
    opening: Sequence[Any]
    """What is mixed, the answer's gate, and the rule's gates (decays and strengths, or step sizes): one
    module each, or one for all, the answer's gate first (selective: behind what is mixed).
    """
    conv: Any
    """What is mixed passes it, and then silu (rg_lru: not that): as `runtime.nn.operations.Operations.conv`
    has it."""
    kind: Literal["delta", "ssd", "selective", "rg_lru", "conv"]
    """The rule, as the operation of that name has it (selective: `selective_scan`); and with it the next two.
    conv: no rule, but a gated convolution (`gated_conv`) of what one module gives.
    """
    rule: Any
    sizes: Any
    """Of delta and ssd; selective: what makes its gates, a `Selects`."""
    gated_norm: Any
    """As `runtime.nn.operations.Operations.gated_norm` has it; None: the answer times `activation` of its
    gate."""
    close: Any
    after: Any
    scan: ScanFunction
    """The convolution and the rule, for a memory with the states of both. selective, rg_lru: behind the
    step."""
    scanned: Callable[[Sequence[mx.array]], Sequence[mx.array]]
    """From what the opening modules give, times `scales`, to what `scan` takes."""
    scales: mx.array | None = None
    """Where one module opens: what each of its outputs is multiplied by."""
    norm_scale: float = 1.0
    share: float = 1.0
    beside: bool = False
    sums: Any = None
    activation: str = "silu"
    """Its name in `runtime.nn.activation.NAMES`."""
    widen: Sequence[Any] = ()
    """For each of several opening modules, what makes its part of what it gives; None: it gives that part."""

    @property
    def by_step(self) -> bool:
        """Does `scan` take the step first?"""
        return self.kind in ("selective", "rg_lru")

    @property
    def by_position(self) -> bool:
        """Does the rule ask where a token stands?"""
        return self.kind == "rg_lru"


class Selects(NamedTuple):
    """How what passed the convolution says its own step sizes, and a state's inputs and outputs (Mamba)."""

    open: Any
    """To numbers that steps are made of, inputs and outputs."""
    norms: Sequence[Any]
    """Of these three; None for none."""
    widen: Any
    """To step sizes."""


class Gates(NamedTuple):
    """after(close(act(open(x)) * own)), where own is what a step brings of this sublayer."""

    open: Any
    activation: str
    """Its name in `runtime.nn.activation.NAMES`."""
    place: int
    """A step brings [B, L, N, P], for N such sublayers: which of them this one is."""
    close: Any
    after: Any


class Times(NamedTuple):
    """Not added to the stream: it is multiplied by this number."""

    by: mx.array
    """[1]"""
    width: int
    """Of the stream."""


class Lays(NamedTuple):
    """What a step brings, the same for all layers, is laid behind the stream: [x | c]."""

    width: int
    """Of each."""


class Becomes(NamedTuple):
    """What lies behind the stream becomes a sublayer's answer to it; or to both, [x | c], where the sublayer
    reads as much. Nothing is added.
    """

    by: "Attends | Feeds"


class Hears(NamedTuple):
    """A sublayer reads x + close(c), c being what lies behind the stream, and adds to x. c is dropped."""

    close: Any
    by: Folds


class Predicts(NamedTuple):
    """Several residual streams side by side, of which layers compute on one (AltUp, arXiv 2301.13310): all of
    them are made of each other, by tanh(norm(x) router) shares, x being that one. The stream is wider behind
    it: by a copy of that one, to which `OfCopy` adds.
    """

    norm: Any
    router: Any
    """To as many numbers as there are streams."""
    shares: Any
    """Of each stream in each (`runtime.nn.operations.Operations.mix_streams`)."""
    streams: int
    place: int
    """Which of the streams it is."""
    norm_scale: float = 1.0


class Corrects(NamedTuple):
    """All streams are corrected by what became of the copy, with shares as `Predicts` has them of it. Then
    the copy is the corrected stream, times `scale`.
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


class OfCopy(NamedTuple):
    """A sublayer of the copy."""

    by: "Attends | Bypasses | Times | Feeds"
    streams: int


class Joins(NamedTuple):
    """What a sublayer answers to the copy is added to all streams but the first, and the copy is dropped."""

    by: Gates
    streams: int


class Bypasses(NamedTuple):
    """n + after(close(open(n))), n being norm(x) (LAuReL, arXiv 2411.07501)."""

    norm: Any
    open: Any
    close: Any
    after: Any
    beside: bool = False


class Feeds(NamedTuple):
    """after(down(inner)): inner is act(gate) · up or, of one part, act(part)."""

    norm: Any
    opening: Sequence[Any]
    """What they make of norm(x) are the parts; or the halves of what one of them does."""
    halves: bool
    activation: str
    """Its name in `runtime.nn.activation.NAMES`."""
    down: Any
    after: Any
    gate_scale: float = 1.0
    """What is activated is multiplied by it first."""
    share: float = 1.0
    beside: bool = False
    sums: Any = None
    cut: float | None = None
    """What is activated passes `runtime.nn.operations.Operations.cut` before."""
    bends: Any = None
    """A module that is xIELU (`runtime.nn.operations.Operations.bend`), in place of the activation of one
    part."""
    low: Sequence[tuple[Any, Any] | None] = ()


class Stacks(NamedTuple):
    """Experts, of each of which the answer is down(inner), with inner as in `Feeds`; or by `clip`."""

    opening: Sequence[Any]
    """Stacks of matrices: of [gate, up], or one."""
    activation: str
    clip: tuple[float, float] | None
    """Limit and slope, where the gate is `clipped_gate`."""
    down: Any


class Decodes(NamedTuple):
    """A network from ids to logits: head(norm(layers(table, times a scale))), times a number, and bent."""

    table: Any
    scale: float | None
    layers: Sequence[Any]
    norm: Any
    head: Any
    times: float = 1.0
    softcap: float | None = None
    """Logits become cap * tanh(x / cap). None: they do not."""
    memories: int = 1
    """Of each layer, side by side in the layout."""


def stated_by(network: Any) -> Decodes | None:
    """What this network says of itself, and not of one that it stands for."""
    stated = getattr(type(network), "stated", None)
    return None if stated is None else stated(network)


class Draws(NamedTuple):
    """How R rows want their tokens drawn (`runtime.sampling`); of each one number per row."""

    seeds: tuple[int, ...]
    temperatures: tuple[float, ...]
    """Above 0."""
    top_k: tuple[int, ...]
    """0: all; 1: the likeliest, the first of equals."""
    top_p: tuple[float, ...]
    """1: all."""
    min_p: tuple[float, ...]
    """0: all."""
    typical_p: tuple[float, ...]
    """1: all."""


@dataclass(frozen=True, slots=True, eq=False)
class Biased:
    """What is added to R rows' logits. One object, as long as rows are the same."""

    ids: tuple[tuple[int, ...], ...]
    values: tuple[tuple[float, ...], ...]
    """Of each row one for each of its ids; -inf: never drawn."""


class Penalised(NamedTuple):
    """What ids that came before take off R rows' logits (`runtime.sampling.penalties`); of each one number
    per row.
    """

    windows: tuple[int, ...]
    """How many ids it looks back on; -1: all."""
    repeat: tuple[float, ...]
    presence: tuple[float, ...]
    frequency: tuple[float, ...]

    def recent(self, row: int, ids: Sequence[int], stop: int) -> Sequence[int]:
        """What the row can look back on of the first `stop` of its ids."""
        window = self.windows[row]
        return ids[0 if window < 0 else max(stop - window, 0) : stop]


class Guessed(NamedTuple):
    """How tokens are drawn that follow those of a step."""

    ids: int | None
    """From so many of the vocabulary, the first ones; None: all."""
    draws: Draws | None
    """None: the likeliest."""
    positions: Sequence[int]
    """Of each row, where the first one will stand."""
    looks: bool = False
    """At what they are drawn from; of tokens behind each of a step's."""
    penalised: tuple[Penalised, Sequence[Sequence[int]]] | None = None
    """What ids of each row take off logits, and these ids: of tokens behind each of a step's those before the
    step, else all that are known.
    """
    biased: Biased | None = None
    """What is added then."""


class Behind(NamedTuple):
    """Tokens that follow those of a step, of n rows."""

    tokens: mx.array
    """int32 [n, L]."""
    broken: mx.array | None
    """bool [n, L], whether one was drawn from logits that are no numbers; None where nobody looked."""


class Routing(NamedTuple):
    """Which experts a row asks by its scores, and how much each answer counts (`runtime.nn.route.choose`)."""

    gates: Literal["softmax", "best", "sigmoid", "late", "near", "root"]
    """softmax: over all experts; best: over those that are chosen; sigmoid: each by itself; late: the same,
    of those that are chosen by their scores; near: one after the other, the best that is left, with its share
    in a softmax over those left that are nearly as good (SparseMixer, arXiv 2310.00811), and nothing that
    follows here but `nearness`; root: the root of a softplus, each by itself, which no kernel computes.
    """
    each: int
    """Experts that a row asks: those with the greatest gates."""
    correction: mx.array | None = None
    """float32 [E], added to gates for the choice alone."""
    groups: int = 1
    """Experts stand in equal groups, of which some are open."""
    top_groups: int = 1
    """So many: those whose best experts' gates sum highest."""
    judges: int = 2
    """So many of a group's best, one or two."""
    normalize: bool = False
    """The gates of the chosen are divided by their sum."""
    scale: float = 1.0
    """And then multiplied."""
    least: float = 0.0
    """What the sum is at least."""
    shares: mx.array | None = None
    """float32 [E]: at last each gate is multiplied by its expert's."""
    nearness: float = 0.0
    """How much worse, relatively, an expert may be."""


class Reads(NamedTuple):
    """x over the root of its mean square, times `by`, times a number."""

    by: mx.array
    """[D]"""
    eps: float
    times: float


class Asks(NamedTuple):
    """after(the answers of experts to norm(x), weighed as the router says)."""

    norm: Any
    router: Any
    """A linear layer with one output for each expert: their scores."""
    routing: Routing
    experts: Stacks
    shared: Feeds | None
    """Experts that always answer besides. Those with a norm of their own read x through that, not norm(x)."""
    gate: Any
    """A linear layer of one output, whose sigmoid their answer is multiplied by; or None."""
    after: Any
    share: float = 1.0
    beside: bool = False
    reading: Reads | None = None
    """What the router reads of x; None: norm(x)."""
    answered: Any = None
    """An RMS norm of experts' answers, before others are added; or None."""
    fed: bool = False
    """Weights multiply what experts read in place of what they answer."""
    sums: Any = None
