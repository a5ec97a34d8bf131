"""A JSON object from a client, read field by field.

Each method takes the field's name and gives its value in its plain form, or the default where the field is
absent or null. Anything else is refused with the field's whole name, what it is and what was expected:
`messages[2].content is 5, expected a text`. Numbers are never guessed from texts, nor flags from numbers.

Who reads a field has it noted, wherever in the body it stands: what nobody has read (`unread`) changed
nothing, and a response says so.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from modelkit.durations import EXPECTED, read_keep_alive
from modelkit.errors import ParameterError, RequestError
from modelkit.json_text import is_number
from modelkit.modelfile import PARAMETERS, check_parameter
from modelkit.server.faults import Refused, refused
from runtime.quoting import quoted

T = TypeVar("T")
LEAST_TOP_P = 1e-6
"""For clients that say 0, which leaves the likeliest token and is out of the PARAMETER's range."""
_MOST_WHOLE = 2**63 - 1
EMPTY: tuple[Any, ...] = (None, "", [], {})
"""What says nothing, whatever the field: clients fill in all that they have."""
_PLACE = re.compile(r"\[[0-9]+\]")
_Reads = dict[str, tuple[Mapping[str, Any], set[str]]]
"""By the whole name of each object of a body: itself, and its fields that were read."""


def wrong(where: str, value: object, expected: str) -> Refused:
    """The error for `value` in the field `where`; "" for the body itself."""
    said = f"{where or 'the body'} is {_in_json(value)}, expected {expected}"
    return refused("invalid_request", said, where or None)


