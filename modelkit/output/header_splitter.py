"""The splitter of answers that are messages, each behind a header that says what it is."""

from collections.abc import Mapping
from typing import Any

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Header, MarkedCall, Style
from modelkit.output.call_ids import CallIds
from modelkit.output.calls import Calls
from modelkit.output.events import Text, Thinking
from modelkit.output.machine import Machine
from modelkit.output.reading.feed import BLANKS, Cut, NoCall, Waiting
from modelkit.output.reading.marks import Marks, core

_LONGEST_HEADER = 512


class HeaderSplitter(Machine):
    """An answer. tools: as in TextSplitter."""

    def __init__(
        self,
        style: Style,
        header: Header,
        opening: Opening,
        tools: Mapping[str, Any],
        earlier_calls: int = 0,
    ) -> None:
        super().__init__(style.marks)
        self._style, self._header = style, header
        self._tools = tools if style.form else {}
        self._start, self._message = core(header.start), core(header.message) or header.message
        self._ends = tuple(dict.fromkeys(core(end) for end in header.ends if core(end)))
        whole = (header.text + header.message, *header.heads(self._tools)) if header.listed else ()
        self._listed = (*whole, *(header.start + one for one in whole))
        starts = self._listed[len(whole) :] or (self._start,)
        ends = Marks(one for one in (*self._ends, *starts) if one)
        ids = CallIds(style.ids, earlier_calls)
        self._calls = Calls(style, tools, self._feed, self._sink, ids, ends.cores)
        before, _, _ = header.call.partition("{name}")
        self._of_tools = before.partition(header.recipient)[2] if header.recipient else ""
        heads = (header.thinking, header.text, before, header.recipient, header.start)
        self._begins = tuple(core(head) for head in heads[:-1] if core(head))
        self._heads = tuple({_first_mark(core(head)) for head in heads})
        self._inner = tuple(
            one for one in self._heads if one.endswith("|>") and not one.startswith(self._start)
        )
        self._bounds = Marks((*ends.cores, *self._inner))
        self._in_text = opening.place == "text" and not opening.written
        self._begin(opening.written)

    def _read(self) -> Waiting[None]:
        if self._in_text:
            yield from self._text(Text)
        while True:
            said = yield from self._head()
            name = None if said is None else self._recipient(said)
            if said is None:
                yield from self._text(Text, headless=True)
            elif name is not None and self._tools:
                yield from self._call(name)
            else:
                yield from self._text(Thinking if self._thinks(said) else Text)

    def _head(self) -> Waiting[str | None]:
        """The next header, without its mark; None where text comes without one. Raises Cut where the answer
        ends before it is whole: no text is in it.
        """
        feed, count = self._feed, 0
        if self._listed:
            found = yield from feed.expect(self._listed)
            return None if found is None else found.removeprefix(self._header.start).strip(BLANKS)
        started = bool(self._start) and (yield from feed.expect((self._start,))) is not None
        if feed.cut and not started and self._start.startswith(feed.text[feed.at :].lstrip(BLANKS)):
            raise Cut
        first = yield from feed.blanks()
        if not (yield from feed.char(first)):
            raise Cut
        if (yield from feed.starts(self._heads, first)) is None:
            return None
        while not (yield from feed.starts((self._message,), count)):
            if not (yield from feed.char(count)):
                return self._unfinished()
            if count > _LONGEST_HEADER:
                return None
            count += 1
        said = feed.take(count)
        feed.take(len(self._message))
        return said.strip(BLANKS)

    def _unfinished(self) -> None:
        """The answer ends in what may be a header: it is one where it begins with a mark."""
        begun = self._feed.text[self._feed.at :].strip(BLANKS)
        if any(mark.startswith(begun) or begun.startswith(mark) for mark in self._begins):
            raise Cut

    def _recipient(self, said: str) -> str | None:
        """The tool that the message goes to; None where it goes to nobody, or to no tool."""
        if self._listed:
            return said if said in self._tools and said not in self._header.not_tools else None
        mark = core(self._header.recipient)
        _, found, behind = said.partition(mark) if mark else ("", said, said)
        name = behind.split(maxsplit=1)[0].split("<", 1)[0] if found and behind.strip() else ""
        if self._of_tools and name.startswith(self._of_tools):
            return name.removeprefix(self._of_tools)
        if not name or name in self._header.not_tools or (self._thinks(said) and name not in self._tools):
            return None
        return name

    def _thinks(self, said: str) -> bool:
        thinking = core(self._header.thinking)
        return thinking != "" and thinking in said

    def _text(self, kind: type[Text] | type[Thinking], *, headless: bool = False) -> Waiting[None]:
        """A message up to the mark that ends it, which is taken where it is not a header's beginning. A token
        that only headers have begins one, also where the model forgets to end the message. headless: what
        stands here is not a header, whatever it begins with.
        """
        feed, self._kind = self._feed, kind
        while True:
            look = self._bounds.complete if feed.ended else self._bounds.look
            place, found = look(feed.text, feed.at)
            if place > feed.at:
                self._sink.text(kind, *feed.take_text(place - feed.at))
                headless = False
            if found in self._inner and (headless or not feed.special(0)):
                self._sink.text(kind, *feed.take_text(len(found)))
            elif found:
                if found in self._ends:
                    feed.take(len(found))
                return
            elif feed.ended:
                ids, logprobs = feed.rest()
                self._sink.text(kind, "", ids, logprobs)
                raise Cut
            else:
                yield from self._more(self._bounds)

    def _call(self, name: str) -> Waiting[None]:
        form, feed = self._style.form, self._feed
        try:
            if isinstance(form, MarkedCall) and not form.named:
                yield from self._calls.body(name)
            else:
                feed.keep("")
                opened = yield from feed.expect(tuple(core(mark) for mark in self._style.begins))
                if opened is None:
                    raise NoCall
                yield from self._calls.read(opened)
        except (NoCall, Cut) as error:
            if feed.cut:
                raise Cut from None  # in a call's head, which is nobody's text
            if isinstance(error, Cut) and feed.kept is None:
                raise
            feed.put_back()
            return (yield from self._text(Text))
        yield from self._behind_call()

    def _behind_call(self) -> Waiting[None]:
        """To the end of the message: nothing that may stand there is for anybody. Where headers are listed, a
        call ends its message by itself.
        """
        feed = self._feed
        if self._listed:
            yield from feed.skip_blanks()
            return
        while True:
            place, found = self._bounds.look(feed.text, feed.at)
            feed.take(place - feed.at + (len(found) if found in self._ends else 0))
            if found:
                return
            if feed.ended:
                raise Cut
            yield


def _first_mark(head: str) -> str:
    """What any header of its kind begins with: a token, or all of one that has none."""
    before, bar, _ = head.partition("|>")
    return before + bar
