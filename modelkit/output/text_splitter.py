"""The splitter of one answer: a machine over its characters, for every style of the table.

It waits for as little as can be: the longest end of the text that may yet become a mark legal at this place.
Marks are found in special tokens and in plain text alike. A special token that becomes no mark is silent, and
plain text that becomes none is text. Within a call's arguments nothing is a mark but what their own way of
writing says: see `reading`.
"""

from collections.abc import Mapping
from typing import Any, Literal

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import JsonCall, MarkedCall, PythonCall, Style
from modelkit.output.call_ids import CallIds
from modelkit.output.calls import FENCES, Calls
from modelkit.output.events import Text, Thinking
from modelkit.output.machine import Machine
from modelkit.output.reading.feed import BLANKS, Cut, NoCall, Waiting
from modelkit.output.reading.marks import Marks, core, lead, trail, without_lead

Role = Literal["think", "unthink", "wrap", "unwrap", "call", "stop"]
_MOST_HELD_BLANKS = 64
_OPENERS = frozenset({"think", "wrap", "call"})
_MARK_OR_JSON = ("", "[", "f")  # [THINK] or a list, functools or false


class TextSplitter(Machine):
    """An answer of a style without headers. tools: the schemas of their arguments, by name; without any, no
    call is looked for. json: all of its text is a JSON value.
    """

    def __init__(
        self,
        style: Style,
        opening: Opening,
        tools: Mapping[str, Any],
        earlier_calls: int = 0,
        *,
        json: bool = False,
    ) -> None:
        super().__init__(style.marks)
        self._style, self._json = style, json
        self._tools = tools if style.form else {}
        self._calls = Calls(style, tools, self._feed, self._sink, CallIds(style.ids, earlier_calls))
        self._roles = {thinking: self._legal(thinking=thinking) for thinking in (False, True)}
        self._marks = {
            thinking: Marks(roles, [lead(mark) for mark, _ in roles.values()])
            for thinking, roles in self._roles.items()
        }
        self._thinking = False
        self._fresh = True  # nothing but blanks since the beginning, since thinking or since calls
        self._begun = opening.place == "text" and not opening.written  # something was written before
        self._called = False
        self._unclosed = False  # a call came while the model thought, and ended that
        self._wrapped = False
        self._begin(opening.written)

    def _read(self) -> Waiting[None]:
        while (yield from self._part()):
            pass

    def _part(self) -> Waiting[bool]:
        """Read up to a mark and what it stands for. False at the answer's end."""
        if self._fresh and not self._thinking and (yield from self._bare()):
            return True
        found = yield from self._up_to_mark()
        if found is None:
            return False
        mark, role, before = found
        if role == "call":
            yield from self._call(mark, before)
            return True
        self._thinking = role == "think" or (role == "stop" and self._thinking)
        self._unclosed = False
        self._wrapped = role == "wrap"
        self._fresh = self._fresh or role != "unwrap" or self._style.bare  # Llama 4 calls behind its text
        if role in ("wrap", "unwrap"):
            self._calls.unheld()
        yield from self._feed.skip(trail(mark))
        return True

    def _legal(self, *, thinking: bool) -> dict[str, tuple[str, Role]]:
        """The marks that mean something there, by their cores."""
        style, found = self._style, dict[str, tuple[str, Role]]()

        def add(role: Role, marks: tuple[str, ...]) -> None:
            for mark in marks:
                if core(mark):
                    found.setdefault(core(mark), (mark, role))

        if style.think:
            add("unthink", style.think.closes)
            add("think", style.think.opens)
        if self._tools and not (thinking and style.inside_think == "text"):
            add("call", style.begins)
            if style.section and style.call:
                add("call", style.call.opens)
            if style.bare and not thinking and isinstance(style.form, MarkedCall):
                before = lead(style.begins[0]) if style.begins else ""
                add("call", (before + style.form.prefix,))
        if style.text:
            add("wrap", style.text.opens)
            if not thinking:
                add("unwrap", style.text.closes)
        add("stop", style.stops)
        return found

    def _means(self, core: str, role: Role, *, special: bool) -> bool:
        """Is such a mark one at this place? A special token is, wherever it stands, for it is never text; so
        is one with a bar in it, which nobody writes in prose.
        """
        if special or role == "call" or "|" in core or "｜" in core:
            return True
        if self._thinking:
            return role == "unthink" or (role == "think" and self._fresh)
        if role == "unwrap":
            return self._wrapped
        return self._fresh and (role != "unthink" or self._unclosed or not (self._begun or self._called))

    def _up_to_mark(self) -> Waiting[tuple[str, Role, str] | None]:
        """Let out text up to the next mark, which is taken: it, its role, and what it took with it of the
        blanks in front. None at the end.
        """
        feed, seen = self._feed, 0
        marks, roles = self._marks[self._thinking], self._roles[self._thinking]
        self._kind = Thinking if self._thinking else Text
        while True:
            look = marks.complete if feed.ended else marks.look
            place, found = look(feed.text, feed.at + seen)
            if found is None:
                if feed.ended:
                    self._last(place - feed.at)
                    return None
                seen = self._let_out(marks.before_lead(feed.text, feed.at, place) - feed.at, place - feed.at)
                yield from self._more(None if self._fresh else marks)
                continue
            offset = place - feed.at
            mark, role = roles[found]
            self._settle_fresh(offset)
            last = role == "stop" and not (yield from feed.char(offset + len(found)))
            if not last and (role == "stop" or not self._means(found, role, special=feed.special(offset))):
                seen = offset + len(found)
                self._settle_fresh(seen)
                continue
            return mark, role, self._taken(mark, role, found, offset)

    def _settle_fresh(self, count: int) -> None:
        """Are the next `count` characters more than the blanks that may lie between two marks?"""
        text = self._feed.text[self._feed.at : self._feed.at + count] if self._fresh else ""
        if text and (count > _MOST_HELD_BLANKS or not text.isspace()):
            self._fresh = False

    def _taken(self, mark: str, role: Role, found: str, offset: int) -> str:
        """Let out what stands before the mark, and take it."""
        feed = self._feed
        before = feed.text[feed.at : feed.at + offset]
        end = 0 if self._blank_only(before, role) else without_lead(before, lead(mark))
        if end:
            self._sink.text(self._kind, *feed.take_text(end))
        return feed.take(offset - end + len(found))

    def _blank_only(self, before: str, role: Role) -> bool:
        """Blanks in front of thinking or calls are nobody's text where no text is before them."""
        return self._fresh and role in _OPENERS | {"unthink"} and (not before or before.isspace())

    def _let_out(self, count: int, seen: int) -> int:
        """Let out `count` characters, but for blanks that may yet be in front of a mark; how many of the
        `seen` ones stay.
        """
        feed = self._feed
        self._settle_fresh(seen)
        if self._fresh:
            return seen
        if count:
            self._sink.text(self._kind, *feed.take_text(count))
        return seen - count

    def _last(self, count: int) -> None:
        """What the answer ends with; behind a call blanks are the style's."""
        in_mark = self._cut_in_mark(count)
        self._settle_fresh(count)
        if in_mark:
            self._feed.take(count)
        elif not (self._called and self._fresh):
            self._sink.text(self._kind, *self._feed.take_text(count))
        ids, logprobs = self._feed.rest()
        self._sink.text(self._kind, "", ids, logprobs)

    def _cut_in_mark(self, count: int) -> bool:
        """Is the answer cut off in a mark, with nothing else in these characters? Asked where it is to be
        JSON: without a form they may be text.
        """
        feed = self._feed
        rest = feed.text[feed.at : feed.at + count].strip(BLANKS)
        if not (self._json and feed.cut and self._fresh) or rest in _MARK_OR_JSON:
            return False
        return any(mark.startswith(rest) for mark in self._marks[self._thinking].cores)

    def _bare(self) -> Waiting[bool]:
        """Read calls that have no mark, where the style has such and one may stand here."""
        form, bare = self._style.form, self._style.bare or self._style.loose
        if not (self._tools and bare) or isinstance(form, MarkedCall) or form is None:
            return False
        place = yield from self._feed.blanks()
        char = yield from self._feed.char(place)
        if not (self._begins(form, char) or (yield from self._feed.starts(FENCES, place))):
            return False
        yield from self._call("", self._feed.take(place), known_only=True)
        return True

    @staticmethod
    def _begins(form: JsonCall | PythonCall, char: str) -> bool:
        if isinstance(form, JsonCall):
            return char in ("{", "[")
        return char == "[" if form.list else char.isalpha()

    def _call(self, mark: str, before: str, *, known_only: bool = False) -> Waiting[None]:
        """Calls behind a mark. What is none is text up to there, and looked through for marks behind it. One
        that is cut in its head is neither.
        """
        feed, form, told = self._feed, self._style.form, self._sink.calls
        bare = isinstance(form, MarkedCall) and self._style.bare and core(mark) == core(form.prefix)
        feed.keep(before)
        try:
            yield from self._calls.read(core(mark), known_only=known_only or bare)
        except (NoCall, Cut) as error:
            if self._sink.calls != told:
                self._thinking, self._called, self._unclosed = False, True, self._thinking
            if feed.cut and self._calls.certain:
                feed.take(len(feed.text) - feed.at)
            elif feed.kept is not None:
                kind = Thinking if self._thinking else Text
                self._sink.text(kind, *feed.take_text(feed.put_back()))
                self._fresh = False
                return
            if isinstance(error, Cut):
                raise
        else:
            self._unclosed = self._thinking
            self._thinking, self._fresh, self._called = False, True, True
