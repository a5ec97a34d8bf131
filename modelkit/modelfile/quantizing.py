"""What QUANTIZE says: how the weights of the target, or of the draft, shall be stored.

    QUANTIZE q4                       a format (`runtime.quant`); sensitive matrices get more bits
    QUANTIZE plain q4                 every matrix alike
    QUANTIZE 4.5 bits                 a format for each matrix, so that the mean is at most that
    QUANTIZE 5GB measured             the same for a size, with more care
    QUANTIZE 4 bits from calm.txt     the same, compared on that text
    QUANTIZE draft q4                 the draft's weights; the words are the same
    QUANTIZE draft auto               the format that makes the pair fastest

Options of `create` and keywords of `modelkit.create` make the same values, and `str` of one is what a
QUANTIZE line says.
"""

import os
import re
from dataclasses import field
from pathlib import Path
from typing import Literal, get_args

from modelkit import words
from modelkit.arguments import absolute, on_disk
from modelkit.errors import ParameterError, PlanError
from modelkit.units import read_size
from runtime.quant import NAMES, OTHER_GROUPS, Format, find_format
from runtime.quoting import quoted
from runtime.records import dataclass

Quality = Literal["fast", "measured", "learned"]
QUALITIES: tuple[Quality, ...] = get_args(Quality)

DRAFT, PLAIN, AUTO, BITS, FROM = "draft", "plain", "auto", "bits", "from"

_UNITS = ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB"), (0, "B"))
MOST_BITS = 32
"""Of a weight: those of the widest float."""
_NUMBER = re.compile(r"[0-9]{1,2}(\.[0-9]{1,4})?")
_EXAMPLES = "Examples: QUANTIZE q4, QUANTIZE plain q4, QUANTIZE 4.5 bits, QUANTIZE 5GB, QUANTIZE draft q4"


@dataclass(frozen=True, slots=True)
class Quantizing:
    """How the weights of one model shall be stored: `format`, `bits`, `size_bytes` or `auto` says it."""

    format: Format | None = None
    plain: bool = False
    """Every matrix alike? Otherwise some get more bits."""
    bits: float | None = None
    """Per weight, of the whole model."""
    size_bytes: int | None = None
    """Of all its weights."""
    auto: bool = False
    """For a draft: what makes the pair fastest."""
    quality: Quality | None = None
    """How much care is taken; None: "fast" where formats are searched for."""
    calibration: Path | None = None
    """A text to compare on; None: one that the model writes itself."""
    place: str = field(default="", compare=False)
    """`file:line:column` of its line in a Modelfile; "" for an option."""

    def __post_init__(self) -> None:
        if not (self.searches or self.auto or self.format):
            raise PlanError("no format is asked for", hint=_EXAMPLES)
        if self.plain and self.format is None:
            raise PlanError(f"plain goes with a format, not with {self}", hint=_EXAMPLES)
        if self.quality in ("fast", "measured") and not self.searches:
            raise PlanError(
                f"{self.quality} says how formats are found, and {_first(self)} names one format",
                hint="Give a target instead: 4.5 bits, or a size.",
            )
        if self.calibration and not (self.searches or self.quality or self.auto):
            raise PlanError(
                f"a text is for finding formats by measuring, and {_first(self)} names one format",
                hint="Give a target instead: 4.5 bits, or a size.",
            )
        if self.quality == "learned" and (self.auto or (self.format and self.format.mode != "affine")):
            raise PlanError(
                f"learned tunes the scales of affine formats, and {_first(self)} is not one",
                hint="Take it with q4 and its like, or with a target.",
            )

    @property
    def searches(self) -> bool:
        """Are formats to be found for a target?"""
        return self.bits is not None or self.size_bytes is not None

    @property
    def measures(self) -> bool:
        """Does the model have to be read before anything is known?"""
        return self.searches or self.auto or self.quality is not None

    def __str__(self) -> str:
        """Its words but for the text, whose path means nothing elsewhere."""
        return " ".join((_first(self), *((self.quality,) if self.quality else ())))

    @property
    def line(self) -> str:
        """All of its words."""
        return f"{self} {FROM} {self.calibration}" if self.calibration else str(self)


