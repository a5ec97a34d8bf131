"""Reading lines from a person: prompt_toolkit's editor with a history, or plain `input`."""

from collections.abc import Callable
from typing import Any

from modelkit.settings import Settings

Reader = Callable[[str], str]  # prompt -> line; EOFError: the person leaves, KeyboardInterrupt: Ctrl-C

HISTORY = "history"


def open_reader() -> Reader:
    """An editor where the terminal can carry one. It is loaded here: nothing else of modelkit needs it."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.utils import is_dumb_terminal
    except ImportError:
        return input
    if is_dumb_terminal():
        return input
    session: PromptSession[str] = PromptSession(history=open_history())
    return session.prompt


def open_history() -> Any:
    """Kept in MODELKIT_HOME for its owner only; where that cannot be written, for this session only."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = Settings.from_environment().home / HISTORY
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.open("ab").close()
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
