"""-p NAME=VALUE: read, completed by the shell, and listed in --help."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from modelkit.cli.terminal.typed import TEXT
from modelkit.modelfile import PARAMETERS, Parameters
from runtime.quoting import quoted

TABLE = [(row.name, row.help) for row in PARAMETERS.values()]


def complete_setting(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names with their `=`, and behind it the words of a parameter that takes one of a few."""
    name, equals, _ = incomplete.partition("=")
    if not equals:
        rows = [row for row in PARAMETERS.values() if row.name.startswith(name)]
        return [CompletionItem(f"{row.name}=", help=row.help) for row in rows]
    row = PARAMETERS.get(name)
    words = [f"{name}={choice}" for choice in row.choices] if row is not None else []
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def setting_option(command: Any) -> Any:
    """Give a command `given`: the texts after each -p."""
    return click.option(
        "-p",
        "--parameter",
        "given",
        multiple=True,
        type=TEXT,
        metavar="NAME=VALUE",
        shell_complete=complete_setting,
        help="Set a parameter; may be repeated.",
    )(command)


def read_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """Keywords of `load`. Raises ParameterError, and BadParameter where there is no name or no `=`."""
    parameters = Parameters()
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            missing = "name in front of its `=`" if equals else "`=`"
            raise click.BadParameter(
                f"{quoted(setting)} has no {missing}; write NAME=VALUE", param_hint="'-p'"
            )
        parameters = parameters.added(name.strip(), value)
    return dict(parameters)
