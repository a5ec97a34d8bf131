"""What was learned about drafters, as plain data that outlives the process.

It comes back from a file that anybody may have changed: what is not understood, or out of range, is left out
and learned again. It decides about speed only, never about tokens.
"""

from collections.abc import Mapping
from typing import Any, cast

from runtime.records import dataclass

VERSION = 2  # 1 had seconds where 2 has plain rounds
_DEAREST_ROUND = 1000.0
_MOST_PLACES, _MOST_ROWS, _MOST_GRADES, _MOST_JUDGED = 256, 1 << 12, 16, 1 << 40

Accepted = tuple[tuple[float, int], ...]
"""Per place: the share of drafts kept there when those before it were, and of how many."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What was learned of one drafter in batches of one size."""

    costs: Mapping[int, float]
    """By depth: of a round, in plain rounds."""
    accepted: Mapping[int, Accepted]
    """By grade of guess."""
    depth: Mapping[int, int]
    """By grade: what paid best. For people to read; a run finds it out again."""


Lessons = Mapping[tuple[str, int], Lesson]
"""By the drafter's name and the number of rows, a power of two."""


def to_json(lessons: Lessons) -> dict[str, Any]:
    rows = [
        {
            "drafter": name,
            "rows": rows,
            "costs": [[depth, cost] for depth, cost in sorted(lesson.costs.items())],
            "grades": [
                {"grade": grade, "depth": lesson.depth.get(grade, 0), "accepted": [list(one) for one in of]}
                for grade, of in sorted(lesson.accepted.items())
            ],
        }
        for (name, rows), lesson in sorted(lessons.items())
    ]
    return {"version": VERSION, "drafters": rows}


def from_json(value: object) -> Lessons:
    """The lessons that can be used of what `to_json` once made."""
    found = _fields(value)
    if found.get("version") != VERSION:
        return {}
    read = [_lesson(_fields(row)) for row in _items(found.get("drafters"))]
    return dict(one for one in read if one is not None)


def _lesson(row: Mapping[str, object]) -> tuple[tuple[str, int], Lesson] | None:
    name, rows = row.get("drafter"), _whole(row.get("rows"), 1, _MOST_ROWS)
    costs = dict(pair for one in _items(row.get("costs")) if (pair := _cost(one)))
    if not isinstance(name, str) or rows is None or rows & (rows - 1):
        return None
    accepted: dict[int, Accepted] = {}
    depths: dict[int, int] = {}
    for one in map(_fields, _items(row.get("grades"))):
        grade = _whole(one.get("grade"), 1, _MOST_GRADES)
        if grade is not None:
            accepted[grade] = _accepted(one.get("accepted"))
            depths[grade] = _whole(one.get("depth"), 0, _MOST_PLACES) or 0
    return (name, rows), Lesson(costs, accepted, depths)


def _cost(pair: object) -> tuple[int, float] | None:
    depth, cost = _pair(pair)
    depth, cost = _whole(depth, 1, _MOST_PLACES), _number(cost, 1 / _DEAREST_ROUND, _DEAREST_ROUND)
    return None if depth is None or cost is None else (depth, cost)


def _accepted(value: object) -> Accepted:
    """The places up to the first that cannot be read: those behind it stand on it."""
    places: list[tuple[float, int]] = []
    for one in _items(value)[:_MOST_PLACES]:
        share, judged = _pair(one)
        share, judged = _number(share, 0.0, 1.0), _whole(judged, 1, _MOST_JUDGED)
        if share is None or judged is None:
            break
        places.append((share, judged))
    return tuple(places)


def _fields(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _pair(value: object) -> tuple[object, object]:
    items = _items(value)
    return (items[0], items[1]) if len(items) == 2 else (None, None)


def _whole(value: object, least: int, most: int) -> int | None:
    return value if type(value) is int and least <= value <= most else None


def _number(value: object, least: float, most: float) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    return float(cast("float", value)) if known else None
