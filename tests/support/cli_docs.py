"""The generated parts of docs/cli.md and docs/words.md, from the commands and tables that the program uses.

python -m tests.support.cli_docs    rewrites them in place
"""

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import cleandoc
from pathlib import Path

import click

from modelkit import words
from modelkit.cli.frame import Explained
from modelkit.cli.main import COMMANDS, cli
from modelkit.cli.repl import HELP

DOCS = Path(__file__).resolve().parents[2] / "docs"
_PLACE = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def part(name: str) -> str:
    """The text that stands behind `<!-- name -->`."""
    match name:
        case "commands":
            return "\n".join(_command(one, import_module(COMMANDS[one][0]).command) for one in COMMANDS)
        case "conversation":
            return _table(("in a conversation", ""), [(f"`{one}`", text) for one, text in HELP])
        case "command_words":
            return _words(words.COMMANDS, "modelkit ")
        case "option_words":
            return _words(words.OPTIONS, "")
        case "parameter_words":
            return _words(words.PARAMETERS, "")
        case "format_words":
            return _formats()
    raise ValueError(name)


def current(page: str) -> str:
    """The page with its generated parts as they are now."""
    return _PLACE.sub(lambda found: found[1] + part(found[2]) + found[3], page)


def _command(name: str, command: click.Command) -> str:
    """A section for a command, and for each command of a group."""
    # As the program does it: click keeps the help option that a command was first asked for.
    names = list(cli.context_settings["help_option_names"])
    context = click.Context(command, info_name=f"modelkit {name}", help_option_names=names)
    usage = " ".join([f"modelkit {name}", *command.collect_usage_pieces(context)])
    said = [f"### modelkit {name}\n", f"`{usage}`\n", _prose(command)]
    options = list(_options(command, context))
    if options:
        said.append(_table(("option", ""), options))
    if isinstance(command, click.Group):
        inner = [(one, command.get_command(context, one)) for one in command.list_commands(context)]
        said += [_command(f"{name} {one}", found) for one, found in inner if found]
    if isinstance(command, Explained) and "Formats" in command.tables:
        said.append(_table(("format", ""), [(f"`{row}`", text) for row, text in command.tables["Formats"]]))
    return "\n".join(said)


def _prose(command: click.Command) -> str:
    """The help as Markdown: what click keeps as it is (behind \\b) is shell."""
    blocks = []
    for block in cleandoc(command.help or "").split("\n\n"):
        kept = block.startswith("\b\n")
        blocks.append(f"```shell\n{block.removeprefix(chr(8)).strip()}\n```" if kept else block)
    return "\n\n".join(blocks) + "\n"


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            yield f"`{record[0]}`", record[1]


def _words(rows: Iterable[words.Word], before: str) -> str:
    return _table(("there", "here", "", "who says it"), [_row(word, before) for word in rows])


def _row(word: words.Word, before: str) -> tuple[str, str, str, str]:
    theirs = f"`{word.of} {word.theirs}`" if word.of else f"`{word.theirs}`"
    return theirs, f"`{before}{word.ours}`" if word.ours else "-", word.instead, word.whose


def _formats() -> str:
    by: dict[str, list[str]] = {}
    for word in words.FORMATS:
        by.setdefault(word.ours, []).append(f"`{word.theirs}`")
    return _table(("here", "there"), [(f"`{ours}`", ", ".join(theirs)) for ours, theirs in by.items()])


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    for path in (DOCS / "cli.md", DOCS / "words.md"):
        path.write_text(current(path.read_text(encoding="utf-8")), encoding="utf-8")
