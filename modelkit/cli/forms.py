"""The options that say what an answer shall look like, and what they hand to the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., None])


def form_options(command: _Command) -> _Command:
    """Add --format, --grammar and --regex."""
    options = (
        click.option(
            "--format",
            "output",
            metavar="json|@FILE|SCHEMA",
            help="Answer in JSON: any object, or what a JSON schema in a file or in the argument asks for.",
        ),
        click.option(
            "--grammar",
            "grammar",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Answer as this grammar wants it (Lark's syntax, or GBNF).",
        ),
        click.option("--regex", metavar="PATTERN", help="Answer with a text that matches this as a whole."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def wanted_form(output: str | None, grammar: Path | None, regex: str | None) -> dict[str, Any]:
    """What was given, as keywords of `Model.generate` and `Model.chat`."""
    if output is not None and output.startswith("@"):
        output = _read(Path(output[1:]), "--format")
    text = None if grammar is None else _read(grammar, "--grammar")
    given = {"format": output, "grammar": text, "regex": regex}
    return {name: value for name, value in given.items() if value is not None}


def _read(path: Path, option: str) -> str:
    from modelkit.grammar import MOST_CHARACTERS  # brings MLX, which --help can do without

    most = 4 * max(MOST_CHARACTERS.values())  # no character takes more bytes than four
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise click.BadParameter(f"{path} has more than {most:,} bytes", param_hint=f"'{option}'")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read: {error}", param_hint=f"'{option}'") from error
