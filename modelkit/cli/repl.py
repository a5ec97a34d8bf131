"""A conversation in the terminal: what a person types becomes messages to the model, or a /command.

`converse` loops over lines, `Session` holds the conversation. Ctrl-C stops an answer and keeps what came of
it; Ctrl-D leaves. Nothing here knows how lines are read, so any `Reader` will do.
"""

import re
from typing import TYPE_CHECKING, Any

from modelkit.attached import Chosen, read_adapters, read_texts, texts_of
from modelkit.cli import interrupts
from modelkit.cli.answer import cut, forgot, left_out, say, timings
from modelkit.cli.screen import echo, note, show_error, show_text
from modelkit.cli.tables import table
from modelkit.cli.terminal import Reader
from modelkit.cli.ui import size
from modelkit.errors import ModelkitError, RequestError
from modelkit.modelfile import PARAMETERS, Parameters, check_name, looks_like_path
from runtime.errors import RuntimeFault

if TYPE_CHECKING:
    from modelkit.client.offers import Answer, Offers
    from modelkit.generation import Generation

_COMMAND = re.compile(r"/(\w+|\?)")
_QUOTES = '"""'

HELP = (
    ("/set parameter NAME VALUE", "change a parameter; without VALUE, say what it is"),
    ("/set system TEXT", "another system message; no TEXT: the package's own"),
    ("/set adapters [NAME[=SCALE] ...]", "which adapters answer: these, none, or `all`"),
    ("/set verbose, /set quiet", "say after each answer how long it took, or do not"),
    ("/show [PART]", "info, parameters, system, template, license, modelfile"),
    ("/cache", "what is kept in memory of what was read, as a tree"),
    ("/clear", "forget the conversation"),
    ("/bye", "leave (also: Ctrl-D)"),
    (f"{_QUOTES}text{_QUOTES}", "a message of several lines"),
    ("Ctrl-C", "stop an answer; what came of it is kept"),
)


def converse(session: "Session", read: Reader) -> None:
    """Take lines until the person leaves. An error ends one line, never the conversation."""
    echo("Type a message, or /? for help.")
    while True:
        try:
            text = read_block(read)
        except EOFError:
            echo()
            return
        except KeyboardInterrupt:
            interrupts.handled()
            echo("Ctrl-D or /bye leaves.")
            continue
        try:
            if not session.take(text):
                return
        except ModelkitError as error:
            show_error(error.message, error.hint)
        except RuntimeFault as error:
            show_error(str(error))


def read_block(read: Reader) -> str:
    """One line, or several where three quotes are open at its end."""
    text = read(">>> ")
    while text.count(_QUOTES) % 2:
        text += "\n" + read("... ")
    return text


