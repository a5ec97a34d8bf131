"""What a line does: a message, or a /command out of a table."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from modelkit.address import looks_like_path
from modelkit.arguments import on_disk
from modelkit.chat.styles.ends import WORDS
from modelkit.cli.repl.blocks import QUOTES, unquoted
from modelkit.cli.repl.files import fenced, read_text, unfound, with_files
from modelkit.cli.repl.settings import read_tools, set_something, words_of
from modelkit.cli.suggest import meant
from modelkit.cli.terminal.screen import echo, note, show_text, state
from modelkit.cli.terminal.tables import table
from modelkit.cli.terminal.ui import count, size
from modelkit.errors import RequestError
from modelkit.modelfile import Directive, Modelfile
from modelkit.python_faults import os_reason
from runtime.quoting import quoted, shown

if TYPE_CHECKING:
    from modelkit.chat.message import Message
    from modelkit.cli.repl.session import Session
    from modelkit.modelfile import Parameters

PARTS = ("info", "parameters", "system", "template", "license", "modelfile")
_COMMAND = re.compile(r"/(\w+|\?)")

HELP = (
    ("/set parameter NAME VALUE", "set a parameter; without VALUE, show it"),
    ("/set system TEXT", "change the system message; without TEXT, back to the package's"),
    ("/set think on|off|LEVEL", "whether the model thinks first (also: /set nothink)"),
    ("/set thinking shown|hidden", "whether its thinking is printed"),
    ("/set format json|@FILE|SCHEMA", "answer in JSON (off: /set noformat; also: grammar, regex)"),
    ("/set adapters [NAME[=SCALE] ...]", "which adapters to use: these, `none` or `all`"),
    ("/set verbose, /set quiet", "whether timings are shown after each answer"),
    ("/show [PART]", ", ".join(PARTS)),
    ("/retry", "answer the last message again, with a new seed"),
    ("/undo", "remove the last message and its answer"),
    ("/edit", "edit the last message in an editor and send it again"),
    ("/read FILE [TEXT]", "send a file, with TEXT before it"),
    ("/tools [FILE|off]", "tools that the model may call; you type their results"),
    ("/cache", "show the prompts cached in memory, as a tree"),
    ("/clear", "start a new conversation"),
    ("/drop", "remove the oldest turn"),
    ("/load NAME", "switch to another model and start a new conversation"),
    ("/save NAME", "save model, settings and conversation as a package"),
    ("/bye", "leave (also: Ctrl-D)"),
    ("@FILE", "inside a message: send that file along"),
    (f"{QUOTES}text{QUOTES}", "a message of several lines (also: Alt-Enter)"),
    ("Tab, Ctrl-R, Ctrl-G", "complete; search earlier lines; write in an editor"),
    ("Ctrl-C", "stop an answer; what came so far is kept"),
)


def take(session: "Session", text: str) -> bool:
    """Do what a line says; False when it says to leave. Raises ModelkitError."""
    word, rest = words_of(text)
    if _COMMAND.fullmatch(word) and word not in WORDS:  # those are for the model: a message may begin so
        _check_command(word)
        if rest and word in ALONE:
            raise RequestError(f"{word} takes nothing after it")
        if word in LEAVING:
            return False
        COMMANDS[word](session, rest)
        return True
    if text.strip():
        typed = unquoted(text)
        message, names = with_files(typed)
        for name in names:
            note(f"sent with the message: {name}")
        for name in unfound(typed):
            note(f"there is no file {name}; the message has only its name")
        session.ask(message)
    return True


def _check_command(word: str) -> None:
    if word not in COMMANDS and word not in LEAVING:
        hint = meant(word, (*COMMANDS, *LEAVING), "/? lists them.")
        raise RequestError(f"there is no command {shown(word)}", hint=hint)


def _help(_: "Session", word: str) -> None:
    """All of it, or the rows of one command."""
    command = f"/{word.removeprefix('/')}"
    if word:
        _check_command(command)
    echo(table([row for row in HELP if re.match(rf"{re.escape(command)}\b", row[0])] or HELP))


def _clear(session: "Session", _: str) -> None:
    session.start_anew()
    state("Started a new conversation.")


def _drop(session: "Session", _: str) -> None:
    dropped = session.conversation.drop_oldest()
    session.keep()
    state(f"Removed {count(dropped, 'message')}." if dropped else "There is no earlier turn to remove.")


def _undo(session: "Session", _: str) -> None:
    gone = session.conversation.undo()
    session.keep()
    state(f"Removed: {quoted(gone[0].content)}" if gone else "There is nothing to undo.")


def _retry(session: "Session", _: str) -> None:
    question = session.conversation.question
    if question is None:
        raise RequestError("there is no message to answer again")
    _ask_instead(session, question, seed=-1)


def _ask_instead(session: "Session", text: str, **once: Any) -> None:
    """In the place of the last turn, which stays if that goes wrong."""
    before = [*session.messages]
    session.conversation.undo()
    try:
        session.ask(text, **once)
    except BaseException:
        session.conversation.messages = before
        raise


def _edit(session: "Session", _: str) -> None:
    before = session.conversation.question
    if before is None:
        raise RequestError("there is no message to edit")
    written = _written(before)
    if written is None or not written.strip():
        state("Nothing was changed.")
        return
    _ask_instead(session, written.removesuffix("\n"))


def _written(before: str) -> str | None:
    """What the person's editor makes of it; None where nothing was saved."""
    try:
        return click.edit(before, extension=".txt")
    except (click.ClickException, ValueError) as error:  # not UTF-8, or an EDITOR with half a quotation
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        if isinstance(cause := error.__cause__, OSError):
            said = f"{cause.filename} cannot be opened: {os_reason(cause)}"
        raise RequestError(said, hint="The variable VISUAL or EDITOR chooses the editor.") from error


