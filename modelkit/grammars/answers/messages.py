"""An answer of messages, each behind a header that says what it is: gpt-oss and its kin.

    answer = (thinking end start | remark end start)* (text | call)

A remark is text in the channel of calls, to nobody: what the model says before it calls. Marks that end a
message and the answer with it are stop ids, and in no grammar. Where headers are listed (Functionary's),

    answer = text? call*

and text ends at the header of a tool. Where answers go on behind a call (Beam's),

    answer = (thinking end start)* (text | (text end start)? call (end start call)*)
"""

from collections.abc import Collection
from dataclasses import replace

from modelkit.chat.styles.style import Header
from modelkit.grammars.answers.answer import FORM, AnswerParts, allowed
from modelkit.grammars.calls.calls import Calls
from modelkit.grammars.calls.tools import Tool
from modelkit.grammars.rules.rules import Free, Marks, Outcomes, Rules, either, literal


class Messages:
    """marks, plain, outcome: as in Answer. stops: ids that end the answer."""

    def __init__(
        self,
        wanted: AnswerParts,
        marks: Marks,
        plain: Collection[int],
        outcome: Outcomes,
        stops: Collection[int],
    ) -> None:
        assert wanted.style.header is not None
        self._wanted, self._header, self._stops = wanted, wanted.style.header, stops
        self._rules = Rules(marks, outcome)
        self._heads = self._headers()
        self._free = Free(tuple(self._heads), allowed(wanted.style, self._rules, marks, plain))
        self._more: str | None = None
        self._calls: str | None = None

    def _headers(self) -> dict[str, Tool]:
        """The headers that text cannot have in it."""
        header = self._header
        if not header.listed:
            return {}
        return {header.start + head: tool for tool in self._called for head in header.heads([tool.name])}

    @property
    def notes(self) -> list[tuple[str, str]]:
        """(a tool, a sentence on what of its schema the grammar does not enforce)."""
        return list(self._rules.notes)

    def lark(self) -> str:
        """The grammar."""
        opening, rules = self._wanted.opening, self._rules
        again = rules.ahead()
        rules.define(again, self._next("", again))
        match opening.place:
            case "thinking":
                return rules.text(self._going_on(again))
            case "text":
                return rules.text(self._message_body())
            case "call":
                tool = self._wanted.tools[0]
                return rules.text(f"{Calls(rules, self._wanted.style, [tool]).named(tool)} {self._end(1)}")
            case "start":
                return rules.text(self._next(opening.written, again))

    def _next(self, written: str, again: str) -> str:
        """One message and all behind it. written: of its header, what is there already."""
        header, wanted = self._header, self._wanted
        ways = [(header.thinking, self._going_on(again))] if header.thinking else []
        remark = remark_of(header)
        if remark:
            ways.append((remark, self._going_on(again)))
        if wanted.choice != "required":
            ways.append((header.text, self._message_body()))
        if wanted.may_call:
            ways += [
                (header.call.replace("{name}", tool.name), f"{self._call(tool.name)} {self._behind()}")
                for tool in self._called
            ]
        begun = [
            ((head + header.message).removeprefix(written), rest)
            for head, rest in ways
            if self._fits(head, written)
        ]
        return either(f"{self._rules.literal(head)} {rest}" for head, rest in begun)

    @property
    def _called(self) -> list[Tool]:
        """The tools that a header can name."""
        return [tool for tool in self._wanted.tools if tool.name not in self._header.not_tools]

    def _fits(self, head: str, written: str) -> bool:
        return (head + self._header.message).startswith(written)

    def _going_on(self, again: str) -> str:
        """Text to the end of a message behind which another comes."""
        end, start = self._header.ends[0], self._header.start
        return f"{self._rules.until(end.strip(), self._free)} {self._rules.literal(start)} {again}"

    def _message_body(self) -> str:
        if self._wanted.form:
            return FORM
        ways = [self._rules.free(self._free)]
        for head, tool in self._heads.items() if self._wanted.may_call else ():
            others = tuple(one for one in self._heads if one != head)
            before = self._rules.until(head, replace(self._free, lacks=others))
            ways.append(f"{before} {self._call(tool.name)} {self._behind()}")
        if self._header.goes_on and self._wanted.may_call:
            before = self._rules.until(self._header.ends[0].strip(), self._free)
            ways.append(f"{before} {self._another_call()}")
        return self._rules.rule(either(ways))

    def _behind(self) -> str:
        """What may follow a call."""
        wanted, rules = self._wanted, self._rules
        if wanted.named or not wanted.parallel:
            return self._end(1)
        if self._header.goes_on:
            another = f"{rules.literal(self._header.ends[0])} {self._another_call()}"
            return rules.rule(f"{another} | {self._end(1) or literal('')}")
        if not self._heads:
            return self._end(1)
        if self._more is None:
            self._more = rules.ahead()
            calls = (f"{rules.literal(head)} {self._call(tool.name)}" for head, tool in self._heads.items())
            rules.define(self._more, f"({either(calls)})* {self._end(1)}")
        return self._more

    def _another_call(self) -> str:
        """Behind the mark that ended a message."""
        if self._calls is None:
            rules, header = self._rules, self._header
            self._calls = rules.ahead()
            calls = (
                f"{rules.literal(head)} {self._call(tool.name)} {self._behind()}"
                for tool in self._called
                for head in header.heads([tool.name])
            )
            rules.define(self._calls, f"{rules.literal(header.start)} ({either(calls)})")
        return self._calls

    def _call(self, name: str) -> str:
        tools = [tool for tool in self._wanted.tools if tool.name == name]
        return Calls(self._rules, self._wanted.style, tools).block(many=False)

    def _end(self, which: int) -> str:
        """The mark behind a message of this kind, unless it ends the answer."""
        ends = self._header.ends
        mark = ends[which] if which < len(ends) else ends[0]
        return "" if set(self._rules.pieces(mark)) & set(self._stops) else f"({self._rules.literal(mark)})?"


def remark_of(header: Header) -> str:
    """The header of a remark; "" for styles without."""
    head = header.call.partition(header.recipient)[0].rstrip() if header.recipient else ""
    return head if head.strip() and head not in (header.thinking, header.text) else ""
