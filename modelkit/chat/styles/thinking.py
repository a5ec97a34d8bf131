"""Which thinking a model offers, and how its template is told: found by rendering with each switch.

Templates have no common switch. Variables that are known are tried with the values that are known; one that
changes the prompt acts. What `think` asks for then becomes variables, or a clear refusal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Literal

from modelkit.chat.message import Message
from modelkit.chat.styles.ends import WORDS, Ends, ends_of, spoken
from modelkit.chat.styles.style import Style
from modelkit.chat.template import ChatTemplate
from modelkit.chat.time_limit import TimeLimit
from modelkit.errors import RequestError, TemplateError
from runtime.quoting import quoted
from runtime.records import dataclass

LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""From little to much."""
_SAME = {"ultra": "max", "extra-high": "xhigh"}
_ON, _OFF = ("on", "true", "enabled"), ("off", "none", "false", "disabled")

# Variables with the value that turns thinking off and the one that turns it on.
_SWITCHES: tuple[tuple[str, Any, Any], ...] = (
    ("enable_thinking", False, True),
    ("thinking", False, True),
    ("thinking_mode", "disabled", "enabled"),
    ("thinking_option", "off", "on"),
    ("reasoning", False, True),
    ("thinking_budget", 0, -1),
    ("skip_reasoning", True, False),
)
_EFFORTS = ("reasoning_effort", "thinking_effort", "reasoning_strength")
_NO_EFFORT = ("none", "no_think")
_NONSENSE = "markofkit"
# What a template that writes any effort into the prompt is asked with: what such models were trained on.
_PRINTED = ("low", "medium", "high")
_ASKED = (Message("user", "Hi"),)


@dataclass(frozen=True, slots=True)
class Thinking:
    """What a model's template offers."""

    can: bool = False
    """Does the model think, as far as template and style tell?"""
    default: Literal["on", "off", "own"] = "own"
    """Where nobody asks: thinking, not thinking, or as the model likes."""
    switch: str | None = None
    """The variable that turns it on and off, or sets how much; None if there is none."""
    on: Mapping[str, Any] | None = None
    """The variables that turn it on; None where it cannot be had."""
    off: Mapping[str, Any] | None = None
    """The variables that turn it off; None where it cannot be turned off. Empty where `ends` does it alone.
    """
    levels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """How much, some of LEVELS in their order, with the variables of each; none where it is on or off."""
    ends: Ends | None = None
    """What keeps the model from thinking at the end of the prompt; None where that is told elsewhere."""

    @property
    def description(self) -> str:
        """In a few words, for people."""
        if not self.can:
            return "no"
        parts = {"on": ["on"], "off": ["off, can be switched on"], "own": ["when the model likes"]}[
            self.default
        ]
        if self.default != "off":
            parts.append("can be switched off" if self.off is not None else "cannot be switched off")
        if self.levels:
            parts.append(f"levels {', '.join(self.levels)}")
        return ", ".join(parts)


def thinking_variables(
    style: Style | None, template: ChatTemplate, think: bool | str | None
) -> dict[str, Any]:
    """The template's variables for `think`: None as the template has it by itself, True, False, or one of
    LEVELS ("auto", "on", "off" and "none" are taken too). A level that the model does not tell apart becomes
    the nearest that it does; one that knows none thinks or does not.

    Raises RequestError for a model that cannot think, or not be kept from it, and for an unknown word.
    """
    asked = _read(think)
    if asked is None:
        return {}
    found = thinking_of(style, template)
    if asked is False:
        return _without(found, template)
    if found.on is None:
        raise no_thinking("think cannot be on")
    if asked is True or not found.levels:
        return {**found.on}
    return {**found.levels[nearest(asked, tuple(found.levels))]}


def ends_for(style: Style | None, template: ChatTemplate, think: bool | str | None) -> Ends | None:
    """What the prompt has to end with for `think`, whatever words its messages have; None where it is not to
    be off, or where that is not told at the end.
    """
    return thinking_of(style, template).ends if _read(think) is False else None


def nearest(level: str, offered: tuple[str, ...]) -> str:
    """Of the levels offered, the one that is nearest to `level`, and the lesser of two."""
    place = LEVELS.index(level)
    return min(offered, key=lambda one: (abs(LEVELS.index(one) - place), LEVELS.index(one)))


def no_thinking(said: str) -> RequestError:
    """said: which parameter cannot be what."""
    return RequestError(
        f"{said}: as far as its chat template tells, this model does not think",
        hint=f"Leave {said.split()[0]} out.",
    )


def idle(think: str, tokens: int, found: Thinking | None) -> tuple[str, ...]:
    """A note where these defaults of think and think_tokens act on no answer. found: None where there is no
    template.
    """
    if found is None:
        names = ["think"] * (think not in ("auto", "off")) + ["think_tokens"] * (tokens > 0)
        has = "have" if len(names) > 1 else "has"
        why = "without a chat template there is no place for that"
        return (f"{' and '.join(names)} {has} no effect: {why}",) if names else ()
    if tokens < 1 or found.can:
        return ()
    why = "as far as its chat template tells, this model does not think"
    return (f"think_tokens {tokens} has no effect: {why}",)


