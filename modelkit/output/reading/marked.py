"""A call as a name between marks, and its arguments behind it."""

from collections.abc import Container

from modelkit.chat.styles.style import MarkedCall
from modelkit.output.reading import tags, values
from modelkit.output.reading.feed import BLANKS, Cut, Feed, NoCall, Waiting
from modelkit.output.reading.marks import core
from modelkit.output.reading.schemas import Schema
from modelkit.output.reading.values import Notation, Write
from runtime.records import dataclass

_LONGEST_HEAD = 512


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in front of a call's arguments."""

    name: str
    id: str
    """"" where the model wrote none."""
    whole: str
    """Prefix, name and id as they are written."""


class Marked:
    """The calls of one answer. after: cores of the marks that may stand behind a call. lenient: the prefix
    may be missing behind the mark that opens a call.
    """

    def __init__(self, form: MarkedCall, feed: Feed, after: tuple[str, ...], *, lenient: bool) -> None:
        self._form, self._feed = form, feed
        self._lenient = lenient
        self.prefix = core(form.prefix)
        self._suffix = core(form.suffix).split()
        self._id_mark = core(form.id_mark)
        self._close = core(form.close)
        self._after = tuple(dict.fromkeys(one for one in (self._close, self.prefix, *after) if one))
        own = (core(form.tag.open),) if form.tag else ("{",)
        self._name_ends = tuple(dict.fromkeys((*self._suffix[:1], *own, *self._after)))

    def head(self, tools: Container[str], *, prefixed: bool) -> Waiting[Head]:
        """Up to the arguments. prefixed: the prefix is read already. Raises NoCall, and Cut."""
        before = self.prefix if prefixed else ""
        if not prefixed and self.prefix:
            before = (yield from self._feed.expect((self.prefix,))) or ""
            if not before and not (self._lenient and self._id_mark):
                raise NoCall
        written, ended = yield from self._up_to(self._name_ends)
        whole = ended
        for part in self._suffix:
            whole = (yield from self._feed.expect((part,))) is not None and whole
        if self._feed.cut and not whole:
            raise Cut
        name, _, identity = written.rpartition(self._id_mark) if self._id_mark else (written, "", "")
        name, identity = (name, identity) if name else (identity, "")
        name = name.strip(BLANKS)
        if not ended and name not in tools:
            raise NoCall  # it may be the beginning of a longer one
        return Head(name, identity.strip(BLANKS), (before + written).strip(BLANKS))

    def _up_to(self, ends: tuple[str, ...]) -> Waiting[tuple[str, bool]]:
        """The text before one of `ends`, and whether one is there: else the answer ends."""
        count = 0
        while not (found := (yield from self._feed.starts(ends, count))):
            if not (yield from self._feed.char(count)):
                break
            if count > _LONGEST_HEAD:
                raise NoCall
            count += 1
        return self._feed.take(count), found is not None

    def arguments(self, write: Write, schema: Schema) -> Waiting[None]:
        """As a JSON object."""
        feed, form = self._feed, self._form
        char = yield from feed.skip_blanks()
        if form.arguments == "dict":
            yield from values.arguments(feed, write, Notation(form.quote, bare_keys=True), self._after)
        elif form.tag is None or char == "{":
            yield from values.arguments(feed, write, values.JSON, self._after)
        else:
            yield from tags.members(feed, write, tags.Tagged(form.tag, self._after), schema)

    def end(self) -> Waiting[None]:
        """The mark behind the arguments, where one stands there."""
        if self._close:
            yield from self._feed.expect((self._close,))
