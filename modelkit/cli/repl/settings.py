"""What /set changes."""

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from modelkit import words
from modelkit.chat.styles.thinking import LEVELS, no_thinking
from modelkit.cli.options.forms import wanted_form
from modelkit.cli.repl.blocks import QUOTES, unquoted
from modelkit.cli.repl.session import OF_TEMPLATES
from modelkit.cli.suggest import close_to
from modelkit.cli.terminal.screen import state
from modelkit.errors import RequestError
from modelkit.modelfile import PARAMETERS, REFUSED, Parameters, check_name
from modelkit.python_faults import fault
from modelkit.requests.attached import read_adapters, read_texts, texts_of
from runtime.quoting import quoted

if TYPE_CHECKING:
    from modelkit.cli.repl.session import Session
    from modelkit.client.model_like import ModelLike

_LISTED = "/? lists it."
_SEVERAL = re.compile(r'"[^"]*"(\s+"[^"]*")+')


def words_of(text: str) -> tuple[str, str]:
    """The first word, and the rest. What is pasted may have a tab or a line end between them."""
    first, rest = (*text.split(None, 1), "", "")[:2]
    return first, rest.strip()


def _bare(value: str) -> str:
    """Without the quotes that a value may stand in, as in a Modelfile: blanks at its ends are kept so."""
    if value.startswith(QUOTES):
        return unquoted(value)
    in_quotes = len(value) > 1 and value[0] == value[-1] == '"' and '"' not in value[1:-1]
    return value[1:-1] if in_quotes else value


def set_something(session: "Session", rest: str) -> None:
    what, value = words_of(rest)
    if what not in SETTINGS:
        said = f"/set cannot set {quoted(what)}" if what else "/set what?"
        raise RequestError(said, hint=_meant(what, value) if what else _LISTED)
    SETTINGS[what](session, value)


def _meant(what: str, value: str) -> str:
    """A hint: one of ours, or a parameter, for which another word stands in front. what: NAME=VALUE, too."""
    what, equals, behind = what.partition("=")
    value = behind if equals else value
    word = words.find(words.PARAMETERS, what)
    refused = word.instead if word is not None and not word.ours else REFUSED.get(what)
    if refused:
        return f"It has no meaning here: {refused}."
    known = [what] if what in PARAMETERS else [word.ours] if word is not None else []
    found = known or close_to(what, (*SETTINGS, *PARAMETERS))
    given = value[:60] or "VALUE"
    whole = " or ".join(f"`/set {_line(one, given)}`" for one in found)
    return f"Did you mean {whole}?" if whole else _LISTED


def _line(one: str, value: str) -> str:
    if one in ALONE:
        return one
    return f"{one} {value}" if one in SETTINGS else f"parameter {one} {value}"


def set_parameter(session: "Session", text: str) -> None:
    name, value = words_of(text)
    if not name:
        raise RequestError("/set parameter what?", hint="Example: /set parameter temperature 0.2")
    if "=" in name:
        raise RequestError(f"/set cannot set {quoted(name)}", hint=_meant(name, value))
    if value:
        changed = Parameters()
        for one in _values(name, value):
            changed = changed.added(name, one)
        if session.plain and name in OF_TEMPLATES:
            raise RequestError(f"{name} has no effect: lines go to the model as they are")
        if PARAMETERS[name].at_load:
            hint = f"Leave, and start again with: modelkit run {session.name} -p {name}={value}"
            raise RequestError(f"{name} can only be set when the model is loaded", hint=hint)
        session.settings.parameters = session.settings.parameters.merge(changed)
    _show_parameter(session, name)


def _values(name: str, text: str) -> list[str]:
    """Several, each in quotes, of a parameter that may have several; else one."""
    several = PARAMETERS[check_name(name)].repeats and _SEVERAL.fullmatch(text)
    return re.findall('"([^"]*)"', text) if several else [_bare(text)]


def _show_parameter(session: "Session", name: str) -> None:
    """Its value, and whether that is only the default."""
    held = session.model.defaults.merge(session.settings.parameters)
    value = getattr(held.resolved(), check_name(name))
    shown = ", ".join(map(repr, value)) if isinstance(value, tuple) else value
    unset = "" if name in held else " (the default)"
    state(f"{name} is {'not set' if shown in (None, '') else shown}{unset}")


