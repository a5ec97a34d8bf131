"""A conversation in the terminal: what a person types becomes messages to the model, or a /command.

    loop           lines until the person leaves            session      one conversation with one model
    commands       /commands, as a table                    settings     what /set changes
    conversation   the messages, and how they are taken back
    saved          conversations on disk, for `run NAME -c`
    files          @file and /read                          completion   what Tab offers
    blocks         text of several lines

Ctrl-C stops an answer and keeps what came of it; Ctrl-D leaves. Nothing here knows how lines are read, so any
`Reader` will do.
"""

from modelkit.cli.repl.blocks import read_block
from modelkit.cli.repl.commands import HELP
from modelkit.cli.repl.loop import converse
from modelkit.cli.repl.session import Session

__all__ = ["HELP", "Session", "converse", "read_block"]
