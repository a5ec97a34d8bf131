"""A whole answer: thinking, text, calls and a form, as a style writes them and a request allows them.

    answer = thinking? (text call)* text          tools are there, and the choice is the model's
    answer = thinking? call call*                 a call is required: no text comes then, before it or behind
    answer = thinking? form                       the answer follows a form
    answer = thinking? (call call* | form)        tools and a form

What the prompt has opened already is left out in front (`Opening`). A text that follows a form is that and
nothing else: beside it stand only blanks that whoever reads the answer takes for a part of a mark. Around
JSON blanks say nothing, and any may stand there.
"""

from collections.abc import Collection
from functools import cached_property

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Span, Style
from modelkit.grammars.calls.calls import Calls
from modelkit.grammars.calls.tools import Tool
from modelkit.grammars.rules.rules import Free, Marks, Outcomes, Rules, either, tokens
from modelkit.output.reading.feed import BLANKS as BLANK
from modelkit.output.reading.marks import lead, trail
from runtime.records import dataclass

BLANKS = r"/[ \t\n]{0,2}/"  # as many as marks have
FORM = "@form"
_NOTHING = '""'
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """What an answer may have in it."""

    style: Style
    opening: Opening
    tools: tuple[Tool, ...] = ()
    """Those that may be called."""
    choice: str = "auto"
    """"auto", "none" or "required"."""
    named: bool = False
    """One call of the only tool, and nothing else."""
    parallel: bool = True
    form: bool = False
    """The answer's text follows a form, which the grammar names FORM."""
    json: bool = False
    """The form is of JSON."""

    @property
    def may_call(self) -> bool:
        return bool(self.tools) and self.choice != "none"


