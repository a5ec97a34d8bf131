"""How weights shall be stored: what options say, else the QUANTIZE lines of the Modelfile.

Options win, and a note says so where a line says something else. Pure.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from modelkit.errors import PlanError
from modelkit.modelfile import Quantizing, Recipe, parse_quantizing
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Formats:
    """Of target and draft, as they hold."""

    target: Quantizing | None
    """None: as the source is."""
    draft: Quantizing | None
    notes: tuple[str, ...]
    """Sentences for the user."""


def settle(
    recipe: Recipe, quantize: str | Quantizing | None, quantize_draft: str | Quantizing | None, *, plain: bool
) -> Formats:
    """quantize, quantize_draft: of options, as words of QUANTIZE or what they mean. plain: no matrix of
    either model gets more bits than another. Raises PlanError.
    """
    notes: list[str] = []
    target = _one(quantize, recipe.quantize, plain, "an option of create", notes)
    draft = _one(quantize_draft, recipe.quantize_draft, plain, "an option of create", notes)
    if target and target.auto:
        with at_line(target):
            raise PlanError(
                "auto finds what makes a draft fastest, and this is the target",
                hint="For the target name a format, or a target such as 4.5 bits.",
            )
    if plain and not any(one and one.plain for one in (target, draft)):
        raise PlanError(
            "plain gives every matrix one format, and no format is asked for",
            hint="Name one: -q q4 --plain, or QUANTIZE q4 in the Modelfile.",
        )
    return Formats(target, draft, tuple(notes))


def _one(
    option: str | Quantizing | None, line: Quantizing | None, plain: bool, name: str, notes: list[str]
) -> Quantizing | None:
    said = parse_quantizing(option) if isinstance(option, str) else option or line
    if said is None:
        return None
    chosen = replace(said, plain=True) if plain and said.format else said
    if line and chosen != line:
        notes.append(f"{line.place}: QUANTIZE {line} gives way to {name if option else '--plain'}: {chosen}")
    return chosen


@contextmanager
def at_line(asked: Quantizing | None) -> Generator[None]:
    """A refusal of what a line of the Modelfile asks for gets the line's place in front."""
    try:
        yield
    except PlanError as error:
        if asked is None or not asked.place:
            raise
        raise PlanError(f"{asked.place}: {error.message}", hint=error.hint) from error
