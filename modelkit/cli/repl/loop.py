"""Lines until the person leaves. An error ends one line, never the conversation."""

import click

from modelkit.cli.repl.blocks import read_block
from modelkit.cli.repl.commands import take
from modelkit.cli.repl.session import Session
from modelkit.cli.terminal import interrupts
from modelkit.cli.terminal.lines import Reader
from modelkit.cli.terminal.screen import echo, show_error, state
from modelkit.errors import ModelkitError
from runtime.errors import RuntimeFault


def converse(session: Session, read: Reader) -> None:
    state("Type a message, or /? for help.")
    session.read = read
    while True:
        try:
            text = read_block(read)
        except EOFError:
            echo()
            return
        except KeyboardInterrupt:
            interrupts.handled()
            state("Ctrl-D or /bye leaves.")
            continue
        try:
            if not take(session, text):
                return
        except ModelkitError as error:
            show_error(error.message, error.hint)
        except RuntimeFault as error:
            show_error(str(error))
        except click.ClickException as error:
            show_error(error.format_message())
        except KeyboardInterrupt:
            interrupts.handled()
            state("(stopped)")
