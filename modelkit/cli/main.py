"""The `modelkit` command: a table of commands, each imported only when it runs, and one way for errors to
look.

`modelkit --help` must answer in the blink of an eye, so nothing heavy may be imported here or at the top of a
command's module.

Exit codes: 0 done · 1 one clear message says why not · 2 wrong usage · 130 interrupted · 141 nobody reads the
output any more.
"""

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import IO, Any, NoReturn

import click

from modelkit import __version__
from modelkit.cli import ui
from modelkit.errors import ModelkitError
from runtime.errors import RuntimeFault

# name -> (module, one line of help); the order is that of `modelkit --help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "create": ("modelkit.cli.create", "Make a package from a Modelfile."),
    "run": ("modelkit.cli.run", "Generate text, once or in a conversation."),
    "list": ("modelkit.cli.list", "List the packages in the store (also: ls)."),
    "show": ("modelkit.cli.show", "Show what a package holds."),
    "cp": ("modelkit.cli.copy", "Give a package a second name."),
    "rm": ("modelkit.cli.remove", "Remove packages."),
    "export": ("modelkit.cli.export", "Lay a package out as a folder that other tools load."),
    "verify": ("modelkit.cli.verify", "Read every stored byte again and compare digests."),
    "cache": ("modelkit.cli.cache", "List, show or clear the prompts kept on disk."),
    "prune": ("modelkit.cli.prune", "Free what no package needs."),
    "doctor": ("modelkit.cli.doctor", "Say what modelkit runs on here."),
}
ALIASES = {"ls": "list"}

INTERRUPTED = 130
NO_READER = 141


class Failure(click.ClickException):
    """An error as the user sees it: one message, and what to do about it on its own line. Exit code 1."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        ui.show_error(self.message, self.hint, file)


class LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is used; each module defines `command`.

    Whatever a command raises on purpose leaves here as a message and an exit code.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ModelkitError as error:
            raise Failure(error.message, error.hint) from error
        except RuntimeFault as error:
            raise Failure(str(error)) from error
        except ImportError as error:
            raise _without_mlx(error) from error
        except BrokenPipeError:
            _leave_quietly(ctx)
        except OSError as error:
            raise Failure(_in_words(error)) from error
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-v", "--version", message="modelkit %(version)s")
def cli() -> None:
    """Package, quantize and run local language models on MLX.

    \b
    modelkit create mymodel -f Modelfile --quantize q4
    modelkit run mymodel "Why is the sky blue?"

    The store is under ~/.modelkit, or where MODELKIT_HOME says.
    """
    ui.show_warnings()


def main() -> None:
    """Entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot show a letter is no reason to stop
            stream.reconfigure(errors="replace")
    cli(prog_name="modelkit")


def _without_mlx(error: ImportError) -> Exception:
    """MLX is an extra on Linux, so its absence is a user's matter; that of any other module is a bug."""
    if (error.name or "").partition(".")[0] != "mlx":
        return error
    return Failure(f"MLX cannot be loaded: {error}", ui.HOW_TO_GET_MLX)


def _in_words(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{(error.strerror or str(error)).lower()}"


def _leave_quietly(ctx: click.Context) -> NoReturn:
    """The reader of our output has gone (`modelkit list | head -1`); python would complain again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    ctx.exit(NO_READER)
