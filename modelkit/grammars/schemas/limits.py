"""What a JSON schema must be before a grammar is made of it: one whose values have an end, that a grammar can
hold, and that costs no more than a moment and a few megabytes.

The library bounds its own work where texts are matched, but not everywhere while it compiles: a large
`multipleOf`, many patterns on one text, and optional properties by the thousand take seconds and gigabytes
there; references that lead deep (`depth`) and some numbers (`numbers`) end the process. All of that is said
here instead, with the place.
"""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from modelkit.grammars.patterns.elimination import has_lookarounds
from modelkit.grammars.patterns.text_sets import MOST_PATTERNS
from modelkit.grammars.schemas.depth import DEEPEST_JSON, DEEPEST_SCHEMA, depth_of_json, depth_of_schema
from modelkit.grammars.schemas.infinite_values import Values
from modelkit.grammars.schemas.numbers import unenforceable_number
from modelkit.grammars.schemas.value_graph import Value
from modelkit.json_text import is_number

_WRITTEN = frozenset({"const", "enum", "pattern", "required"})
_REMARKS = frozenset({"title", "description", "$comment", "default", "examples"})
MOST_OPTIONAL = 2_400  # properties: each takes four of the parser's items
MOST_OPTIONAL_IN_ALL = 8_000_000  # the sum of squares over all objects, as that is what they take to compile
MOST_AHEAD = 64  # patterns: each takes up to a twentieth of a second to be written out
LONGEST_TEXT = 20_000  # characters that come as they are written: all are looked through at every token
LARGEST_STEP = 10_000  # of multipleOf, without its factors of 2 and 5: so many states are kept
LONGEST_STEP = 300_000  # without its factors of 10: so many states are made, 100 MB and half a second of them


def schema_fault(schema: Mapping[str, Any]) -> str | None:
    """A sentence on why no grammar is made of it."""
    written = depth_of_json(schema)
    if written > DEEPEST_JSON:
        return (
            f"it is written {written:,} objects and lists deep; at most {DEEPEST_JSON} are taken: "
            "what is inside may stand in `$defs` and be referred to"
        )
    deep = depth_of_schema(schema)
    if deep > DEEPEST_SCHEMA:
        return (
            f"it goes {deep:,} schemas deep when its references are followed, or has circles of so many; at "
            f"most {DEEPEST_SCHEMA} are taken"
        )
    number = unenforceable_number(schema)
    if number is not None:
        return number
    if (long := _longest(schema)) > LONGEST_TEXT:
        what = "a name, a listed text or a pattern"
        return f"it has {what} of {long:,} characters; at most {LONGEST_TEXT:,} are taken"
    values = Values(schema)
    if values.crowded is not None:
        return f"{values.path(values.crowded)} is held to too many schemas at once (allOf); write them as one"
    if values.too_many:
        return "its choices (anyOf in allOf) can be combined in too many ways; name those that are meant"
    return values.endless() or next(_unenforced(values), None)


def _longest(schema: Mapping[str, Any]) -> int:
    """Of all texts that a value may have to have as they are, but for those of remarks."""
    longest, left = 0, list[tuple[Any, bool]]([(schema, False)])
    while left:
        value, said = left.pop()
        if isinstance(value, str):
            longest = max(longest, len(value) if said else 0)
        elif isinstance(value, Mapping):
            longest = max(longest, *(len(name) for name in value), 0)
            left += [(one, said or key in _WRITTEN) for key, one in value.items() if key not in _REMARKS]
        elif isinstance(value, list):
            left += [(one, said) for one in value]
    return longest


def _unenforced(values: Values) -> Iterator[str]:
    if (ahead := _looking_ahead(values)) > MOST_AHEAD:
        yield f"it has {ahead:,} patterns that look around; at most {MOST_AHEAD} are written out"
    squares = 0
    for value in values.all:
        at = values.path(value)
        optional = _optional(value)
        squares += optional * optional
        if optional > MOST_OPTIONAL:
            yield (
                f"{at} has {optional:,} properties that may be left out, at most {MOST_OPTIONAL:,} are "
                "taken; list them in `required`"
            )
        if squares > MOST_OPTIONAL_IN_ALL:
            yield f"from {at} on it has too many properties that may be left out; list them in `required`"
        patterns = sum(("pattern" in part) + ("format" in part) for part in value.parts)
        if patterns > MOST_PATTERNS:
            yield f"{at} has {patterns} patterns and formats at once; at most {MOST_PATTERNS} are taken"
        step = _without(_step(value), 10)
        if step > LONGEST_STEP:
            yield (
                f"{at} is a multiple of {step:,} (without factors of 10); at most {LONGEST_STEP:,} can be "
                "enforced"
            )
        elif (odd := _without(_without(step, 2), 5)) > LARGEST_STEP:
            yield (
                f"{at} is a multiple of {odd:,} (without factors of 2 and 5); at most {LARGEST_STEP:,} "
                "can be enforced"
            )


def _looking_ahead(values: Values) -> int:
    """How many patterns do?"""
    found = set[str]()
    for part in (part for value in values.all for part in value.parts):
        names = part.get("patternProperties")
        every = [part.get("pattern"), *(names if isinstance(names, Mapping) else ())]
        found.update(one for one in every if isinstance(one, str) and has_lookarounds(one))
    return len(found)


def _optional(value: Value) -> int:
    named, required = set[str](), set[str]()
    for part in value.parts:
        properties, must = part.get("properties"), part.get("required")
        named.update(properties if isinstance(properties, Mapping) else ())
        if isinstance(must, list):
            required.update(one for one in must if isinstance(one, str))
    return len(named - required)


def _step(value: Value) -> int:
    """Of all multipleOf that hold at once, as a whole number."""
    product = 1
    for part in value.parts:
        said = part.get("multipleOf")
        if is_number(said) and 0 < said < math.inf:
            product *= Fraction(str(said)).numerator
    return product


def _without(number: int, factor: int) -> int:
    while number % factor == 0:
        number //= factor
    return number
