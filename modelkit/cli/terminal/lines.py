"""Reading lines from a person: prompt_toolkit's editor with a history, or plain `input`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from modelkit.cli.terminal.screen import echo
from modelkit.cli.terminal.typed import as_text
from modelkit.settings import Settings

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

Reader = Callable[[str], str]  # prompt -> line; EOFError: the person leaves, KeyboardInterrupt: Ctrl-C
Offers = Callable[[str], Iterable[str]]  # a line up to the cursor -> words for its last one

HISTORY = "history"


def _never(_: str) -> bool:
    return False


def open_reader(offers: Offers | None = None, unfinished: Callable[[str], bool] = _never) -> Reader:
    """An editor where the terminal can carry one: history and search in it, Tab, Alt-Enter for a line end,
    Ctrl-G (or Ctrl-X Ctrl-E) for the person's own editor. It is loaded here: nothing else of modelkit needs
    it. unfinished: of a text that goes on; Enter gives it one more line, so that the history has all of it as
    one entry. Plain `input` gives line by line, also where what is drawn would go into a pipe or a file.
    """
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output.plain_text import PlainTextOutput
        from prompt_toolkit.utils import is_dumb_terminal
    except ImportError:
        return _plain
    if is_dumb_terminal():
        return _plain
    session: PromptSession[str] = PromptSession(
        history=open_history(),
        completer=None if offers is None else _completer(offers),
        complete_while_typing=False,
        key_bindings=_keys(unfinished),
        prompt_continuation=lambda _width, _line, wrapped: "" if wrapped else "... ",
        enable_open_in_editor=True,
        enable_suspend=True,
        tempfile_suffix=".txt",
    )
    if isinstance(session.output, PlainTextOutput):
        return _plain
    return lambda prompt: as_text(session.prompt(prompt))


def _plain(prompt: str) -> str:
    try:
        return as_text(input(prompt))
    except KeyboardInterrupt:
        echo()  # the terminal has written ^C behind the prompt
        raise


def open_history() -> Any:
    """Kept in MODELKIT_HOME for its owner only. Where that cannot be written (the disk may fill up),
    it is this session's.
    """
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class MayBeLost(FileHistory):
        def store_string(self, string: str) -> None:
            with suppress(OSError):
                super().store_string(as_text(string))

    path = Settings.from_environment().home / HISTORY
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.open("ab").close()
    except OSError:
        return InMemoryHistory()
    return MayBeLost(path)


def _completer(offers: Offers) -> "Completer":
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Words(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            line = document.text_before_cursor
            begun = len(line) - (line.rfind(" ") + 1)
            for word in offers(line):
                yield Completion(word, start_position=-begun)

    return Words()


def _keys(unfinished: Callable[[str], bool]) -> "KeyBindings":
    from prompt_toolkit.application import get_app
    from prompt_toolkit.filters import Condition, is_searching
    from prompt_toolkit.key_binding import KeyBindings

    keys, goes_on = KeyBindings(), Condition(lambda: unfinished(get_app().current_buffer.text))

    @keys.add("enter", filter=goes_on & ~is_searching)
    @keys.add("escape", "enter")
    def _(event: "KeyPressEvent") -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-g")
    def _(event: "KeyPressEvent") -> None:
        event.current_buffer.open_in_editor()

    return keys