class Fields:
    """where: what the object itself is called, such as `messages[2]`; "" for the body. reads: of the object
    that it stands in.
    """

    def __init__(self, value: object, where: str = "", reads: "_Reads | None" = None) -> None:
        if not isinstance(value, Mapping):
            raise wrong(where, value, "an object")
        self.peek: Mapping[str, Any] = value
        """All of it, for who does not act on it."""
        self.where = where
        self._reads: _Reads = {} if reads is None else reads
        self._read = self._reads.setdefault(where, (value, set()))[1]

    @property
    def value(self) -> Mapping[str, Any]:
        """All of it, for who takes it as it is."""
        self._read.update(self.peek)
        return self.peek

    def name(self, field: str) -> str:
        """The whole name of a field, for messages."""
        return f"{self.where}.{field}" if self.where else field

    def has(self, field: str) -> bool:
        """Is it there, and not null?"""
        return self._get(field) is not None

    def first(self, fields: Iterable[str]) -> str | None:
        """The first of these that is there, and not null."""
        found = next((one for one in fields if self.peek.get(one) is not None), None)
        if found is not None:
            self._read.add(found)
        return found

    def nothing(self, *fields: str) -> None:
        """These say nothing that is not said elsewhere, and are nobody's concern."""
        self._read.update(fields)

    def idle(self, *fields: str) -> None:
        """These were looked at, and change nothing."""
        self._read.difference_update(fields)

    def unread(self) -> tuple[str, ...]:
        """Names of the fields, in all of the body, that carry something and that nobody has read. Those of a
        list's entries are one.
        """
        named = (
            f"{where}.{field}" if where else field
            for where, (value, read) in self._reads.items()
            for field in value.keys() - read
            if value[field] is not False and value[field] not in EMPTY
        )
        return tuple(sorted({_PLACE.sub("[]", name) for name in named}))

    def unknown(self, known: Collection[str]) -> tuple[str, ...]:
        """Whole names of the fields that carry something and are none of these."""
        return tuple(
            self.name(field)
            for field, value in self.peek.items()
            if field not in known and value not in EMPTY
        )

    def raw(self, field: str) -> Any:
        """As it is; None where it is absent."""
        return self._get(field)

    def _get(self, field: str) -> Any:
        value = self.peek.get(field)
        if value is not None:  # many are asked for, few are there
            self._read.add(field)
        return value

    def wrong(self, field: str, expected: str) -> Refused:
        """The error for a field whose value is not what was expected."""
        if field not in self.peek:
            where = self.name(field)
            return refused("invalid_request", f"{where} is missing, expected {expected}", where)
        return wrong(self.name(field), self._get(field), expected)

    @overload
    def text(self, field: str) -> str | None: ...
    @overload
    def text(self, field: str, default: str) -> str: ...
    def text(self, field: str, default: str | None = None) -> str | None:
        value = self._get(field)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(field, "a text")
        return value

    def needed_text(self, field: str) -> str:
        """A text that must be there and not be empty."""
        value = self.text(field)
        if not value:
            raise refused(
                "invalid_request", f"{self.name(field)} is missing, expected a text", self.name(field)
            )
        return value

    @overload
    def flag(self, field: str) -> bool | None: ...
    @overload
    def flag(self, field: str, default: bool) -> bool: ...
    def flag(self, field: str, default: bool | None = None) -> bool | None:
        value = self._get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    @overload
    def whole(self, field: str, low: int = ..., high: int = ...) -> int | None: ...
    @overload
    def whole(self, field: str, low: int = ..., high: int = ..., *, default: int) -> int: ...
    def whole(
        self, field: str, low: int = -_MOST_WHOLE, high: int = _MOST_WHOLE, *, default: int | None = None
    ) -> int | None:
        """A whole number; 3.0 is one too."""
        value = self._get(field)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(field, f"a whole number{_range(low, high)}")
        return value

    @overload
    def number(self, field: str, low: float = ..., high: float = ...) -> float | None: ...
    @overload
    def number(self, field: str, low: float = ..., high: float = ..., *, default: float) -> float: ...
    def number(
        self, field: str, low: float = -math.inf, high: float = math.inf, *, default: float | None = None
    ) -> float | None:
        value = self._get(field)
        if value is None:
            return default
        try:
            single = is_number(value)
            found = float(value) if single else math.nan
        except OverflowError:  # a whole number may be longer than any float
            found = math.nan
        if not low <= found <= high:
            raise self.wrong(field, f"a number{_range(low, high)}")
        return found

    @overload
    def choice(self, field: str, words: Iterable[str]) -> str | None: ...
    @overload
    def choice(self, field: str, words: Iterable[str], default: str) -> str: ...
    def choice(self, field: str, words: Iterable[str], default: str | None = None) -> str | None:
        """One of some words."""
        value, allowed = self._get(field), list(words)
        if value is None:
            return default
        if not isinstance(value, str) or value not in allowed:
            raise self.wrong(field, f"one of {', '.join(allowed)}")
        return value

    def duration(self, field: str) -> float | None:
        """Seconds from 0 on, or FOR_EVER: a number, or a text such as 5m."""
        value = self._get(field)
        try:
            return None if value is None else read_keep_alive(value, field)
        except RequestError as error:
            raise self.wrong(field, EXPECTED) from error

    def fit(self, field: str, name: str, value: Any) -> Any:
        """`value` as it is, if it is one for the PARAMETER `name`, which the client calls `field`."""
        try:
            check_parameter(name, value)
        except ParameterError as error:
            if not isinstance(value, list):
                raise self.wrong(field, PARAMETERS[name].expected) from error
            said = self.name(field) + error.message.removeprefix(name)
            raise refused("invalid_request", said, self.name(field)) from error
        return value

    def items(self, field: str, most: int | None = None) -> list[Any]:
        """A list, [] where it is absent. most: how many there may be."""
        value = self._get(field)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(field, "a list")
        if most is not None and len(value) > most:
            where = self.name(field)
            raise refused(
                "invalid_request", f"{where} has {len(value)} entries, expected at most {most}", where
            )
        return value

    def fields(self, field: str) -> "Fields | None":
        """An object; None where it is absent."""
        value = self._get(field)
        return None if value is None else Fields(value, self.name(field), self._reads)

    def inner(self, field: str) -> "Fields":
        """An object that must be there."""
        value = self._get(field)
        if not isinstance(value, Mapping):
            raise self.wrong(field, "an object")
        return Fields(value, self.name(field), self._reads)

    def entry(self, value: object, where: str) -> "Fields":
        """An object in one of its lists. where: its whole name."""
        return Fields(value, where, self._reads)

    def each(self, field: str, most: int | None = None) -> Iterator["Fields"]:
        """The objects of a list."""
        for place, one in enumerate(self.items(field, most)):
            yield Fields(one, f"{self.name(field)}[{place}]", self._reads)

    def texts(self, field: str, most: int | None = None) -> list[str]:
        """A list of texts, or one text alone."""
        value = self._get(field)
        if isinstance(value, str):
            return [value]
        if value is not None and not isinstance(value, list):
            raise self.wrong(field, "a text, or a list of texts")
        found = self.items(field, most)
        for place, one in enumerate(found):
            if not isinstance(one, str):
                raise wrong(f"{self.name(field)}[{place}]", one, "a text")
        return found

    def refuse(self, field: str, why: str) -> None:
        """Refuse a field that carries something: not null, "", [], {} or false."""
        if self._get(field):
            raise refused("invalid_request", f"{self.name(field)}: {why}", self.name(field))


def _in_json(value: object) -> str:
    """A value as who writes JSON knows it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    return "an empty list" if value == [] else quoted(value)


def _range(low: float, high: float) -> str:
    least = None if low in (-math.inf, -_MOST_WHOLE) else low
    most = None if high in (math.inf, _MOST_WHOLE) else high
    if least is not None and most is not None:
        return f" from {least} to {most}"
    if least is not None:
        return f" of at least {least}"
    return "" if most is None else f" of at most {most}"
