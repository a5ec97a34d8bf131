"""What to say to a command or an option that does not exist: ours with a close name, or what somebody who
knows another program is looking for. The words of other programs stand in `modelkit.words`.
"""

import difflib
from collections.abc import Collection, Iterable, Sequence

import click

from modelkit import words
from modelkit.modelfile import PARAMETERS, REFUSED
from runtime.quoting import shown

_CLOSE = 0.65


def unknown_command(name: str, commands: Collection[str], group: str = "") -> str:
    """A sentence, or two, about a command that does not exist. group: the command that it would be one of."""
    theirs = () if group else words.COMMANDS
    word = words.find(theirs, name)
    if word is not None:
        return f"There is no command '{name}': {_instead(word, 'modelkit ')}."
    said = f"There is no command '{shown(name)}'."
    close = close_to(name, commands)
    if close:
        return f"{said} Did you mean {_or(close)}?"
    near = [words.find(theirs, one) for one in close_to(name, [word.theirs for word in theirs])]
    if near and near[0] is not None:
        return f"{said} As for `{near[0].theirs}`: {_instead(near[0], 'modelkit ')}."
    return f"{said} `modelkit {group and group + ' '}--help` lists them."


def unknown_option(option: str, arguments: Sequence[str], ctx: click.Context | None) -> str:
    """About an option that a command does not have. arguments: what was typed, for the value in it."""
    typed, value = _as_typed(option, arguments)
    command = ctx.command if ctx is not None else None
    said = f"There is no option {shown(typed)}"
    behind = _command_with(typed, arguments, command, ctx)
    if behind is not None:
        return f"{said} of modelkit itself: it stands behind the command, `modelkit {behind} {typed}`."
    word = words.find(words.OPTIONS, typed, (command and command.name) or "")
    setting = _parameter(typed, value, word)
    if setting is not None:
        return f"{said}. {_place_of_parameters(setting, command)}"
    if word is not None:
        return f"{said}: {_instead(word)}."
    mine = (
        [one for parameter in command.params for one in parameter.opts if one[:1] == "-"] if command else []
    )
    close = close_to(typed, mine)
    if close:
        return f"{said}. Did you mean {_or(close)}?"
    near = difflib.get_close_matches(typed.lstrip("-").replace("-", "_"), PARAMETERS, n=1, cutoff=0.75)
    return f"{said}. {_place_of_parameters(f'{near[0]}={value or _VALUE}', command)}" if near else f"{said}."


def unexpected_argument(text: str, ctx: click.Context) -> str:
    """About an argument that is one too many. ctx: of the command that was called."""
    command = ctx.command
    wanted = [one for one in command.params if isinstance(one, click.Argument)]
    takes = " and ".join(one.human_readable_name for one in wanted) or "none"
    said = f"There is one argument too many, '{shown(text)}': `{ctx.command_path}` takes {takes}"
    hint = words.BEYOND.get(command.name or "")
    return f"{said}. {hint}." if hint else f"{said}."


def missing_argument(name: str, command: str) -> str:
    """About an argument of a command that was left out."""
    hint = words.MISSING.get(f"{command} {name}") or words.MISSING[name]
    return f"{name} is missing: {hint}."


_VALUE = "VALUE"


def _command_with(
    typed: str, arguments: Sequence[str], command: click.Command | None, ctx: click.Context | None
) -> str | None:
    """The command behind which an option stands that was typed before it."""
    if not isinstance(command, click.Group) or ctx is None:
        return None
    for argument in arguments:
        found = None if argument.startswith("-") else command.get_command(ctx, argument)
        if found is not None:
            return argument if any(typed in parameter.opts for parameter in found.params) else None
    return None


def _instead(word: words.Word, before: str = "") -> str:
    return word.instead or f"here it is `{before}{word.ours}`"


def _parameter(typed: str, value: str, word: words.Word | None) -> str | None:
    """NAME=VALUE, or the reason against it, where the option is the name of a parameter, ours or theirs.
    word: the row of OPTIONS that it has.
    """
    if word is not None or not typed.startswith("--"):
        if word is None or not word.ours.startswith("-p "):
            return None
        return f"{word.ours.removeprefix('-p ').partition('=')[0]}={value or _VALUE}"
    name = typed.lstrip("-").lower().replace("-", "_")
    if name in PARAMETERS:
        return f"{name}={value or _VALUE}"
    word = words.find(words.PARAMETERS, name)
    if word is not None:
        return f"{word.ours}={value or _VALUE}" if word.ours else word.instead
    return REFUSED.get(name)


def _place_of_parameters(setting: str, command: click.Command | None) -> str:
    if "=" not in setting:
        return f"{setting[:1].upper()}{setting[1:]}."
    if command is not None and any("-p" in parameter.opts for parameter in command.params):
        return f"Parameters are set with -p: -p {setting}"
    name, _, value = setting.partition("=")
    return f"Parameters are set by `run -p {setting}`, or in a Modelfile: PARAMETER {name} {value}"


def _as_typed(option: str, arguments: Sequence[str]) -> tuple[str, str]:
    """The whole word that the option came from, and its value."""
    place = _place_of(option, arguments)
    if place is None:
        return option, ""
    name, equals, value = arguments[place].partition("=")
    following = arguments[place + 1] if place + 1 < len(arguments) else ""
    given = value if equals else "" if following.startswith("-") else following
    if name.startswith(option) and name[2:].lstrip("-").isdigit():  # -n128
        return option, name[2:]
    return name, given


def _place_of(option: str, arguments: Sequence[str]) -> int | None:
    """Which of them it is in. Behind one dash each letter is an option to click: of -ngl it does not know -n,
    and of -version, where there is a -v, it does not know -e.
    """
    names = [one.partition("=")[0] for one in arguments]
    if option in names or option.startswith("--"):
        return names.index(option) if option in names else None
    words = [place for place, name in enumerate(names) if name[:1] == "-" != name[1:2]]
    begun = [place for place in words if names[place].startswith(option)]
    return next(iter(begun or [place for place in words if option[1] in names[place]]), None)


def close_to(name: str, known: Iterable[str]) -> list[str]:
    """Those of them that are spelled much like it, the closest first."""
    return difflib.get_close_matches(name[:32].lower(), list(known), n=2, cutoff=_CLOSE)


def meant(name: str, known: Iterable[str], otherwise: str) -> str:
    """A hint at those that somebody may have meant."""
    close = close_to(name, known)
    return f"Did you mean {_or(close)}?" if close else otherwise


def _or(names: Sequence[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)
