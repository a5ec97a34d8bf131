"""The options that say what an answer shall look like, and what they hand to the model.

--format and --grammar take their text in the argument, or from a file as @FILE. A file's name without the @
is refused: it is neither JSON nor a grammar.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from modelkit.arguments import on_disk
from modelkit.cli.terminal.typed import TEXT, as_text
from modelkit.python_faults import unread
from modelkit.text_files import read_text
from runtime.quoting import MOST_OF_A_PATH, quoted, shown

_Command = TypeVar("_Command", bound=Callable[..., None])


def form_options(command: _Command) -> _Command:
    """Add --format, --grammar and --regex."""
    options = (
        click.option(
            "--format",
            "output",
            metavar="json|@FILE|SCHEMA",
            help="Answer in JSON: any object, or one that follows a JSON schema (in a file or given here).",
        ),
        click.option(
            "--grammar",
            "grammar",
            metavar="@FILE|GRAMMAR",
            help="Answer with a text that follows this grammar (in Lark's syntax or GBNF).",
        ),
        click.option(
            "--regex",
            type=TEXT,
            metavar="PATTERN",
            help="Answer with a text that matches this regular expression as a whole.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def wanted_form(
    output: str | None, grammar: str | None, regex: str | None, *, spelled: str = "--{}"
) -> dict[str, str]:
    """What was given, as keywords of `Model.generate` and `Model.chat`. spelled: how a message names what was
    given. Raises BadParameter.
    """
    given = {
        "format": _text(output, spelled.format("format")),
        "grammar": _text(grammar, spelled.format("grammar")),
        "regex": regex,
    }
    return {name: value for name, value in given.items() if value is not None}


def is_whole(form: dict[str, str], text: str) -> bool:
    """Is an answer that a limit cut whole all the same? Only JSON can tell; others count as cut."""
    if "format" not in form:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _text(value: str | None, option: str) -> str | None:
    if value is None:
        return None
    if value == "@":
        raise click.BadParameter("a file name must follow the @", param_hint=f"'{option}'")
    if value.startswith("@"):
        return _read(Path(on_disk(value[1:])), option)
    if _names_a_file(value):
        said = f"{quoted(value, MOST_OF_A_PATH)} is the name of a file"
        raise click.BadParameter(
            f"{said}; write {option} @{shown(value, MOST_OF_A_PATH)}", param_hint=f"'{option}'"
        )
    return as_text(value)


def _names_a_file(value: str) -> bool:
    """Neither JSON nor a rule of a grammar, and there or named like one."""
    if value == "json" or any(mark in value for mark in ("{", ":", "\n")):
        return False
    try:
        return Path(value).is_file() or Path(value).suffix in (".json", ".lark", ".gbnf")
    except (OSError, ValueError):
        return False


def _read(path: Path, option: str) -> str:
    from modelkit.grammars.forms import MOST_CHARACTERS  # brings MLX, which --help can do without

    most = 4 * max(MOST_CHARACTERS.values())  # no character takes more bytes than four
    try:
        with path.open("rb") as file:
            return read_text(file, most)
    except (OSError, ValueError) as error:
        why = unread(error)
        raise click.BadParameter(f"{path} cannot be read: {why}", param_hint=f"'{option}'") from error
