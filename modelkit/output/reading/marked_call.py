"""A call as a name between marks, and its arguments behind it."""

import re
from collections.abc import Collection, Iterable

from modelkit.chat.styles.style import MarkedCall
from modelkit.output.reading import tags, values
from modelkit.output.reading.feed import BLANKS, Cut, Feed, NoCall, Waiting
from modelkit.output.reading.marks import core
from modelkit.output.reading.schemas import Schema
from modelkit.output.reading.values import Notation, Write
from runtime.records import dataclass

_LONGEST_HEAD = 512
NAME = re.compile(r"[\w.:/@$+-]{1,256}")
"""What a tool may be called that is not there."""


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in front of a call's arguments."""

    name: str
    id: str
    """"" where the model wrote none."""
    whole: str
    """Prefix, name and id as they are written."""


class Marked:
    """The calls of one answer. after: cores of the marks that may stand behind a call. begins: of those that
    begin one. lenient: the prefix may be missing behind the mark that opens a call.
    """

    def __init__(
        self,
        form: MarkedCall,
        feed: Feed,
        after: tuple[str, ...],
        begins: tuple[str, ...],
        *,
        lenient: bool,
    ) -> None:
        self._form, self._feed = form, feed
        self._begins, self._lenient = begins, lenient
        self.prefix = core(form.prefix)
        self._suffix = core(form.suffix).split()
        self._id_mark, self._id_before = core(form.id_mark), core(form.id_before)
        self._close = core(form.close)
        self._after = tuple(dict.fromkeys(one for one in (self._close, self.prefix, *after) if one))
        own = (core(form.tag.open),) if form.tag else ("{",)
        # A prefix of letters (`functions.`) may be in a name as well.
        behind = (one for one in self._after if not NAME.fullmatch(one))
        self._name_ends = tuple(dict.fromkeys((*self._suffix[:1], *own, *behind)))

    def head(self, tools: Collection[str], *, prefixed: bool) -> Waiting[Head]:
        """Up to the arguments. prefixed: the prefix is read already. Raises NoCall, and Cut."""
        before = self.prefix if prefixed else ""
        if not prefixed and self.prefix:
            before = (yield from self._feed.expect((self.prefix,))) or ""
            if not before and not (self._lenient and self._id_mark):
                raise NoCall
        written, end = yield from self._up_to(self._name_ends, tools)
        whole = end is not None
        for part in self._suffix:
            whole = (yield from self._feed.expect((part,))) is not None and whole
        if self._feed.cut and not whole:
            raise Cut
        if self._id_before:
            identity, _, name = written.rpartition(self._id_before)
        else:
            name, _, identity = written.rpartition(self._id_mark) if self._id_mark else (written, "", "")
        name, identity = (name, identity) if name else (identity, "")
        name = name.strip(BLANKS)
        if (end is None or end in self._begins) and name not in tools:
            raise NoCall  # it may be the beginning of a longer one, or words between two marks
        return Head(name, identity.strip(BLANKS), (before + written).strip(BLANKS))

    def _up_to(self, ends: tuple[str, ...], tools: Iterable[str]) -> Waiting[tuple[str, str | None]]:
        """The text before one of `ends`, and which one is there: else the answer ends. Raises NoCall as soon
        as it can be no name.
        """
        feed, count = self._feed, 0
        while not (found := (yield from feed.starts(ends, count))):
            if not (yield from feed.char(count)):
                break
            count += 1
            if count > _LONGEST_HEAD or not self._may_be(feed.text[feed.at : feed.at + count], tools):
                raise NoCall
        return feed.take(count), found

    def _may_be(self, written: str, tools: Iterable[str]) -> bool:
        """May it begin a name, with what stands between that and the end?"""
        said = written.strip(BLANKS)
        if not said or NAME.fullmatch(said) or any(tool.startswith(said) for tool in tools):
            return True
        mark = self._id_mark or self._id_before
        name, found, _ = said.partition(mark) if mark else (said, "", "")
        if not found and mark:
            name = next((said[:-n] for n in range(len(mark) - 1, 0, -1) if said.endswith(mark[:n])), said)
        return name != said and (not name or NAME.fullmatch(name.rstrip(BLANKS)) is not None)

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
