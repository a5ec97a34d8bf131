"""Arguments of which each stands in marks of its own, written as a JSON object.

A text is let out while it is written, as far as the schema says that it is one. Anything else that fits into
a line is read whole first: `123 Main St` begins like a number and is a text.
"""

import json
from dataclasses import field, replace
from typing import Any

from modelkit.chat.styles.style import Tag
from modelkit.output.reading import values
from modelkit.output.reading.feed import BLANKS, Broken, Cut, Feed, Waiting
from modelkit.output.reading.literals import scalar
from modelkit.output.reading.marks import core, lead, of_one, trail
from modelkit.output.reading.schemas import KINDS, TEXT, Schema, Types
from modelkit.output.reading.values import DEEPEST, Write, escaped
from runtime.records import dataclass

_LONGEST_NAME = 1_024
_BEGIN_OTHERS = frozenset('{["-0123456789tfnTFN')


@dataclass(frozen=True, slots=True)
class Tagged:
    """How arguments are tagged, and what may stand behind the last."""

    tag: Tag
    after: tuple[str, ...]
    """Cores of the marks that may follow an argument. A text with the closing mark in it ends only where one
    of these, or another argument, or the answer's end comes next."""
    depth: int = 0
    """Of nested ones."""
    next: str = field(init=False)
    """The core of the mark that begins an argument."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "next", core(self.tag.open))


def members(feed: Feed, write: Write, how: Tagged, schema: Schema) -> Waiting[None]:
    """All arguments, as an object."""
    write("{")
    between = ""
    while (yield from _another(feed, how, schema)):
        name, kind = yield from _head(feed, how.tag)
        write(f"{between}{json.dumps(name, ensure_ascii=False)}: ")
        between = ", "
        yield from _value(feed, write, how, name, schema.member(name, typed=kind is not None), kind)
    write("}")


def _another(feed: Feed, how: Tagged, schema: Schema) -> Waiting[bool]:
    """Does an argument begin? Its mark is taken. One that another mark begins with is not it, unless that is
    what an argument of the tool's begins with.
    """
    place = yield from feed.blanks()
    found = yield from feed.starts((how.next, *how.after), place)
    if feed.cut and found is None:
        rest = feed.text[feed.at + place :]
        if any(mark.startswith(rest) for mark in (how.next, *how.after)):
            raise Cut
    if found is None or (found != how.next and not _is_argument(found, how, schema)):
        return False
    feed.take(place + len(how.next))
    return True


def _is_argument(mark: str, how: Tagged, schema: Schema) -> bool:
    """Is a mark that may follow the beginning of an argument that the schema names? Where names are tags
    (MiniMax M3), one called `tool_call` looks like the mark of calls.
    """
    name, end, behind = mark.removeprefix(how.next).partition(core(how.tag.name_end))
    return mark.startswith(how.next) and bool(end) and not behind and name in schema.names()


def _head(feed: Feed, tag: Tag) -> Waiting[tuple[str, str | None]]:
    """An argument's name, and what its type's attribute says; the mark behind them is taken."""
    kind = None
    if tag.type is not None:
        name, found = yield from _name(feed, (core(tag.type.open), core(tag.name_end)))
        if found == core(tag.type.open):
            kind, _ = yield from _name(feed, (core(tag.name_end),))
    else:
        name, _ = yield from _name(feed, (_first(tag.name_end),))
        if rest := core(tag.name_end)[len(_first(tag.name_end)) :].split():
            for part in rest:
                yield from feed.expect((part,))
    yield from feed.skip(trail(tag.name_end))
    return name.strip(BLANKS), kind


def _first(mark: str) -> str:
    """A mark up to a blank in its middle: how many stand there is not held against the model."""
    return core(mark).split()[0]


def _name(feed: Feed, ends: tuple[str, ...]) -> Waiting[tuple[str, str]]:
    count = 0
    while True:
        if found := (yield from feed.starts(ends, count)):
            name = feed.take(count)
            feed.take(len(found))
            return name, found
        if not (yield from feed.char(count)):
            raise Cut
        if count > _LONGEST_NAME:
            raise Broken
        count += 1


def _value(
    feed: Feed, write: Write, how: Tagged, name: str, schema: Schema, kind: str | None
) -> Waiting[None]:
    tag = how.tag
    types = schema.types
    may_hold = types is None or types & {"object", "array"}
    if tag.nested and may_hold:
        found = yield from _begins(feed, how, name)
        if found == how.next:
            return (yield from _nested(feed, write, how, name, schema))
        if found is not None and types is not None and (empty := _empty(schema, types)):
            yield from feed.expect((found,))
            return write(empty)
    if kind is not None and tag.type is not None:
        types = TEXT if kind.strip() == tag.type.text else _without_text(types)
    raw = Raw(feed, how, name)
    if types == TEXT:
        write('"')
        yield from raw.stream(lambda part: write(escaped(part)))
        return write('"')
    if types is not None and "string" not in types and (yield from feed.skip_blanks()) in "{[":
        yield from values.value(feed, write, values.JSON, how.depth + 1)
        return (yield from raw.close())
    yield from _undecided(feed, write, raw, types, schema)


def _empty(schema: Schema, types: frozenset[str]) -> str | None:
    """What nothing between the marks says, where it is not text."""
    written = {"string": "", "array": [], "object": {}}
    able = {kind: value for kind, value in written.items() if kind in types}
    meant = next((kind for kind, value in able.items() if schema.fits(value)), next(iter(able)))
    return None if meant == "string" else json.dumps(able[meant])


def _without_text(types: Types) -> Types:
    """Any type but text, where the style itself says that it is none."""
    kinds = (types or frozenset({"number", "integer", "boolean", "object", "array", "null"})) - {"string"}
    return kinds or None


def _undecided(feed: Feed, write: Write, raw: "Raw", types: Types, schema: Schema) -> Waiting[None]:
    """A value whose type is seen when it is whole; a text as soon as it can be nothing else."""
    place = yield from feed.blanks()
    char = yield from feed.char(place)
    if char not in _BEGIN_OTHERS and not (yield from feed.starts((raw.mark,), place)):
        write('"')
        yield from raw.stream(lambda part: write(escaped(part)))
        return write('"')
    parts: list[str] = []
    yield from raw.stream(parts.append)
    write(typed("".join(parts), types, schema))


def typed(written: str, types: Types, schema: Schema) -> str:
    """The JSON of a whole value: what it says where that may be meant, else its text."""
    said = written.strip(BLANKS)
    if types is not None and "string" not in types:
        said = scalar(said) or said  # True and None, where only they can be meant
    try:
        found = json.loads(said, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(written, ensure_ascii=False)
    if types is not None and _kind(found) not in types - {"string"}:
        return json.dumps(written, ensure_ascii=False)
    if (types is None or "string" in types) and not schema.fits(found) and schema.fits(written):
        return json.dumps(written, ensure_ascii=False)
    return _sound(found) if "\\u" in said else said


def _sound(found: object) -> str:
    """Half of a pair of surrogates without the other is not a character."""
    said = json.dumps(found, ensure_ascii=False)
    return said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _kind(found: Any) -> str:
    if isinstance(found, float) and found.is_integer():
        return "integer"
    return "null" if found is None else KINDS[type(found)]


class Raw:
    """The text of one argument, up to the mark that closes it."""

    def __init__(self, feed: Feed, how: Tagged, name: str) -> None:
        close = how.tag.close.replace("{name}", name)
        self._feed = feed
        self.mark = core(close)
        self._marks = of_one(self.mark)
        self._lead = lead(close)
        self._after = (how.next, *how.after)
        self._raw = how.tag.raw

    def close(self) -> Waiting[None]:
        """Behind a value that has ended by itself."""
        if (yield from self._feed.expect((self.mark,))) is None:
            raise Broken if (yield from self._feed.skip_blanks()) else Cut

    def stream(self, write: Write) -> Waiting[None]:
        """The text, as it comes, and the mark behind it."""
        feed = self._feed
        if self._raw is not None and (yield from feed.expect((self._raw.open,))) is not None:
            yield from self._to(self._raw.close, write)
            return (yield from self.close())
        while True:
            place, found = self._marks.look(feed.text, feed.at)
            begin = self._marked(place)
            if begin > feed.at:
                self._let_out(write, begin - feed.at)
            if found:
                if (yield from self._ends(place - begin)):
                    feed.take(place - begin + len(self.mark))
                    return
                self._let_out(write, place - begin + len(self.mark))
            elif feed.ended:
                self._let_out(write, len(feed.text) - feed.at)
                raise Cut
            else:
                yield

    def _to(self, mark: str, write: Write) -> Waiting[None]:
        """The text in front of a mark that nothing has to follow."""
        feed, marks = self._feed, of_one(mark)
        while True:
            place, found = marks.look(feed.text, feed.at)
            self._let_out(write, place - feed.at)
            if found:
                feed.take(len(mark))
                return
            if feed.ended:
                raise Cut
            yield

    def _let_out(self, write: Write, count: int) -> None:
        write(self._feed.take(count))

    def _marked(self, place: int) -> int:
        """Where the mark at `place` begins with the blanks that are its own."""
        text, least = self._feed.text, self._feed.at
        for count in range(min(len(self._lead), place - least), 0, -1):
            if text.startswith(self._lead[-count:], place - count):
                return place - count
        return place

    def _ends(self, offset: int) -> Waiting[bool]:
        """Does something come behind the mark that may?"""
        feed = self._feed
        behind = yield from feed.blanks(offset + len(self.mark))
        if not (yield from feed.char(behind)):
            return True
        return (yield from feed.starts(self._after, behind)) is not None


def _begins(feed: Feed, how: Tagged, name: str) -> Waiting[str | None]:
    """With which mark a value begins: another tag's, or the one that closes its own."""
    place = yield from feed.blanks()
    close = core(how.tag.close.replace("{name}", name))
    return (yield from feed.starts((how.next, close), place))


def _nested(feed: Feed, write: Write, how: Tagged, name: str, schema: Schema) -> Waiting[None]:
    if how.depth > DEEPEST:
        raise Broken
    close = core(how.tag.close.replace("{name}", name))
    inner = replace(how, after=(close,), depth=how.depth + 1)
    types = schema.types
    may_be_list = types is None or "array" in types
    between, ends, open_, place = "", "", False, 0
    while True:
        found = yield from feed.expect((how.next, close))
        if found != how.next:
            break
        key, kind = yield from _head(feed, how.tag)
        if key.startswith("/"):
            raise Broken  # it closes what is not open
        if not open_:
            is_list = may_be_list and key == how.tag.item
            write("[" if is_list else "{")
            ends, open_ = "]" if is_list else "}", True
        else:
            write(between)
        between = ", "
        if ends == "}":
            write(f"{json.dumps(key, ensure_ascii=False)}: ")
        part = schema.element(place) if ends == "]" else schema.member(key, typed=kind is not None)
        place += 1
        yield from _value(feed, write, inner, key, part, kind)
    if found is None:
        raise Broken if (yield from feed.skip_blanks()) else Cut
    write(ends)