class Session:
    """The conversation with one model: its messages, and the settings that the person changed.

    `name` is what the model was loaded by. Where there is no chat template, or with `raw`, nothing is
    remembered: each line is continued as it is.
    """

    def __init__(
        self,
        model: "Offers",
        name: str,
        *,
        system: str | None = None,
        raw: bool = False,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.messages: list[dict[str, str]] = []
        self.parameters = Parameters()
        self.system = system
        self.verbose = verbose
        self.adapters: Chosen | None = None
        """Those that answer; None for all, as they are."""
        self._name = name
        self._dropped = 0
        self._plain = raw or (system is None and not model.has_template)

    def take(self, text: str) -> bool:
        """Do what a line says; False when it says to leave. Raises ModelkitError."""
        word, _, rest = text.strip().partition(" ")
        if _COMMAND.fullmatch(word):
            return self._command(word, rest.strip())
        if text.strip():
            self._answer(_unquoted(text))
        return True

    def _command(self, word: str, rest: str) -> bool:
        match word:
            case "/bye" | "/exit" | "/quit":
                return False
            case "/?" | "/help":
                echo(table(HELP))
            case "/clear":
                self.messages.clear()
                echo("The conversation starts anew.")
            case "/cache":
                self._show_cache()
            case "/set":
                self._set(*_words(rest))
            case "/show":
                self._show(rest or "info")
            case _:
                raise RequestError(f"there is no command {word}", hint="/? lists them.")
        return True

    def _answer(self, text: str) -> None:
        asked = {"role": "user", "content": text}
        stream = self._ask(asked)
        try:
            say(stream)
        except KeyboardInterrupt:
            interrupts.handled()
            echo("\n(stopped)", end="")
        echo("\n")
        answer = stream.result
        if not self._plain and answer.text:
            self.messages += [asked, {"role": "assistant", "content": answer.text}]
        self._say_left_out(answer)
        for sentence in filter(None, (forgot(answer), cut(answer, self.model))):
            note(sentence)
        if self.verbose:
            echo(timings(answer, self.model), err=True)

    def _say_left_out(self, answer: "Generation") -> None:
        """Once for each time that more of the conversation is left out."""
        sentence = left_out(answer, self.model)
        if sentence and answer.dropped_messages != self._dropped:
            note(f"{sentence}; num_keep says what stays, /clear starts anew")
        self._dropped = answer.dropped_messages

    def _ask(self, asked: dict[str, str]) -> "Answer":
        parameters: dict[str, Any] = dict(self.parameters)
        if self.adapters is not None:
            parameters["adapters"] = dict(self.adapters)
        if self._plain:
            return self.model.generate(asked["content"], raw=True, stream=True, **parameters)
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return self.model.chat([*system, *self.messages, asked], stream=True, **parameters)

    def _set(self, what: str, rest: str) -> None:
        match what:
            case "parameter":
                self._set_parameter(*_words(rest))
            case "system":
                self._set_system(rest)
            case "adapters":
                self._set_adapters(rest)
            case "verbose" | "quiet" if not rest:
                self.verbose = what == "verbose"
                echo(f"Timings are {'shown' if self.verbose else 'not shown'} after each answer.")
            case _:
                raise RequestError(f"/set cannot set {what!r}" if what else "/set what?", hint="/? lists it.")

    def _set_parameter(self, name: str, value: str) -> None:
        if not name:
            raise RequestError("/set parameter what?", hint="Example: /set parameter temperature 0.2")
        if not value:
            self._show_parameter(name)
            return
        changed = Parameters().added(name, value)
        if PARAMETERS[name].scope in ("context", "machine"):
            hint = f"Leave, and start again with: modelkit run {self._name} -p {name}={value}"
            raise RequestError(f"{name} is settled when the model is loaded", hint=hint)
        self.parameters = self.parameters.merge(changed)
        self._show_parameter(name)

    def _show_parameter(self, name: str) -> None:
        """Its value, and whether that is only the default."""
        held = self.model.defaults.merge(self.parameters)
        default = held.resolved()
        value = getattr(default, check_name(name))
        shown = ", ".join(map(repr, value)) if isinstance(value, tuple) else value
        unset = "" if name in held else " (the default)"
        echo(f"{name} is {'not set' if shown in (None, '') else shown}{unset}")

    def _set_adapters(self, text: str) -> None:
        names = self.model.adapters
        self.adapters = None if text == "all" and text not in names else read_texts(text.split(), names)
        held = read_adapters(None, names) if self.adapters is None else self.adapters
        echo(f"What answers: {texts_of(held) or 'the model alone'}.")

    def _set_system(self, text: str) -> None:
        if self._plain:
            raise RequestError("without a chat template there is no place for a system message")
        self.system = _unquoted(text) or None
        echo("The system message is changed." if self.system else "The package's own system message holds.")

    def _show(self, part: str) -> None:
        match part:
            case "parameters":
                lines = self.model.defaults.merge(self.parameters).texts()
                echo(table(lines) or "none is set")
            case "system" if self.system is not None:
                show_text(self.system)
            case "info" | "system" | "template" | "license" | "modelfile":
                self._show_package(part)
            case _:
                raise RequestError(f"/show cannot show {part!r}", hint="/? lists what it can.")

    def _show_cache(self) -> None:
        from modelkit.cli.cache import tree

        nodes = self.model.prefixes()
        echo(tree(nodes, self.model.decode) or "nothing is kept")
        if nodes:
            held, limit = sum(node.size_bytes for node in nodes), self.model.memory.prefix_bytes
            echo(f"{size(held)} of at most {size(limit)}")

    def _show_package(self, part: str) -> None:
        from modelkit.cli.home import open_store

        if looks_like_path(self._name):
            raise RequestError(f"{self._name} is a folder; only packages can be shown")
        store = open_store()
        package = store.resolve(self._name)
        if part == "info":
            from modelkit.cli.show import overview
            from modelkit.showing.facts import facts_of

            echo(overview(facts_of(store, package)))
            return
        from modelkit.cli.show import print_part

        print_part(package, store, part, show_text)


def _words(text: str) -> tuple[str, str]:
    """The first word, and the rest."""
    first, _, rest = text.strip().partition(" ")
    return first, rest.strip()


def _unquoted(text: str) -> str:
    """The text between three quotes and three quotes, or the text as it is."""
    inner = text.strip()
    quoted = len(inner) >= 2 * len(_QUOTES) and inner.startswith(_QUOTES) and inner.endswith(_QUOTES)
    return inner[len(_QUOTES) : -len(_QUOTES)] if quoted else text
