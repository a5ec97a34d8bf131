"""The `modelkit` command: a table of commands, each imported only when it runs, and one way for errors to
look.

`modelkit --help` must answer in the blink of an eye, so nothing heavy may be imported here or at the top of a
command's module.

Exit codes: 0 done · 1 one clear message says why not · 2 wrong usage · 130 interrupted · 141 nobody reads the
output any more. Messages are plain text on standard error, under --json too: standard output then holds one
JSON document, or nothing.
"""

import os
import sys
from importlib import import_module
from typing import IO, Any, NoReturn

import click

from modelkit import __version__
from modelkit.cli.frame import HELP_OPTIONS, Group, WrongUsage, shown_well
from modelkit.cli.terminal import interrupts
from modelkit.cli.terminal.screen import OUTPUT, echo, naming, show_error, show_warnings
from modelkit.cli.terminal.ui import HOW_TO_GET_MLX
from modelkit.errors import ModelkitError
from modelkit.python_faults import os_message, shortage
from runtime.errors import RuntimeFault

# name -> (module, one line of help); the order is that of `modelkit --help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "create": ("modelkit.cli.create", "Make a package from a Modelfile."),
    "pull": ("modelkit.cli.pull", "Fetch a model from the hub or elsewhere."),
    "run": ("modelkit.cli.run", "Generate text, once or in a conversation."),
    "embed": ("modelkit.cli.embed", "Turn texts into vectors."),
    "list": ("modelkit.cli.list", "List the packages in the store (also: ls)."),
    "serve": ("modelkit.cli.serve", "Serve models over HTTP."),
    "ps": ("modelkit.cli.ps", "List the models that the server has loaded."),
    "load": ("modelkit.cli.load", "Load a model into the running server."),
    "stop": ("modelkit.cli.stop", "Unload a model from the running server."),
    "show": ("modelkit.cli.show", "Show what a package holds."),
    "plan": ("modelkit.cli.plan", "Show how several machines would share a model."),
    "compare": ("modelkit.cli.compare", "Compare two models on the same text."),
    "cp": ("modelkit.cli.copy", "Give a package a second name."),
    "rm": ("modelkit.cli.remove", "Remove packages."),
    "export": ("modelkit.cli.export", "Write a package as a folder or GGUF file for other tools."),
    "push": ("modelkit.cli.push", "Send a package to a registry."),
    "login": ("modelkit.cli.login", "Save a name and password for a registry."),
    "logout": ("modelkit.cli.logout", "Delete a saved name and password."),
    "verify": ("modelkit.cli.verify", "Check stored files against their digests."),
    "cache": ("modelkit.cli.cache", "List, show or clear the prompts kept on disk."),
    "prune": ("modelkit.cli.prune", "Delete files that no package needs."),
    "doctor": ("modelkit.cli.doctor", "Show what modelkit runs on here."),
}
ALIASES = {"ls": "list"}

NO_READER = 141
_TYPED = "modelkit.typed"  # the arguments as they were, for messages


class Failure(click.ClickException):
    """An error as the user sees it: one message, and what to do about it on its own line. Exit code 1."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        show_error(self.message, self.hint, file)


class LazyGroup(Group):
    """Knows its commands by name and imports one when it is used; each module defines `command`.

    Whatever a command raises on purpose leaves here as a message and an exit code.
    """

    def main(self, *arguments: Any, **settings: Any) -> Any:
        if "_MODELKIT_COMPLETE" in os.environ:
            import_module("modelkit.cli.completing")
        return super().main(*arguments, **settings)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[name][0]).command
        return shown_well(command)

    def names(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *ALIASES]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_TYPED] = list(args)
        try:
            with naming(OUTPUT):  # --help and --version are written here
                return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _worded(error, ctx) from error
        except BrokenPipeError:
            _leave_quietly(ctx)
        except OSError as error:
            raise Failure(os_message(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with interrupts.InOrder():
                result = super().invoke(ctx)
                with naming(OUTPUT):
                    sys.stdout.flush()
                return result
        except click.UsageError as error:
            raise _worded(error, ctx) from error
        except ModelkitError as error:
            raise Failure(error.message, error.hint) from error
        except RuntimeFault as error:
            raise Failure(str(error)) from error
        except ImportError as error:
            raise _without_mlx(error) from error
        except BrokenPipeError:
            _leave_quietly(ctx)
        except OSError as error:
            raise Failure(os_message(error)) from error
        except (MemoryError, RuntimeError) as error:
            if (short := shortage(error)) is None:
                raise
            raise Failure(short.message, short.hint) from error
        except (KeyboardInterrupt, click.Abort):
            echo("\ninterrupted" if sys.stderr.isatty() else "interrupted", err=True)  # behind the ^C there
            ctx.exit(interrupts.INTERRUPTED)


@click.group(cls=LazyGroup, context_settings={"help_option_names": HELP_OPTIONS})
@click.version_option(__version__, "-v", "--version", message="modelkit %(version)s")
def cli() -> None:
    """Package, quantize and run local language models on MLX.

    \b
    modelkit create mymodel -f Modelfile --quantize q4
    modelkit run mymodel "Why is the sky blue?"

    The store is in ~/.modelkit, or in the folder that MODELKIT_HOME names.
    """
    show_warnings()


def _worded(error: click.UsageError, ctx: click.Context) -> click.UsageError:
    """As it is shown. click would show its own as they are, bytes that move a cursor included."""
    if isinstance(error, WrongUsage):
        return error
    if isinstance(error, click.NoSuchOption):
        from modelkit.cli.suggest import unknown_option

        return WrongUsage(unknown_option(error.option_name, ctx.meta[_TYPED], error.ctx), error.ctx)
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        from modelkit.cli.suggest import missing_argument

        command = (error.ctx and error.ctx.command.name) or ""
        return WrongUsage(missing_argument(error.param.human_readable_name, command), error.ctx)
    return WrongUsage.of(error)


def _without_mlx(error: ImportError) -> Exception:
    """MLX is an extra on Linux, so users may have to install it. Any other missing module is a bug."""
    if (error.name or "").partition(".")[0] != "mlx":
        return error
    return Failure(f"MLX cannot be loaded: {error}", HOW_TO_GET_MLX)


def _leave_quietly(ctx: click.Context) -> NoReturn:
    """The reader of our output has gone (`modelkit list | head -1`); python would complain again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    ctx.exit(NO_READER)