def _read(session: "Session", rest: str) -> None:
    if not rest:
        raise RequestError("/read what?", hint="Example: /read notes.txt Summarize this.")
    name, text = _name_and_rest(rest)
    file = fenced(name, read_text(name))
    session.ask(f"{text}\n\n{file}" if text else file)


def _name_and_rest(text: str) -> tuple[str, str]:
    """A name may stand between quotes."""
    found = re.match(r'"([^"]+)"\s*(.*)|(\S+)\s*(.*)', text, re.DOTALL)
    assert found is not None
    return (found[1], found[2]) if found[1] else (found[3], found[4])


def _tools(session: "Session", rest: str) -> None:
    if rest == "off":
        session.settings.tools = None
    elif rest:
        tools = read_tools(read_text(rest))
        session.check_tools(tools)
        session.settings.tools = tools
    held = session.settings.tools or []
    names = [str(one.get("function", {}).get("name")) for one in held if isinstance(one, dict)]
    state(f"The model may call {', '.join(names)}." if names else "The model may call no tools.")


def _cache(session: "Session", _: str) -> None:
    from modelkit.cli.cache import tree

    nodes = session.model.prefixes()
    echo(tree(nodes, session.model.decode) or "nothing is cached")
    if nodes:
        held, limit = sum(node.size_bytes for node in nodes), session.model.memory.prefix_bytes
        state(f"{size(held)} of at most {size(limit)}")


def _load(session: "Session", name: str) -> None:
    if not name or session.load is None:
        raise RequestError("/load what?" if not name else "no other model can be loaded here")
    session.switch(session.load(on_disk(name)), name)
    state(f"{name} answers now, in a new conversation.")


def _save(session: "Session", name: str) -> None:
    """As a package: FROM this model, with what was set, and the conversation as MESSAGEs. These go into the
    recipe as they are, since a Modelfile cannot hold every text: code has lines that end in three quotes.
    """
    from modelkit.cli.home import open_store
    from modelkit.pack.build import build
    from modelkit.store import Name

    if not name:
        raise RequestError("/save as what?", hint="Example: /save my-story")
    said = [one for one in session.messages if one.content and one.role in ("user", "assistant")]
    named = Name.new(name)
    recipe = replace(
        Modelfile((Directive("FROM", session.name),)).recipe(),
        system=session.settings.system,
        parameters=_set_parameters(session),
        messages=tuple((one.role, one.content) for one in said),
    )
    made = build(recipe, named, open_store())
    for sentence in made.notes:
        note(sentence)
    for what in _unsaved(session, said):
        note(f"{what} cannot be stored in a package and are left out")
    state(f"created {made.name}")


def _set_parameters(session: "Session") -> "Parameters":
    """By the person, here and where the conversation was started."""
    return session.settings.given.merge(session.settings.parameters)


def _unsaved(session: "Session", said: "Sequence[Message]") -> Iterator[str]:
    """What was set or said that the next start from the package does not have."""
    settings = session.settings
    if settings.adapters is not None:
        yield "chosen adapters (/set adapters)"
    if settings.form:
        yield "answer formats (/set format, grammar, regex)"
    if settings.tools:
        yield "tools (/tools)"
    if len(said) < len(session.messages):
        yield "tool calls and their results"


def _show(session: "Session", part: str) -> None:
    match part or "info":
        case "parameters":
            lines = session.model.defaults.merge(session.settings.parameters).texts()
            echo(table(lines) or "no parameter is set")
        case "system" if session.settings.system is not None:
            show_text(session.settings.system)
        case known if known in PARTS:
            _show_package(session, known)
        case _:
            hint = meant(part, PARTS, "/? lists what it can show.")
            raise RequestError(f"/show cannot show {quoted(part)}", hint=hint)


def _show_package(session: "Session", part: str) -> None:
    from modelkit.cli.home import open_store
    from modelkit.cli.show import overview, print_part
    from modelkit.showing.facts import facts_of

    if looks_like_path(session.name):
        raise RequestError(f"{session.name} is a folder; only packages can be shown")
    store = open_store()
    package = store.resolve(session.name)
    if part == "info":
        echo(overview(facts_of(store, package)))
    else:
        print_part(package, store, part, show_text)


LEAVING = ("/bye", "/exit", "/quit")
COMMANDS: dict[str, Callable[["Session", str], Any]] = {
    "/?": _help,
    "/help": _help,
    "/set": set_something,
    "/show": _show,
    "/retry": _retry,
    "/undo": _undo,
    "/edit": _edit,
    "/read": _read,
    "/tools": _tools,
    "/cache": _cache,
    "/clear": _clear,
    "/drop": _drop,
    "/load": _load,
    "/save": _save,
}
ALONE = frozenset({*LEAVING, "/retry", "/undo", "/edit", "/cache", "/clear", "/drop"})
"""They do not act on a part, or on several turns: who asks for that is not to lose more than was meant."""