def _set_think(session: "Session", value: str) -> None:
    if value in ("on", "true", *LEVELS) and not _can_think(session.model):
        raise no_thinking(f"think cannot be {value}")
    set_parameter(session, f"think {value}")


def _can_think(model: "ModelLike") -> bool:
    """Can it be told to? True for a model of which that is not known."""
    if ask := getattr(model, "can_think", None):  # one in a server
        return bool(ask())
    offered = getattr(model, "thinking", None)
    return offered is None or offered.on is not None


def _set_thinking(session: "Session", value: str) -> None:
    if value not in ("shown", "hidden"):
        raise RequestError("/set thinking takes `shown` or `hidden`")
    session.settings.thinking = value == "shown"
    state(f"Thinking is {value}.")


def _set_system(session: "Session", text: str) -> None:
    if session.plain:
        raise RequestError("a model without a chat template takes no system message")
    session.settings.system = own = _bare(text) or None
    changed = "The system message is changed" if own else "The package's system message is used again"
    reread = "; the conversation will be processed again from its start" if session.conversation else ""
    state(f"{changed}{reread}.")


def _set_adapters(session: "Session", text: str) -> None:
    names = session.model.adapters
    word = "" if text in names else text
    some = [] if word == "none" else text.split()
    session.settings.adapters = None if word == "all" else read_texts(some, names)
    held = read_adapters(None, names) if session.settings.adapters is None else session.settings.adapters
    state(f"Adapters in use: {texts_of(held) or 'none'}.")


def _set_form(name: str) -> Callable[["Session", str], None]:
    def act(session: "Session", value: str) -> None:
        if not value:
            raise RequestError(f"/set {name} what?", hint=f"/set no{name} turns it off.")
        if name == "format" and value.startswith("{"):
            _check_json(value)
        given: dict[str, str | None] = {"format": None, "grammar": None, "regex": None, name: value}
        try:
            form = wanted_form(*given.values(), spelled="/set {}")
        except click.BadParameter as error:
            raise RequestError(error.message) from error
        _check(form)
        session.settings.form = form
        state(f"Answers follow this {name}.")

    return act


def _check(form: Mapping[str, str]) -> None:
    """What no model takes is said at once, and not with the next answer."""
    from modelkit.grammars.compiling.matchers import check
    from modelkit.grammars.forms import read_form

    wanted = read_form(form.get("format"), form.get("grammar"), form.get("regex"))
    if wanted is not None:
        check(wanted)


def _check_json(schema: str) -> None:
    try:
        json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"this schema is not valid JSON: {fault(error)}") from error


def _set_noform(name: str) -> Callable[["Session", str], None]:
    def act(session: "Session", rest: str) -> None:
        _alone(name, rest)
        session.settings.form = {}
        state("Answers have no fixed format now.")

    return act


def _set_nothink(session: "Session", rest: str) -> None:
    _alone("nothink", rest)
    _set_think(session, "off")


def _alone(name: str, rest: str) -> None:
    assert name in ALONE
    if rest:
        raise RequestError(f"/set {name} takes nothing after it")


def _set_verbose(verbose: bool) -> Callable[["Session", str], None]:
    def act(session: "Session", rest: str) -> None:
        _alone("verbose" if verbose else "quiet", rest)
        session.settings.verbose = verbose
        state(f"Timings are {'shown' if verbose else 'not shown'} after each answer.")

    return act


def read_tools(text: str) -> list[object]:
    """From JSON: one tool, or a list of them, with or without OpenAI's frame around a function."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"these tools are not valid JSON: {fault(error)}") from error
    listed = value if isinstance(value, list) else [value]
    return [
        {"type": "function", "function": one} if isinstance(one, dict) and "function" not in one else one
        for one in listed
    ]


SETTINGS: dict[str, Callable[["Session", str], None]] = {
    "parameter": set_parameter,
    "system": _set_system,
    "think": _set_think,
    "nothink": _set_nothink,
    "thinking": _set_thinking,
    "format": _set_form("format"),
    "noformat": _set_noform("noformat"),
    "grammar": _set_form("grammar"),
    "nogrammar": _set_noform("nogrammar"),
    "regex": _set_form("regex"),
    "noregex": _set_noform("noregex"),
    "adapters": _set_adapters,
    "verbose": _set_verbose(True),
    "quiet": _set_verbose(False),
}
ALONE = frozenset({"nothink", "noformat", "nogrammar", "noregex", "verbose", "quiet"})
"""They take no value."""