def _read(think: object) -> bool | str | None:
    if think is None or isinstance(think, bool):
        return think
    word = think.strip().lower() if isinstance(think, str) else None
    word = _SAME.get(word, word) if word else word
    if word == "auto":
        return None
    if word in _ON or word in _OFF:
        return word in _ON
    if word in LEVELS:
        return word
    raise RequestError(f"think is {quoted(think)}; expected true, false, auto, or one of {', '.join(LEVELS)}")


def _without(found: Thinking, template: ChatTemplate) -> dict[str, Any]:
    if not found.can:
        return {}
    if found.off is not None:
        return {**found.off}
    hint = f"The least that it does is '{next(iter(found.levels))}'." if found.levels else "Leave think out."
    if "/no_think" in template.source:
        hint = "Write /no_think into the system message."
    raise RequestError(
        "think cannot be off: this model's chat template has no switch that keeps it from thinking", hint=hint
    )


def thinking_of(style: Style | None, template: ChatTemplate) -> Thinking:
    """What the template offers. Some dozen renderings, once for each template."""
    if style is None:
        return _found(template, (), False)
    sure = bool(style.header and style.header.thinking) or bool((style.extra or {}).get("thinks", False))
    return _found(template, style.think.marks if style.think else (), sure)


@lru_cache(maxsize=32)
def _found(template: ChatTemplate, marks: tuple[str, ...], sure: bool) -> Thinking:
    """marks: of thinking, in the family's style. sure: does the model think whatever the template shows?"""
    probe = _Probe(template)
    switch, off, on = _switch(probe)
    variable, levels, none = _levels(probe, on or {})
    if off is None:
        off = none
    can = switch is not None or bool(levels) or sure or _shows(template, marks, probe.plain)
    default = _default(probe, off, on, can=can)
    ends = ends_of(probe.text(on or {}), probe.text(off), _ASKED[0].content) if off is not None else None
    if off is None and can and WORDS[1] in template.source:
        ends = spoken(probe.behind, _ASKED[0].content)
        off = {} if ends is not None else None
    if not can:
        return Thinking(False, default, switch or variable, None, None, levels, None)
    if on is None:
        must = levels and default == "off"  # a level alone turns it on
        on = levels["high" if "high" in levels else next(reversed(levels))] if must else {}
    return Thinking(True, default, switch or variable, on, off, levels, ends)


def _default(
    probe: "_Probe", off: Mapping[str, Any] | None, on: Mapping[str, Any] | None, *, can: bool
) -> Literal["on", "off", "own"]:
    """What a prompt is that says nothing of it: one of those that do, or another."""
    if off is not None and probe.text(off) == probe.plain:
        return "off"
    if on is None or probe.text(on) == probe.plain:
        return "on" if can else "off"
    return "own"


class _Probe:
    def __init__(self, template: ChatTemplate) -> None:
        self.template, self._time_limit = template, TimeLimit()
        self.plain = self.text({})

    def text(self, variables: Mapping[str, Any]) -> str | None:
        """The prompt of a question; None where the template refuses."""
        return self._rendered(_ASKED, variables)

    def behind(self, system: str) -> str | None:
        """The prompt of the question behind a system message."""
        return self._rendered((Message("system", system), *_ASKED), {})

    def _rendered(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> str | None:
        if self._time_limit.over:
            return None
        try:
            return self.template.render(messages, variables=variables)
        except TemplateError:
            return None


def _switch(probe: _Probe) -> tuple[str | None, Mapping[str, Any] | None, Mapping[str, Any] | None]:
    for name, off, on in _SWITCHES:
        if name in probe.template.variables:
            without, with_it = probe.text({name: off}), probe.text({name: on})
            if None not in (without, with_it) and without != with_it:
                return name, {name: off}, {name: on}
    return None, None, None


def _levels(
    probe: _Probe, on: Mapping[str, Any]
) -> tuple[str | None, dict[str, Mapping[str, Any]], Mapping[str, Any] | None]:
    """The variable that sets how much, what each level that acts is told with, and what turns it off."""
    for name in _EFFORTS:
        if name not in probe.template.variables:
            continue
        texts = {word: probe.text({**on, name: word}) for word in (*_NO_EFFORT, *LEVELS, _NONSENSE)}
        other = texts.pop(_NONSENSE)
        if other is not None and _NONSENSE in other:
            return name, {word: {**on, name: word} for word in _PRINTED}, None
        acting = {word: {**on, name: word} for word, text in texts.items() if text not in (None, other)}
        none = next((acting.pop(word) for word in _NO_EFFORT if word in acting), None)
        if not acting:
            return (None, {}, None) if none is None else (name, {}, none)
        if other is not None:  # what it does not know is its usual measure
            acting.setdefault("medium", {**on})
        return name, {word: acting[word] for word in LEVELS if word in acting}, none
    return None, {}, None


def _shows(template: ChatTemplate, marks: tuple[str, ...], prompt: str | None) -> bool:
    """A row's marks hold for a family; its template shows whether this model uses those of thinking."""
    return any(mark.strip() in text for mark in marks for text in (template.source, prompt or ""))
