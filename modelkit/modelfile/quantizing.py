"""What QUANTIZE says: how the weights of the target, or of the draft, shall be stored.

    QUANTIZE q4             a format (`runtime.quant`); sensitive matrices get more bits
    QUANTIZE plain q4       every matrix alike
    QUANTIZE draft q4       the draft's weights; the words are the same

Options of `create` and keywords of `modelkit.create` make the same values, and `str` of one is what a
QUANTIZE line says.
"""

from dataclasses import dataclass, field

from modelkit import words
from modelkit.errors import PlanError
from runtime.quant import NAMES, OTHER_GROUPS, Format, find_format

DRAFT = "draft"
PLAIN = "plain"

_EXAMPLES = "Examples: QUANTIZE q4, QUANTIZE plain q4, QUANTIZE draft q4"


@dataclass(frozen=True, slots=True)
class Quantizing:
    """How the weights of one model shall be stored."""

    format: Format
    plain: bool = False
    """Every matrix alike? Otherwise some get more bits."""
    place: str = field(default="", compare=False)
    """`file:line:column` of its line in a Modelfile; "" for an option."""

    def __str__(self) -> str:
        return f"{PLAIN} {self.format.name}" if self.plain else self.format.name


def parse_format(text: str) -> Format:
    """The format that a user named; PlanError lists the ones there are."""
    found = find_format(text)
    if found is None:
        word = words.find(words.FORMATS, text)
        hint = f"Here it is {word.ours}." if word else f"The formats are: {NAMES}; {OTHER_GROUPS}."
        raise PlanError(f"there is no format {text!r:.60}", hint=hint)
    return found


def parse_quantizing(text: str) -> Quantizing:
    """What these words ask for; raises PlanError."""
    said = text.split()
    plain = bool(said) and said[0].lower() == PLAIN
    rest = said[1:] if plain else said
    if len(rest) != 1:
        raise PlanError(f"{text!r:.60} does not say one format", hint=_EXAMPLES)
    return Quantizing(parse_format(rest[0]), plain)


def of_draft(text: str) -> tuple[bool, str]:
    """Is it the draft that a QUANTIZE line speaks of, and what does it say then?"""
    first, _, rest = text.partition(" ")
    return (True, rest.strip()) if first.lower() == DRAFT else (False, text)
