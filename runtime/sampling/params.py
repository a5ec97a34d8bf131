"""How one row wants its tokens drawn: plain numbers, checked once; by default the model's own odds."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Literal, get_args

from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.sampling.breakers import Breakers
from runtime.sampling.ranges import ID_LIMIT, RANGES, WHOLE_CONTEXT, Range

BIAS_LIMIT = 1024  # entries; OpenAI's interface allows as many
LARGEST_BIAS = 3.4028234663852886e38  # of float32, which logits are
COLD = 1e-5
Acceptance = Literal["coupled", "rejection"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a row's tokens are drawn. Raises ValueError on a value outside its range (`ranges`); the message
    names field, value and range.
    """

    temperature: float = 1.0
    """Logits are divided by it; 0 (and below COLD, where float32 cannot tell) takes the likeliest token."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 is off."""
    typical_p: float = 1.0
    """Keep the tokens whose surprise is closest to the expected one, up to this mass (Meister et al.,
    "Locally Typical Sampling", 2022); 1 is off.
    """
    top_p: float = 1.0
    """Keep the likeliest tokens up to this mass (Holtzman et al., "The Curious Case of Neural Text
    Degeneration", 2019); 1 is off.
    """
    min_p: float = 0.0
    """Keep tokens at least this likely relative to the likeliest one (Nguyen et al., "Turning Up the Heat",
    2024); 0 is off.
    """
    top_n_sigma: float = 0.0
    """Keep tokens whose logit is at most so many standard deviations below the best (Tang et al.,
    "Top-n-sigma", 2024); 0 is off.
    """
    dynatemp_range: float = 0.0
    """The temperature lies so far below or above `temperature`, as the entropy says; 0 is off."""
    dynatemp_exponent: float = 1.0
    """The power of the entropy that says it."""
    xtc_probability: float = 0.0
    """How often, of all tokens that reach `xtc_threshold`, only the least likely stays ("Exclude Top
    Choices", p-e-w, 2024); 0 is off. At temperature 0 it never acts.
    """
    xtc_threshold: float = 0.1
    """The probability, at temperature 1 among those that are left, that makes a top choice."""
    repeat_penalty: float = 1.0
    """Divides positive and multiplies negative logits of recent tokens (Keskar et al., "CTRL", 2019); 1 is
    off.
    """
    presence_penalty: float = 0.0
    """Subtracted once from the logit of a recent token; 0 is off."""
    frequency_penalty: float = 0.0
    """Subtracted from the logit of a recent token for each time that it occurs; 0 is off."""
    repeat_last_n: int = 64
    """How many tokens are recent, prompt included; 0 is none, -1 all."""
    dry_multiplier: float = 0.0
    """Times what `dry` says, subtracted from the logit of a token that would go on with a repetition ("Don't
    Repeat Yourself", p-e-w, 2024); 0 is off.
    """
    dry_base: float = 1.75
    """By this the penalty grows with every token of the repetition."""
    dry_allowed_length: int = 2
    """Tokens that may be repeated before the penalty begins with `dry_multiplier` itself."""
    dry_penalty_last_n: int = WHOLE_CONTEXT
    """How many tokens back repetitions are looked for, prompt included; 0 is none, -1 all."""
    dry_breakers: Breakers | None = None
    """What repetitions are not followed across; None: nothing is."""
    ends: tuple[int, ...] = ()
    """Ids that are not drawn before the position `ends_from`, unless nothing else may be."""
    ends_from: int = 0
    seed: int = 0
    """Names the noise; with the prompt it decides every token drawn."""
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float], hash=False)
    """By id: added to its logit."""
    suppressed: tuple[int, ...] = ()
    """Ids that are never drawn."""
    draft_acceptance: Acceptance = "coupled"
    """"coupled" keeps a draft while it is what the row draws anyway, so that drafts never show. "rejection"
    keeps it with probability min(1, p/q) and else draws from what p has over q (Leviathan et al., "Fast
    Inference from Transformers via Speculative Decoding", 2023): a few more are kept, the odds are the same,
    but which token is drawn depends on what was proposed.
    """

    def __post_init__(self) -> None:
        for name, span in RANGES.items():
            self._check(name, span)
        _check_bias(self.logit_bias)
        _check_ids("suppressed", self.suppressed)
        _check_ids("ends", self.ends)
        if self.draft_acceptance not in get_args(Acceptance):
            choices = " or ".join(get_args(Acceptance))
            raise ValueError(f"draft_acceptance is {quoted(self.draft_acceptance)}, expected {choices}")
        object.__setattr__(self, "logit_bias", MappingProxyType(dict(self.logit_bias)))

    @property
    def greedy(self) -> bool:
        """Always the likeliest token, so no noise is needed."""
        return (self.temperature < COLD and not self.dynatemp_range) or self.top_k == 1

    @property
    def rejecting(self) -> bool:
        """Drafts are accepted by rejection sampling. A greedy row has nothing to reject by chance."""
        return self.draft_acceptance == "rejection" and not self.greedy

    @property
    def penalised(self) -> bool:
        """The token drawn depends on recent ones, so `Sampler.sample` wants their ids."""
        changes = (self.repeat_penalty != 1, self.presence_penalty != 0, self.frequency_penalty != 0)
        return self.repeat_last_n != 0 and any(changes)

    @property
    def dry(self) -> bool:
        """Repetitions are penalised, so `Sampler.sample` wants the ids before."""
        return self.dry_multiplier > 0 and self.dry_penalty_last_n != 0

    def _check(self, name: str, span: Range) -> None:
        value = getattr(self, name)
        if span.whole and not isinstance(value, int):
            raise ValueError(f"{name} is {quoted(value)}, expected a whole number")
        if not span.holds(value):
            first = f"above {span.low}" if span.above else f"{span.low}"
            raise ValueError(f"{name} is {quoted(value)}, expected {first} to {span.high}")


def _check_bias(bias: Mapping[int, float]) -> None:
    if len(bias) > BIAS_LIMIT:
        raise ValueError(f"logit_bias has {len(bias):,} entries, expected at most {BIAS_LIMIT:,}")
    for token, value in bias.items():
        if not 0 <= token < ID_LIMIT:
            raise ValueError(f"logit_bias names the id {quoted(token)}, expected 0 to {ID_LIMIT - 1}")
        if not -LARGEST_BIAS <= value <= LARGEST_BIAS:
            raise ValueError(
                f"logit_bias of id {token} is {quoted(value)}, expected a finite number in float32"
            )


def _check_ids(what: str, ids: tuple[int, ...]) -> None:
    for token in ids:
        if not 0 <= token < ID_LIMIT:
            raise ValueError(f"{what} names the id {quoted(token)}, expected 0 to {ID_LIMIT - 1}")
