"""The one table of what sampling takes: the sampler follows it, and so does whoever reads people's settings.

Pure, so that reading a recipe loads nothing. Both ends are included unless `above` excludes the lower one.
"""

from runtime.records import dataclass

ID_LIMIT = 1 << 31
SEED_LIMIT = 1 << 64
WHOLE_CONTEXT = -1
LONGEST_REPETITION = 1024
"""Tokens of a repetition that `dry_multiplier` counts at most."""
MOST_LOGPROBS = 20
"""How many of the likeliest tokens can be asked for with each token."""


@dataclass(frozen=True, slots=True)
class Range:
    """The values that one setting may have, both ends included."""

    low: float
    """The least; an int where the setting is a whole number."""
    high: float
    """The greatest, of the same type."""
    above: bool = False
    """The least is excluded."""

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int)

    def holds(self, number: float) -> bool:
        """False for NaN too."""
        return self.low <= number <= self.high and not (self.above and number == self.low)


RANGES: dict[str, Range] = {
    "temperature": Range(0.0, 100.0),
    "top_k": Range(0, ID_LIMIT - 1),
    "top_p": Range(0.0, 1.0, above=True),
    "min_p": Range(0.0, 1.0),
    "typical_p": Range(0.0, 1.0, above=True),
    "top_n_sigma": Range(0.0, 100.0),
    "dynatemp_range": Range(0.0, 100.0),
    "dynatemp_exponent": Range(0.0, 100.0),
    "xtc_probability": Range(0.0, 1.0),
    "xtc_threshold": Range(0.0, 1.0),
    "repeat_last_n": Range(WHOLE_CONTEXT, ID_LIMIT - 1),
    "repeat_penalty": Range(0.01, 100.0),  # logits are divided by it, and must stay finite in half precision
    "presence_penalty": Range(-100.0, 100.0),
    "frequency_penalty": Range(-100.0, 100.0),
    "dry_multiplier": Range(0.0, 100.0),
    "dry_base": Range(1.0, 100.0),
    "dry_allowed_length": Range(0, LONGEST_REPETITION),
    "dry_penalty_last_n": Range(WHOLE_CONTEXT, ID_LIMIT - 1),
    "seed": Range(0, SEED_LIMIT - 1),
}
