"""Calls of tools in a style's form, each in three parts: its head up to the arguments, the arguments by the
tool's schema, and what ends it.
"""

import json
from collections.abc import Sequence
from functools import cached_property

from modelkit.chat.styles.style import FENCE, LANGUAGES, JsonCall, MarkedCall, PythonCall, Style
from modelkit.grammars.calls.arguments import dict_arguments, python_arguments
from modelkit.grammars.calls.tagged_arguments import tagged_arguments
from modelkit.grammars.calls.tools import Tool
from modelkit.grammars.rules.rules import Rules, either, escaped, literal

_LANGUAGE = rf"({'|'.join(LANGUAGES)})?\s*"
_LISTED = r"(\[\s*)?"
_FRONT = rf"\s*(\]\s*)?({FENCE}\s*)?([,;]\s*)?({FENCE}{_LANGUAGE})?{_LISTED}"
"""What may stand in front of a call without marks: what ended another one, what begins a fence and a list."""
_IDS = {"own": "/[A-Za-z0-9_\\-]{1,64}/", "mistral9": "/[A-Za-z0-9]{9}/", "kimi": "/(0|[1-9][0-9]{0,3})/"}


class Calls:
    """Rules for the calls of these tools."""

    def __init__(self, rules: Rules, style: Style, tools: Sequence[Tool]) -> None:
        assert style.form is not None
        self._rules, self._style, self._form, self.tools = rules, style, style.form, tools
        self._arguments: dict[str, tuple[str, tuple[str, ...]]] = {}

    def block(self, *, many: bool) -> str:
        """All calls of one turn as they follow each other where nothing else stands between: section, list
        brackets, calls. It begins behind the blanks in front of its first mark.
        """
        style = self._style
        before = "".join(span.open for span in (style.section, style.call) if span)
        lead = len(before) - len(before.lstrip())
        opened = style.section.open[lead:] if style.section else ""
        first = (style.call.open if style.call else "")[0 if style.section else lead :]
        prefix = None if before else self.prefix
        return f"{self._rules.literal(opened)} {self.inner(first, many=many, prefix=prefix)}"

    def inner(self, first: str, *, many: bool, prefix: str | None = None) -> str:
        """Of the block, what follows its section's opening. first: what opens the first call. prefix: what
        the first call begins with there, where that is not what each begins with.
        """
        rules, style, one = self._rules, self._style, self._around(first, prefix)
        joiner, again = style.joiner or self._comma, self._around(style.call.open if style.call else "")
        inner = f"{one} ({rules.literal(joiner)} {again})*" if many and self._joins else one
        if self._listed:
            inner = f'"[" {inner} "]"'
        return f"{inner} {self._closed(style.section.close if style.section else '')}"

    @property
    def another(self) -> str:
        """A call behind others, with the blanks that templates have in front of it or without; "" where all
        stand in one block.
        """
        if self._joins:
            return ""
        opened = self._style.call.open if self._style.call else ""
        mark = opened or (self._form.prefix if isinstance(self._form, MarkedCall) else "")
        lead = mark[: len(mark) - len(mark.lstrip())]
        one = self._around(opened.lstrip(), None if opened else self.prefix)
        return f"({self._rules.literal(lead)})? {one}" if lead else one

    def _closed(self, close: str) -> str:
        """What ends a section. A lexer never goes back: where the mark begins as what joins two calls does,
        it would have taken the joiner for the mark's beginning, and no second call could come.
        """
        joiner = self._style.joiner
        lead = joiner if joiner != close and close.startswith(joiner) else ""
        return f"{self._rules.literal(lead)} {self._rules.literal(close[len(lead) :])}"

    def behind(self, opened: str, *, section: bool, many: bool) -> str:
        """What follows a first mark that is there already. section: whether it was the section's."""
        if section:
            first = self._style.call.open if self._style.call else ""
            return f"{self._rules.literal(opened)} {self.inner(first, many=many)}"
        return self._around(opened)

    def named(self, tool: Tool) -> str:
        """Behind the head of a call, and where it was the only one: arguments and what ends it."""
        style, rules = self._style, self._rules
        closed = rules.literal(style.call.close if style.call else "")
        outer = rules.literal(style.section.close if style.section else "")
        bracket = '"]"' if self._listed else ""
        return f"{self._filled(tool)} {closed} {bracket} {outer}"

    def unmarked(self) -> list[tuple[str, str]]:
        """For calls without marks around them that are known by the prefix and a name anywhere: (text that
        begins one, what follows).
        """
        form, style = self._form, self._style
        if not isinstance(form, MarkedCall) or not self.prefix:
            return []
        closed = f"({self._rules.literal(style.call.close)})?" if style.call and style.call.close else ""
        found: list[tuple[str, str]] = []
        for tool in self.tools:
            suffix = form.suffix.rstrip()
            tail = self._rules.literal(form.suffix[len(suffix) :])
            found.append((f"{form.prefix}{tool.name}{suffix}", f"{tail} {self._filled(tool)} {closed}"))
        return found

    def heads(self) -> str:
        """A regular expression for the beginning of a call without marks, in a fence or not."""
        if isinstance(self._form, MarkedCall):
            return rf"\s*{escaped(self._form.prefix)}({self._names})"
        return f"{_FRONT}{self._opened}{self._names_behind}"

    @cached_property
    def loose(self) -> list[tuple[str, str, str]]:
        """Calls without marks, laid out as the model likes, in a fence or not, behind nothing or another:
        (a regular expression for what they begin with, "" for nothing; one for how they go on; a rule for
        that). What they begin with is one terminal for all tools: one for each costs too much.
        """
        if isinstance(self._form, JsonCall):
            return [(f"{_FRONT}{self._opened}", self._names_behind, self._each(""))]
        behind = rf"\s*([,;]\s*)?({FENCE})?{_LANGUAGE}{_LISTED}"
        alone = r"\s*(\]\s*)?([,;]\s*)?"
        ways = [("", alone + _LISTED), (alone + FENCE, behind)]
        return [(front, lead + self._names_behind, self._each(lead)) for front, lead in ways]

    def _each(self, lead: str) -> str:
        """The calls, from the name on. lead: a regular expression for what stands in front of it."""
        rules, form, blank, ways = self._rules, self._form, r"\s{0,24}", list[str]()
        end = rules.terminal(rf"/{blank}\}}/")
        for tool in self.tools:
            if not isinstance(form, JsonCall):
                head = rules.terminal(rf"/{lead}{escaped(tool.name)}\s*\(/")
                ways.append(f'{head} {self.arguments(tool)} ")"')
                continue
            between = ""
            if not form.name_is_key:
                keys = "|".join(dict.fromkeys((escaped(form.arguments), "arguments", "parameters")))
                between = rf"{blank},{blank}\"({keys})\""
            colon = rules.terminal(rf"/{between}{blank}:{blank}/")
            value = rules.json(tool.parameters, "flexible")
            ways.append(f"{literal(tool.name + chr(34))} {colon} {value} {end}")
        closed = rules.terminal(rf"/{blank}(\]|(\]{blank})?{FENCE})/")
        return rules.rule(f"({either(ways)}) ({closed})?")

    @property
    def _opened(self) -> str:
        """A regular expression for a call without marks up to its name."""
        if not isinstance(self._form, JsonCall):
            return ""
        key = "" if self._form.name_is_key else rf"\"{escaped(self._form.name)}\"\s*:\s*"
        return rf"\{{\s*{key}\""

    @property
    def _names_behind(self) -> str:
        return rf"({self._names})" + (r"\"" if isinstance(self._form, JsonCall) else r"\s*\(")

    @property
    def _names(self) -> str:
        return "|".join(escaped(tool.name) for tool in self.tools)

    def _filled(self, tool: Tool) -> str:
        """Arguments, and what ends them."""
        return self.arguments(tool) if self._tagged else f"{self.arguments(tool)} {self._tail()}"

    @property
    def _tagged(self) -> bool:
        """Do arguments have what ends them in their rule?"""
        return isinstance(self._form, MarkedCall) and self._form.arguments == "tags"

    def arguments(self, tool: Tool) -> str:
        key = json.dumps(tool.parameters)
        if key not in self._arguments:
            self._arguments[key] = self._rules.rule(self._written(tool)), self._rules.left()
        rule, left = self._arguments[key]
        self._rules.notes.update(((tool.name, one), None) for one in left)
        return rule

    @property
    def prefix(self) -> str:
        """What each call begins with, inside any marks around it and behind blanks."""
        return self._form.prefix.lstrip() if isinstance(self._form, MarkedCall) else ""

    @property
    def _listed(self) -> bool:
        return isinstance(self._form, JsonCall | PythonCall) and self._form.list

    @property
    def _comma(self) -> str:
        return ", " if self._listed else ""

    @property
    def _joins(self) -> bool:
        """Does a call follow another without text between them? Else each begins at its own mark."""
        return self._listed or self._style.section is not None or bool(self._style.joiner)

    def _around(self, opened: str, prefix: str | None = None) -> str:
        closed = self._style.call.close if self._style.call else ""
        one = self._rules.rule(
            either(f"{self._head(tool, prefix)} {self._filled(tool)}" for tool in self.tools)
        )
        return self._rules.rule(f"{self._rules.literal(opened)} {one} {self._rules.literal(closed)}")

    def _head(self, tool: Tool, prefix: str | None) -> str:
        rules, ids = self._rules, _IDS[self._style.ids]
        match self._form:
            case JsonCall(name_is_key=True):
                return literal(f"{{{json.dumps(tool.name)}: ")
            case JsonCall() as form:
                said = f'"{form.name}": {json.dumps(tool.name)}, "{form.arguments}": '

                if form.id is None:
                    return literal("{" + said)
                known = f'({literal(json.dumps(form.id) + ": " + chr(34))} {ids} "\\", ")?'
                return f'"{{" {known} {literal(said)}'
            case MarkedCall(named=False):
                return '""'
            case MarkedCall(id_before=str() as mark) as form if mark:
                begun = rules.literal(form.prefix if prefix is None else prefix)
                return f"{begun} {ids} {rules.literal(mark + tool.name + form.suffix)}"
            case MarkedCall() as form:
                said = rules.literal((form.prefix if prefix is None else prefix) + tool.name)
                known = f"{rules.literal(form.id_mark)} {ids}" if form.id_mark else ""
                if known and self._style.ids != "kimi":
                    known = f"({known})?"
                return f"{said} {known} {rules.literal(form.suffix)}"
            case PythonCall():
                return literal(f"{tool.name}(")

    def _tail(self) -> str:
        match self._form:
            case JsonCall(id=str() as key):
                ids = _IDS[self._style.ids]
                return f'({literal(", " + json.dumps(key) + ": " + chr(34))} {ids} "\\"")? "}}"'
            case JsonCall():
                return '"}"'
            case MarkedCall() as form:
                return self._rules.literal(form.close)
            case PythonCall():
                return '")"'

    def _written(self, tool: Tool) -> str:
        match self._form:
            case MarkedCall(arguments="tags", tag=tag) as form if tag is not None:
                spans = [span for span in (self._style.section, self._style.call) if span]
                others = [form.prefix, *(mark for span in spans for mark in span.marks)]
                cores = dict.fromkeys(core for one in others if (core := one.strip()))
                return tagged_arguments(self._rules, tool.parameters, tag, form.close, [*cores])
            case MarkedCall(arguments="dict") as form:
                return dict_arguments(self._rules, tool.parameters, form.quote)
            case PythonCall():
                return python_arguments(self._rules, tool.parameters)
            case _:
                return self._rules.json(tool.parameters)