class Answer:
    """marks: all added tokens; plain: the ids of those that are text; outcome: as in Rules."""

    def __init__(self, wanted: AnswerParts, marks: Marks, plain: Collection[int], outcome: Outcomes) -> None:
        self._wanted, self._style = wanted, wanted.style
        self._rules = Rules(marks, outcome)
        self._calls = Calls(self._rules, wanted.style, wanted.tools) if wanted.style.form else None
        self._allows = allowed(wanted.style, self._rules, marks, plain)
        self._again: str | None = None

    @property
    def notes(self) -> list[tuple[str, str]]:
        """(a tool, a sentence on what of its schema the grammar does not enforce)."""
        return list(self._rules.notes)

    def lark(self) -> str:
        """The grammar."""
        opening, think = self._wanted.opening, self._style.think
        if opening.place == "call":
            assert self._calls is not None
            return self._rules.text(self._calls.named(self._wanted.tools[0]))
        if opening.place == "thinking" and think:
            return self._rules.text(self._thinking(think))
        if opening.place == "start" and think:
            opened = either(self._rules.literal(mark.strip()) for mark in think.opens if mark.strip())
            ways = [f"{BLANKS} ({opened}) {self._thinking(think)}", self._answer()]
            for mark in think.closes:
                ways.append(f"{BLANKS} {self._rules.literal(mark.strip())} {self._answer(trail(mark))}")
            return self._rules.text(either(ways))
        return self._rules.text(self._answer(self._unwritten()))

    def _thinking(self, think: Span) -> str:
        """Behind the mark that opens it."""
        rules, allows = self._rules, self._allows
        closes = {mark.strip(): trail(mark) for mark in reversed(think.closes)}
        calls = self._begins if self._style.inside_think == "call" and self._wanted.may_call else []
        if self._style.inside_think == "text" and (marks := self._mark_tokens()):
            allows = (*allows, tokens(marks))
        ways = list[str]()
        for mark, blanks in closes.items():
            lacks = (*(one for one in closes if one != mark), *(core for core, _ in calls))
            ways.append(f"{rules.until(mark, Free(lacks, allows))} {self._answer(blanks)}")
        for core, rest in calls:
            lacks = (*closes, *(one for one, _ in calls if one != core))
            ways.append(f"{rules.until(core, Free(lacks, allows))} {rest} {self._after()}")
        return rules.rule(either(ways))

    def _mark_tokens(self) -> list[int]:
        """Tokens of the marks of calls, where they are text."""
        spans = [span for span in (self._style.section, self._style.call) if span]
        pieces = [one for span in spans for mark in span.marks for one in self._rules.pieces(mark)]
        return [one for one in pieces if isinstance(one, int)]

    def _unwritten(self) -> str:
        """The blanks of the mark that the prompt ends with, as far as it has not written them."""
        style, written = self._style, self._wanted.opening.written
        before = [*(style.think.closes if style.think else ()), *(style.text.opens if style.text else ())]
        for mark in before:
            if mark.strip() and written.rstrip(BLANK).endswith(mark.strip()):
                return (
                    trail(mark).removeprefix(trail(written)) if trail(mark).startswith(trail(written)) else ""
                )
        return ""

    def _answer(self, blanks: str = "") -> str:
        """Behind thinking, or where none comes. blanks: of the mark in front, which may come or not."""
        wanted = self._wanted
        if wanted.form:
            ways = [self._formed(blanks)] if wanted.choice != "required" else []
            if wanted.may_call:
                ways.append(f"{BLANKS} {self._block} {self._after()}")
            return self._rules.rule(either(ways))
        if wanted.choice == "required":
            return self._rules.rule(f"{BLANKS} {self._block} {self._after()}")
        return self._auto()

    def _auto(self) -> str:
        """Text with calls where their marks stand, and without marks at its beginning where the style has it
        so.
        """
        if not self._calls:
            return self._rules.free(Free(allows=self._allows))
        unmarked = self._bare or self._style.loose
        if not self._wanted.may_call:
            return self._rules.rule(either(self._texts(self._calls.heads() if unmarked else "")))
        loose = self._calls.loose if unmarked else []
        ways = self._texts("|".join(front or names for front, names, _ in loose))
        for front, names, call in loose:
            here = f"{call} {self._after()}"
            begun = self._rules.rule(self._rules.terminal(f"/{front}/"), "[lazy]") if front else ""
            ways.append(f"{begun} ({either([*self._texts(names), here])})" if front else here)
        return self._rules.rule(either(ways))

    def _texts(self, beginning: str) -> list[str]:
        """Text, and calls where their marks stand in it. beginning: as in Free."""
        begins = self._begins
        lacks = tuple(core for core, _ in begins)
        ways = [self._rules.free(Free(lacks, self._allows, beginning))]
        for core, rest in begins if self._wanted.may_call else ():
            others = tuple(one for one in lacks if one != core)
            before = self._rules.until(core, Free(others, self._allows, beginning))
            ways.append(f"{before} {rest} {self._after()}")
        return ways

    def _after(self) -> str:
        """Behind calls."""
        if self._wanted.named or not self._wanted.parallel:
            return '""'
        if self._lasts:
            return self._others
        if self._wanted.form or self._wanted.choice == "required":
            return f"{self._others} {BLANKS}"  # a line end does not ask for another call
        if self._again is None:  # one rule, which comes back to itself
            self._again = self._rules.ahead()
            self._rules.define(self._again, self._auto())
        return self._again

    @property
    def _block(self) -> str:
        assert self._calls is not None
        return self._rules.rule(self._calls.block(many=self._wanted.parallel and not self._wanted.named))

    def _formed(self, blanks: str) -> str:
        span = self._style.text
        if span is None or not (span.open.strip() or span.close.strip()):
            return f"{self._some_of(blanks)} {FORM}"
        opened, closed = (self._rules.literal(mark.strip()) for mark in (span.open, span.close))
        begun = f"({self._some_of(blanks)} | {BLANKS} {opened} {self._some_of(trail(span.open))})"
        ended = f"({self._some_of(lead(span.close)[::-1])} {closed})?" if span.close.strip() else ""
        return self._rules.rule(f"{begun} {FORM} {ended}")

    def _some_of(self, blanks: str) -> str:
        """As many of a mark's blanks as may stand beside a form: none, or those from the first on."""
        if self._wanted.json:
            return BLANKS
        pattern = ""
        for char in reversed(blanks):
            pattern = f"({_ESCAPES.get(char, char)}{pattern})?"
        return f"/{pattern}/" if pattern else _NOTHING

    @property
    def _bare(self) -> bool:
        return self._style.bare and self._calls is not None and not self._calls.prefix

    @property
    def _lasts(self) -> bool:
        """Do calls last to the answer's end, as nothing closes them?"""
        spans = [span for span in (self._style.section, self._style.call) if span]
        return bool(spans) and not any(span.close for span in spans) and not self._style.bare

    @property
    def _others(self) -> str:
        """Further calls, where each begins at its own mark."""
        assert self._calls is not None
        another = self._calls.another if self._style.begins else ""
        return f"({another})*" if another else '""'

    @cached_property
    def _begins(self) -> list[tuple[str, str]]:
        """(core of a mark that begins calls, what follows it)."""
        calls, style = self._calls, self._style
        assert calls is not None
        many = self._wanted.parallel and not self._wanted.named
        spans = [(span, span is style.section) for span in (style.section or style.call,) if span]
        found = dict[str, str]()
        for span, section in spans:
            for mark in span.opens:
                if core := mark.strip():
                    found[core] = calls.behind(
                        mark[mark.find(core) + len(core) :], section=section, many=many
                    )
        if not spans and (prefix := calls.prefix):
            found[prefix] = calls.inner("", many=many, prefix="")
        if style.bare:
            found.update(dict(calls.unmarked()))
        return list(found.items())


def allowed(style: Style, rules: Rules, marks: Marks, plain: Collection[int]) -> tuple[str, ...]:
    """Lark of the added tokens that free text may have: those that are text, and the marks around it."""
    usual = [
        one for text, one in marks.items() if one in plain and not any(text in core for core in style.marks)
    ]
    allows = [tokens(usual)] if usual else []
    for mark in style.text.marks if style.text else ():
        core = mark.strip()
        if core and rules.pieces(core) != [core]:
            allows.append(rules.literal(core))
    return tuple(allows)
