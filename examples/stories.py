"""How a story is told: a plot, its gaps filled and one way of saying each thing chosen, from a seed.

A plot is data. `cast` binds names to people, places and things; every text is a `str.format` template over
those bindings. Each beat is a tuple of ways to say the same thing, the commonest first. Questions about a
story are answered by the story.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from world import CAST, WEATHERS, Someone

T = TypeVar("T")
Bindings = dict[str, object]
Question = tuple[str, str, str]  # question, answer in one sentence, answer in a few words


@dataclass(frozen=True, slots=True)
class Plot:
    cast: Callable[[Random], Bindings]
    requests: tuple[str, ...]
    beats: tuple[tuple[str, ...], ...]
    summary: str  # the story in one sentence
    questions: tuple[Question, ...]
    weathers: tuple[str, ...] = tuple(WEATHERS)
    evening: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """A plot told once. `names` may stand in a request for it, the main one first; `weather` may be ''."""

    names: tuple[str, ...]
    weather: str
    request: str
    text: str
    summary: str
    questions: tuple[Question, ...]


ENDINGS = (
    "",
    "That night {a} slept very well.",
    "From that day on {a} and {b} were the best of friends.",
    "And the great lamp shone over Lantern Island.",
)


def pick(rng: Random, options: Sequence[T]) -> T:
    """One option, the first twice as likely as the second, three times as likely as the third: habits."""
    return rng.choices(options, [1 / (1 + rank) for rank in range(len(options))])[0]


def sentence(template: str, bindings: Bindings) -> str:
    text = template.format_map(bindings)
    return text[:1].upper() + text[1:]


def tell(rng: Random, plot: Plot) -> Story:
    bindings = plot.cast(rng)
    weather = WEATHERS[rng.choice(plot.weathers)]
    first, *rest = (pick(rng, beat) for beat in plot.beats)
    shown = rng.random() < 0.85  # now and then a story just starts
    said = [
        _opening(rng, weather.scene, weather.evening if plot.evening else weather.morning, first, bindings)
    ]
    if not shown:
        said = [sentence(first, bindings)]
    said += [sentence(beat, bindings) for beat in [*rest, pick(rng, ENDINGS)] if beat]
    people = [who.name for key in "abc" if isinstance(who := bindings.get(key), Someone)]
    return Story(
        names=tuple(people),
        weather=weather.name if shown else "",
        request=sentence(pick(rng, plot.requests), bindings),
        text=" ".join(said),
        summary=sentence(plot.summary, bindings),
        questions=tuple(
            (sentence(ask, bindings), sentence(full, bindings), sentence(short, bindings))
            for ask, full, short in plot.questions
        ),
    )


def _opening(rng: Random, scene: str, time: str, first: str, bindings: Bindings) -> str:
    if rng.random() < 0.35:
        return f"{scene} {sentence(first, bindings)}"
    text = sentence(first, bindings)
    named = text.split()[0].rstrip(",'s") in CAST
    return f"{time} {text if named else text[0].lower() + text[1:]}"
