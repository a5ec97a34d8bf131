"""The one table of what sampling takes: the sampler follows it, and so does whoever reads people's settings.

Pure, so that reading a recipe loads nothing. Both ends are included unless `above` excludes the lower one.
"""

from runtime.records import dataclass

ID_LIMIT = 1 << 31
SEED_LIMIT = 1 << 64
WHOLE_CONTEXT = -1
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
    "repeat_last_n": Range(WHOLE_CONTEXT, ID_LIMIT - 1),
    "repeat_penalty": Range(0.01, 100.0),  # logits are divided by it, and must stay finite in half precision
    "presence_penalty": Range(-100.0, 100.0),
    "frequency_penalty": Range(-100.0, 100.0),
    "seed": Range(0, SEED_LIMIT - 1),
}