def _first(asked: Quantizing) -> str:
    if asked.auto:
        return AUTO
    if asked.bits is not None:
        return f"{asked.bits:g} {BITS}"
    if asked.size_bytes is not None:
        return _bytes(asked.size_bytes)
    name = asked.format.name if asked.format else ""
    return f"{PLAIN} {name}" if asked.plain else name


def _bytes(count: int) -> str:
    """Exactly, in the largest unit that gives a whole number."""
    scale, unit = next((10**power, unit) for power, unit in _UNITS if count % 10**power == 0)
    return f"{count // scale}{unit}"


def parse_format(text: str) -> Format:
    """The format that a user named; PlanError lists the ones there are."""
    found = find_format(text)
    if found is None:
        word = words.find(words.FORMATS, text)
        hint = f"Here it is {word.ours}." if word else f"The formats are: {NAMES}; {OTHER_GROUPS}."
        raise PlanError(f"there is no format {quoted(text)}", hint=hint)
    return found


def parse_bits(text: str) -> float:
    """Bits per weight, above 1 and at most 32, to four digits behind the point; PlanError."""
    bits = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 1 < bits <= MOST_BITS:
        raise PlanError(
            f"{quoted(text)} is not a number of bits per weight: above 1, at most {MOST_BITS}, with at "
            "most four digits behind the point",
            hint="Examples: 4.5, 3, 6.25.",
        )
    return bits


def parse_quantizing(text: str, folder: Path | None = None) -> Quantizing:
    """What these words ask for. A path counts from `folder`. Raises PlanError."""
    said = text.split()
    calibration = None
    lowered = [word.lower() for word in said]
    if FROM in lowered:
        at = lowered.index(FROM)
        calibration = _text_file(text.split(maxsplit=at + 1)[at + 1 :], folder or Path())
        said, lowered = said[:at], lowered[:at]
    quality = lowered.pop() if lowered and lowered[-1] in QUALITIES else None
    chosen: dict[str, object] = {"quality": quality, "calibration": calibration}
    match lowered:
        case [number, "bits" | "bit" | "bpw"]:
            return Quantizing(bits=parse_bits(number), **chosen)  # pyright: ignore[reportArgumentType]
        case ["auto"]:
            return Quantizing(auto=True, **chosen)  # pyright: ignore[reportArgumentType]
        case ["plain", name]:
            return Quantizing(parse_format(name), True, **chosen)  # pyright: ignore[reportArgumentType]
        case [word] if _NUMBER.fullmatch(word) and float(word) <= MOST_BITS:
            raise PlanError(
                f"{word} is neither bits nor a size", hint=f"Write `{word} bits`, or a size such as 5GB."
            )
        case [word] if word[0].isdigit() or word[0] == ".":
            return Quantizing(size_bytes=parse_size(word), **chosen)  # pyright: ignore[reportArgumentType]
        case [number, unit] if number[0].isdigit():
            return Quantizing(size_bytes=parse_size(number + unit), **chosen)  # pyright: ignore[reportArgumentType]
        case [name]:
            return Quantizing(parse_format(name), **chosen)  # pyright: ignore[reportArgumentType]
        case []:
            raise PlanError("there is no format", hint=_EXAMPLES)
        case _:
            raise PlanError(f"{quoted(text)} says neither one format nor one target", hint=_EXAMPLES)


def of_draft(text: str) -> tuple[bool, str]:
    """Is it the draft that a QUANTIZE line speaks of, and what does it say then?"""
    first, *rest = text.split(maxsplit=1) or [""]
    return (True, "".join(rest)) if first.lower() == DRAFT else (False, text)


def parse_size(text: str) -> int:
    """A number of bytes above 0, such as 5GB; PlanError."""
    try:
        size = read_size(text, "the size")
    except ParameterError as error:
        raise PlanError(
            error.message, hint=f"{error.hint} Bits per weight are written `4.5 bits`."
        ) from error
    if size == 0:
        raise PlanError("a size has to be above 0 bytes", hint=_EXAMPLES)
    return size


def _text_file(rest: list[str], folder: Path) -> Path:
    if not rest:
        raise PlanError("`from` needs the path of a text", hint="Example: QUANTIZE 4.5 bits from ./chat.txt")
    path = absolute(folder / os.path.expanduser(on_disk(rest[0])))
    if not os.path.isfile(path):
        raise PlanError(f"there is no text {quoted(rest[0])}", hint="Name a text file (UTF-8).")
    return path
