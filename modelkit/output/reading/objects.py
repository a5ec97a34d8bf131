"""A call as a JSON object: the tool's name and its arguments as members of it, in any order."""

import json
from collections.abc import Callable

from modelkit.chat.styles.style import JsonCall
from modelkit.output.reading import values
from modelkit.output.reading.feed import Broken, Cut, Feed, NoCall, Waiting
from runtime.records import dataclass

_IDS = ("id", "call_id", "tool_call_id")
_QUOTES = ('"', "'")  # Python's dicts have either
_SAID = ("type", "index")  # members that others' shapes have, and that say nothing


@dataclass(frozen=True, slots=True)
class CallWriter:
    """Where a call goes while it is read."""

    start: Callable[[str, str | None], None]
    """The name is known, and the id where the style has one. Raises NoCall where the name is none."""
    write: Callable[[str], None]
    """The next piece of the arguments' JSON."""


class Objects:
    """The calls of one style."""

    def __init__(self, form: JsonCall, writer: CallWriter) -> None:
        self._form, self._writer = form, writer
        self._names = {form.name, "name"}
        self._arguments = {form.arguments, "arguments", "parameters"}
        self._ids = {form.id} if form.id else set[str]()

    def one(self, feed: Feed) -> Waiting[None]:
        """One call, from `{` to `}`. Raises NoCall where it is none, and nothing was told."""
        if (yield from feed.skip_blanks()) != "{":
            raise NoCall
        if self._form.name_is_key:
            return (yield from self._keyed(feed))
        reading = _Reading()
        try:
            yield from self._members(feed, reading, 0)
        except Cut:
            if reading.name is not None and not reading.started:
                self._tell(reading.name, reading)
            raise
        if reading.name is None:
            raise NoCall
        if not reading.started:
            self._tell(reading.name, reading)

    def _tell(self, name: str, reading: "_Reading") -> None:
        """All at once, with the arguments that came before the name."""
        self._writer.start(name, reading.id)
        if held := "".join(reading.held):
            self._writer.write(held)

    def _keyed(self, feed: Feed) -> Waiting[None]:
        feed.take(1)
        if (yield from feed.skip_blanks()) not in _QUOTES:
            raise NoCall
        name = yield from _text(feed)
        yield from _colon(feed)
        self._writer.start(name, None)
        yield from _arguments(feed, self._writer.write)
        if (yield from feed.skip_blanks()) != "}":
            raise Broken if feed.at < len(feed.text) else Cut
        feed.take(1)

    def _members(self, feed: Feed, reading: "_Reading", depth: int) -> Waiting[None]:
        feed.take(1)
        while (char := (yield from feed.skip_blanks())) != "}":
            if char == ",":
                feed.take(1)
                continue
            if char not in _QUOTES:
                raise self._fault(reading, char)
            key = yield from _text(feed)
            yield from _colon(feed)
            yield from self._member(feed, reading, key, depth)
        feed.take(1)

    def _member(self, feed: Feed, reading: "_Reading", key: str, depth: int) -> Waiting[None]:
        char = yield from feed.skip_blanks()
        if key in self._names and char in _QUOTES and reading.name is None:
            reading.name = yield from _text(feed)
        elif key == "function" and depth == 0 and char == "{":
            yield from self._members(feed, reading, 1)
        elif key == "function" and depth == 0 and char in _QUOTES and reading.name is None:
            reading.name = yield from _text(feed)
        elif key in self._arguments and not reading.done:
            yield from self._arguments_of(feed, reading)
        elif key in self._ids and char in "\"'-0123456789" and not reading.started:
            held: list[str] = []
            yield from values.value(feed, held.append)
            reading.id = str(json.loads("".join(held)))
        elif reading.started or key in _SAID or key in _IDS or self._form.id == key:
            yield from values.value(feed, _drop)
        else:
            raise NoCall

    def _arguments_of(self, feed: Feed, reading: "_Reading") -> Waiting[None]:
        """Told as they come where the name is known; kept until it is, else."""
        if reading.name is not None:
            self._writer.start(reading.name, reading.id)
            reading.started = True
        reading.done = True
        yield from _arguments(feed, self._writer.write if reading.started else reading.held.append)

    def _fault(self, reading: "_Reading", char: str) -> Exception:
        if not char:
            return Cut()
        return Broken() if reading.started else NoCall()


@dataclass(slots=True)
class _Reading:
    """How far one call is read."""

    name: str | None = None
    id: str | None = None
    started: bool = False
    """Told, so that arguments come as they are written."""
    done: bool = False
    """The arguments have come."""
    held: list[str] = None  # pyright: ignore[reportAssignmentType]
    """The arguments' JSON, as long as no name has come."""

    def __post_init__(self) -> None:
        self.held = []


def _drop(_: str) -> None:
    pass


def _text(feed: Feed) -> Waiting[str]:
    held: list[str] = []
    yield from values.text(feed, held.append)
    return json.loads("".join(held))


def _colon(feed: Feed) -> Waiting[None]:
    if (char := (yield from feed.skip_blanks())) != ":":
        raise NoCall if char else Cut
    feed.take(1)


def _arguments(feed: Feed, write: Callable[[str], None]) -> Waiting[None]:
    """An object; a text with the JSON of one in it; null for none."""
    char = yield from feed.skip_blanks()
    if char == "{":
        yield from values.members(feed, write)
    elif char in _QUOTES:
        yield from _within_text(feed, write)
    else:
        held: list[str] = []
        yield from values.value(feed, held.append)
        if held != ["null"]:
            raise Broken


def _within_text(feed: Feed, write: Callable[[str], None]) -> Waiting[None]:
    """The object that a JSON text holds, told as the text is written."""
    inner = Feed()
    reading = values.value(inner, write)
    over = False

    def unescaped(part: str) -> None:
        nonlocal over
        if part != '"' and not over:  # else one of the two at its ends
            inner.push(json.loads(f'"{part}"'), (), ())
            over = _resumed(reading)

    try:
        yield from values.text(feed, unescaped)
        inner.ended = True
        _ = over or _resumed(reading)
    except (Broken, Cut):
        if inner.ended or not feed.ended:
            raise Broken(inner.text[inner.at :]) from None
        raise


def _resumed(reading: Waiting[None]) -> bool:
    """Is it over?"""
    try:
        next(reading)
    except StopIteration:
        return True
    return False
