"""The calls of tools in an answer, in every form that a style may have.

A call is one from its name on: only then is it told. What began like one and has no name is given back.

Behind a style's own mark a grammar holds what a call says to the tool's schema, and as far as a model writes
calls without marks in the usual order, there as well. Otherwise a call without marks is kept until it is
whole, and one that does not fit its schema stays text.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from modelkit.chat.styles.style import FENCE, LANGUAGES, JsonCall, MarkedCall, PythonCall, Style
from modelkit.output.call_ids import CallIds
from modelkit.output.reading import python
from modelkit.output.reading.feed import BLANKS, Broken, Cut, Feed, NoCall, Waiting
from modelkit.output.reading.marked_call import NAME, Marked
from modelkit.output.reading.marks import Marks, core
from modelkit.output.reading.objects import CallWriter, Objects
from modelkit.output.reading.schemas import Schema
from modelkit.output.sink import Sink
from modelkit.schema import as_meant

FENCES = tuple(FENCE + language for language in (*LANGUAGES, ""))
_MOST_STRAY = 16
Reading = Callable[[], Waiting[None]]


class Calls:
    """Those of one answer. tools: the schemas of their arguments, by name. ends: marks that end the message
    that a call stands in.
    """

    def __init__(
        self,
        style: Style,
        tools: Mapping[str, Any],
        feed: Feed,
        sink: Sink,
        ids: CallIds,
        ends: tuple[str, ...] = (),
    ) -> None:
        self._form, self._tools = style.form, tools
        self._feed, self._sink, self._ids = feed, sink, ids
        self._known_only, self._bare, self._fenced = False, style.bare or style.loose, False
        self._bound, self._sure = style.bare, False
        self._sections = _cores(style.section.opens if style.section else ())
        self._opens = _cores(style.call.opens if style.call else ())
        spans = [span for span in (style.call, style.section) if span]
        self._closes = _cores(tuple(mark for span in spans for mark in span.closes))
        self._joiners = tuple(dict.fromkeys((",", ";", *_cores((style.joiner,)))))
        form = style.form if isinstance(style.form, JsonCall) else JsonCall()
        self._objects = Objects(form, CallWriter(self._take_name, self._write))
        self._usual = re.compile(r"\{" if form.name_is_key else rf'\{{\s*"{re.escape(form.name)}"\s*:\s*"')
        self.certain = False
        """A mark or a call is in front: what is read belongs to a call, wherever it is cut."""
        self._begun = 0
        self._unsure: tuple[str, str | None, list[str]] | None = None
        self._marked = None
        if isinstance(style.form, MarkedCall):
            begins = (*self._sections, *self._opens)
            after = (*self._closes, *begins, *ends)
            self._marked = Marked(style.form, feed, after, begins, lenient=bool(self._opens))
        begins = tuple(dict.fromkeys((*self._sections, *self._opens, self._prefix)))
        self._again = tuple(mark for mark in begins if mark)
        inner = (core(style.form.close),) if isinstance(style.form, MarkedCall) else ()
        self._stops = Marks(one for one in (*self._closes, *self._again, *ends, *inner) if one)
        tag = style.form.tag if isinstance(style.form, MarkedCall) else None
        self._marks = (*self._stops.cores, core(tag.open) if tag else "")

    @property
    def _prefix(self) -> str:
        return self._marked.prefix if self._marked else ""

    def read(self, opened: str, *, known_only: bool = False) -> Waiting[None]:
        """All calls behind the mark `opened` ("" for none), to where none follows. known_only: it takes a
        tool's name to be one. Raises NoCall where there is not one call, and Cut at the answer's end.
        """
        self._known_only, self.certain = known_only, bool(opened) and not known_only
        self._fenced = False
        if opened in self._sections:
            opened = (yield from self._feed.expect(self._opens)) or opened
        yield from self._one_or_list(opened)
        while (found := (yield from self._next())) is not None:
            self._feed.keep(found)
            yield from self._one_or_list(found)
        self._feed.kept = None

    def unheld(self) -> None:
        """What comes without a mark from here on, no grammar holds to its schema."""
        self._bound = False

    def body(self, name: str) -> Waiting[None]:
        """The arguments of a call that a header has named."""
        self._known_only = False
        self._start(name, None)
        marked, schema = self._marked, Schema(self._tools.get(name))
        if marked is not None:
            yield from self._arguments(lambda: marked.arguments(self._sink.write, schema))

    def _next(self) -> Waiting[str | None]:
        """The mark of another call; None where none follows."""
        feed, closed = self._feed, False
        while True:
            fence = (FENCE,) if self._fenced else ()
            found = yield from feed.expect((*self._closes, *self._joiners, *self._again, *fence))
            if found is not None and found in fence and found not in self._closes:
                self._fenced, closed = False, True
                continue
            if found is None:
                if not closed and (yield from self._one_too_many()):
                    continue
                if (yield from self._ends_in_mark(closed)):
                    raise Cut
                return "" if (yield from self._goes_on(closed)) else None
            if found in self._again:
                inner = (yield from feed.expect(self._opens)) if found in self._sections else None
                return inner or found
            closed = closed or found in self._closes

    def _one_too_many(self) -> Waiting[bool]:
        """Do brackets that close nothing stand in front of the mark that closes the call? They are taken."""
        count = 0
        while (
            (char := (yield from self._feed.char(count))) and char in f"}}]){BLANKS}" and count < _MOST_STRAY
        ):
            count += 1
        if not count or not char or (yield from self._feed.starts(self._closes, count)) is None:
            return False
        self._feed.take(count)
        return True

    def _ends_in_mark(self, closed: bool) -> Waiting[bool]:
        """Is the answer cut off in a mark that may stand in or behind a call? What came of it is nobody's
        text. closed: the one that closes it is read.
        """
        feed, place = self._feed, (yield from self._feed.blanks())
        rest = feed.text[feed.at + place :] if feed.ended else ""
        marks = self._marks if feed.cut else () if closed else self._closes
        if not rest or not any(mark.startswith(rest) for mark in marks):
            return False
        feed.take(place + len(rest))
        return True

    def _goes_on(self, closed: bool) -> Waiting[bool]:
        """Does another call come without a mark? closed: behind the mark that closes calls."""
        place = yield from self._feed.blanks()
        char = yield from self._feed.char(place)
        if isinstance(self._form, PythonCall):
            return not closed and not self._form.list and (char.isalpha() or char == "_")
        self._known_only = self._known_only or closed
        if not isinstance(self._form, JsonCall) or (closed and not self._bare):
            return False
        return char == "{" or (yield from self._feed.starts(FENCES, place)) is not None

    def _one_or_list(self, opened: str) -> Waiting[None]:
        if not isinstance(self._form, MarkedCall) and not self._fenced:
            self._fenced = (yield from self._feed.expect(FENCES)) is not None
        self._sure = bool(opened)
        char = yield from self._feed.skip_blanks()
        form, prefixed = self._form, bool(opened) and opened == self._prefix
        if isinstance(form, PythonCall):
            yield from self._listed(self._python, char)
        elif isinstance(form, JsonCall) or (char in ("{", "[") and opened and not prefixed):
            yield from self._listed(self._object, char)
        elif self._marked is not None:
            yield from self._one_marked(self._marked, prefixed=prefixed)
        else:
            raise NoCall

    def _listed(self, one: Reading, char: str) -> Waiting[None]:
        """Calls in a list, or one of them as it is. Where the list is not closed, what comes behind is looked
        at as if it were.
        """
        if char != "[":
            return (yield from one())
        feed = self._feed
        feed.take(1)
        if self._sure and (yield from feed.skip_blanks()) == "]":  # a way to say that nothing is called
            feed.take(1)
            feed.kept, self.certain = None, True
            return
        while True:
            yield from one()
            if (char := (yield from feed.skip_blanks())) == ",":
                feed.take(1)
                feed.keep(",")
                char = yield from feed.skip_blanks()
                if char != "]":
                    continue
            if char == "]":
                feed.take(1)
            feed.kept = None
            return

    def _object(self) -> Waiting[None]:
        self._begun = len(self._feed.kept_from())
        yield from self._arguments(lambda: self._checked(self._objects.one(self._feed)))

    def _python(self) -> Waiting[None]:
        if (yield from self._feed.skip_blanks()) == "{" and self._sure:  # as some are asked to write them
            return (yield from self._object())
        self._begun = len(self._feed.kept_from())
        name = yield from python.name(self._feed)
        name = name if name in self._tools else name.removesuffix(".call")
        self._take_name(name, None)
        schema = Schema(self._tools.get(name))
        reading = python.arguments(self._feed, self._write, schema)
        yield from self._arguments(lambda: self._checked(reading))

    def _one_marked(self, marked: Marked, *, prefixed: bool) -> Waiting[None]:
        head = yield from marked.head(self._tools, prefixed=prefixed)
        written = head.whole if self._ids.whole_head and head.id else head.id
        self._start(head.name, written)
        schema = Schema(self._tools.get(head.name))
        yield from self._arguments(lambda: marked.arguments(self._sink.write, schema))
        yield from marked.end()

    def _take_name(self, name: str, written: str | None) -> None:
        """The name of a call is known. One that no grammar has held is kept to its end."""
        if self._sure or (self._bound and not self._fenced and self._as_usual(name)):
            self._start(name, written)
        elif name not in self._tools:
            raise NoCall
        else:
            self._unsure = name, written, []
            self._feed.keep_on()

    def _as_usual(self, name: str) -> bool:
        """Did the call begin as one that the grammar knows?"""
        begun = self._feed.kept_from(self._begun)
        return begun == name if isinstance(self._form, PythonCall) else bool(self._usual.match(begun))

    def _write(self, part: str) -> None:
        if self._unsure is None:
            self._sink.write(part)
        else:
            self._unsure[2].append(part)

    def _checked(self, reading: Waiting[None]) -> Waiting[None]:
        """Raises NoCall for one that does not fit its schema."""
        try:
            yield from reading
            if self._unsure is None:
                return
            name, written, parts = self._unsure
            schema = json.loads(as_meant(json.dumps({"type": "object", **self._tools[name]})))
            if not Schema(schema).fits(json.loads("".join(parts) or "{}")):
                raise NoCall
            self._start(name, written)
            self._sink.write("".join(parts) or "{}")
        except (Broken, ValueError, RecursionError):
            if self._unsure is None:
                raise
            raise NoCall from None
        finally:
            self._unsure = None

    def _start(self, name: str, written: str | None) -> None:
        if name not in self._tools and (self._known_only or not NAME.fullmatch(name)):
            raise NoCall
        self._feed.kept, self.certain = None, True
        self._sink.start(self._ids.of(name, written), name)

    def _arguments(self, reading: Reading) -> Waiting[None]:
        """Read, and the call ends however that goes."""
        try:
            yield from reading()
        except Cut:
            if self._sink.calling:
                self._sink.end(whole=False)
            raise
        except (Broken, NoCall) as error:
            if not self._sink.calling:
                raise NoCall from None
            yield from self._give_up(error.lost if isinstance(error, Broken) else "")
        else:
            self._sink.end()

    def _give_up(self, lost: str) -> Waiting[None]:
        """The call is not a call any more: what stands in it goes to its end, for whoever looks into it."""
        feed, rest = self._feed, [lost]
        while True:
            place, found = self._stops.look(feed.text, feed.at)
            rest.append(feed.take(place - feed.at))
            if found or feed.ended:
                return self._sink.end("".join(rest) + ("" if found else feed.take(len(feed.text) - feed.at)))
            yield


def _cores(marks: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(core(mark) for mark in marks if core(mark)))
