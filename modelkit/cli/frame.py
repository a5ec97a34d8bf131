"""What all commands share beyond click's own: tables in --help that fit the terminal, and groups that
suggest a command in place of one that they do not have.
"""

import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import click

from modelkit.cli.terminal.screen import echo, show_error

HELP_OPTIONS = ["-h", "--help"]
_LONG_WORD = re.compile(r"(\S{60})\S{300,}(\S{12})")
_IN_WORD, _HYPHEN = re.compile(r"(?<=\w)-(?=\w)"), "\u2011"
_FEWEST_COLUMNS = 52
_LEAST_COLUMNS = 20
Tables = Mapping[str, Sequence[tuple[str, str]]]


class HelpFormatter(click.HelpFormatter):
    """click's wraps at 50 columns wherever there are fewer, gives a first column 30 of them, and breaks the
    names of options at their hyphens.
    """

    def __init__(
        self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None
    ) -> None:
        columns = shutil.get_terminal_size().columns
        if width is None and columns < _FEWEST_COLUMNS:
            width = max(columns - 2, _LEAST_COLUMNS)
        super().__init__(indent_increment, width, max_width)

    def write_text(self, text: str) -> None:
        super().write_text(_unbroken(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        whole = [(first, _unbroken(second)) for first, second in rows]
        super().write_dl(whole, min(col_max, self.width // 2 - col_spacing), col_spacing)

    def write(self, string: str) -> None:
        super().write(string.replace(_HYPHEN, "-"))


def _unbroken(text: str) -> str:
    """With hyphens at which no line is broken, as long as it is being laid out."""
    return _IN_WORD.sub(_HYPHEN, text)


class Context(click.Context):
    formatter_class = HelpFormatter

    def invoke(self, callback: Any, /, *arguments: Any, **values: Any) -> Any:
        if self.args and not isinstance(self.command, click.Group):
            from modelkit.cli.suggest import unexpected_argument

            raise WrongUsage(unexpected_argument(self.args[0], self), self)
        return super().invoke(callback, *arguments, **values)


def shown_well(command: click.Command) -> click.Command:
    """The same, whose help fits its terminal, and which says what to do about an argument too many."""
    command.context_class = Context
    command.allow_extra_args = True  # of click, which refuses them without a word about what is meant
    return command


class Explained(click.Command):
    """A command whose --help ends in titled tables, such as that of the parameters."""

    def __init__(self, *arguments: Any, tables: Tables | None = None, **settings: Any) -> None:
        # As the program's own: click keeps the help option that a command was first asked for.
        context = {"help_option_names": HELP_OPTIONS, **settings.pop("context_settings", {})}
        super().__init__(*arguments, context_settings=context, **settings)
        self.tables = tables or {}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in self.tables.items():
            with formatter.section(title):
                formatter.write_dl(list(rows))
        super().format_epilog(ctx, formatter)


class WrongUsage(click.UsageError):
    """Usage as click shows it, and the message as all other errors are shown."""

    @classmethod
    def of(cls, error: click.UsageError) -> "WrongUsage":
        """What click says of a word, without all of a word of thousands of letters."""
        return cls(_LONG_WORD.sub(r"\1...\2", error.format_message()), error.ctx)

    def show(self, file: IO[Any] | None = None) -> None:
        to: IO[Any] = file or sys.stderr
        if self.ctx is not None:
            click.echo(f"{self.ctx.get_usage()}\nTry '{self.ctx.command_path} --help' for help.\n", file=to)
        show_error(self.message, file=to)


class Group(click.Group):
    """A group that shows its help when it is called alone, and suggests a command for a wrong one."""

    context_class = Context

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, invoke_without_command=True, **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        known = not name or name.startswith("-") or self.get_command(ctx, name) is not None
        if not known and not ctx.resilient_parsing:
            from modelkit.cli.suggest import unknown_command

            group = "" if ctx.parent is None else ctx.info_name or ""
            raise WrongUsage(unknown_command(name, self.names(ctx), group), ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        result = super().invoke(ctx)
        if ctx.invoked_subcommand is None:
            echo(ctx.get_help())
        return result

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        return command and shown_well(command)

    def names(self, ctx: click.Context) -> list[str]:
        """The words that are commands here, other spellings included."""
        return self.list_commands(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences: click would end them in dots."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, (one.help or "").split("\n\n")[0].replace("\n", " ")) for name, one in found if one]
            )
