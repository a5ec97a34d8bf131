"""One conversation with one model: what was said, the settings that the person changed, and asking."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from modelkit.chat.message import Message, ToolCall
from modelkit.cli.answer import forgot, left_out, timings, why_cut
from modelkit.cli.repl.blocks import read_block, unquoted
from modelkit.cli.repl.conversation import Conversation
from modelkit.cli.repl.saved import ConversationFile
from modelkit.cli.terminal import interrupts
from modelkit.cli.terminal.lines import Reader
from modelkit.cli.terminal.screen import echo, note, state
from modelkit.cli.terminal.speaker import say
from modelkit.cli.terminal.ui import printable
from modelkit.errors import PromptTooLong, RequestError
from modelkit.modelfile import Parameters
from modelkit.requests.attached import Chosen
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.answers.generation import Generation
    from modelkit.client.model_like import Answer, ModelLike

OF_TEMPLATES = ("think", "think_tokens")
"""Parameters that have no place in a line that goes to the model as it is."""
_MOST_ROUNDS = 50  # of calls and results, for one question
_ROOM = frozenset({"d", "drop", "c", "clear", "l", "leave", ""})
"""What a person may do about a conversation that is too long."""


@dataclass(slots=True)
class SessionSettings:
    """What the person has set, for all answers to come."""

    parameters: Parameters = field(default_factory=Parameters)
    given: Parameters = field(default_factory=Parameters)
    """Those of the command line: the model was loaded with them."""
    system: str | None = None
    """None: the package's own holds."""
    adapters: Chosen | None = None
    """Those that answer; None for all, as they are."""
    form: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """format, grammar or regex, as in `Model.chat`."""
    tools: list[Any] | None = None
    """In OpenAI's shape."""
    verbose: bool = False
    thinking: bool = True
    """Is it shown?"""
    truncate: bool = False
    """May the oldest turns be left out?"""


class Session:
    """`name` is what the model was loaded by. Where there is no chat template, or with `raw`, nothing is
    remembered: each line is continued as it is. file: where the conversation is written down. load: loads
    another model, for /load.
    """

    def __init__(
        self,
        model: "ModelLike",
        name: str,
        *,
        system: str | None = None,
        raw: bool = False,
        verbose: bool = False,
        file: ConversationFile | None = None,
        load: "Callable[[str], ModelLike] | None" = None,
    ) -> None:
        self.model, self.name = model, name
        self.conversation = Conversation()
        self.settings = SessionSettings(system=system, verbose=verbose)
        self.read: Reader = input
        self.load, self.raw = load, raw
        self._file, self._dropped = file, 0

    @property
    def messages(self) -> list[Message]:
        return self.conversation.messages

    @property
    def plain(self) -> bool:
        """Does each line stand alone?"""
        return self.raw or (self.settings.system is None and not self.model.has_template)

    def switch(self, model: "ModelLike", name: str) -> None:
        """From now on another model answers, and the conversation starts anew."""
        self.model.close()
        self.model, self.name = model, name
        if self.settings.adapters is not None and model.adapters:
            all_ = ", ".join(model.adapters)
            note(f"{name} answers with all its adapters ({all_}); /set adapters chooses among them")
        self.settings.adapters = None
        self._take_back()
        self.start_anew()

    def start_anew(self) -> None:
        self.conversation.clear()
        self._dropped = 0
        if self._file:
            self._file.anew(self.model.name)

    def _take_back(self) -> None:
        """What was set for a model with a chat template, where this one has none."""
        held = self.settings.parameters
        gone = [name for name in OF_TEMPLATES if name in held] + ["tools"] * (self.settings.tools is not None)
        if self.plain and gone:
            others = {name: value for name, value in held.items() if name not in OF_TEMPLATES}
            self.settings.parameters, self.settings.tools = Parameters(others), None
            note(f"{self.name} has no chat template; no longer set: {', '.join(gone)}")

    def check_tools(self, tools: list[Any]) -> None:
        """What this model does not take is said at once, and not with the next message."""
        if self.plain:
            raise RequestError("a model without a chat template takes no tools")
        hello = [Message("user", "Hello")]
        self.model.chat(hello, stream=True, tools=tools, num_predict=0, truncate=False).close()

    def close(self) -> None:
        """Give back the model that answers now."""
        self.model.close()

    def ask(self, text: str, **once: Any) -> None:
        """Say something, and print the answer. Calls of tools are shown, and their results asked for. once:
        parameters of this answer alone.
        """
        if self.plain:
            self._print(self.model.generate(text, raw=True, stream=True, **self._options(), **once))
            return
        before = [*self.messages]
        self.conversation.add(Message("user", text))
        try:
            for _ in range(_MOST_ROUNDS):
                answer = self._answered(once)
                if answer is None or not self._results(answer):
                    break
        except BaseException:
            self.conversation.messages = before  # whatever it was, it can be asked again
            raise
        self.keep()

    def keep(self) -> None:
        """Write the conversation down."""
        if self._file is not None and (told := self._file.write(self.messages, self.settings.system)):
            note(told)

    def _answered(self, once: dict[str, Any]) -> "Generation | None":
        """One answer, printed and remembered; None where nothing came of it."""
        stream = self._start(once)
        if stream is None:
            self.conversation.undo()
            return None
        answer = self._print(stream)
        if not answer.text and not answer.tool_calls:
            if not answer.thinking or answer.reason == "cancelled":
                self.conversation.undo()
            return None
        self.conversation.add(answer.message)
        return answer

    def _start(self, once: dict[str, Any]) -> "Answer | None":
        """Where the conversation has outgrown the context, the person decides."""
        while True:
            try:
                return self._asked(self.messages, once)
            except PromptTooLong as error:
                turn = self.messages[self._newest :]
                if self.settings.truncate or len(turn) == len(self.messages):
                    raise
                # Where the last turn alone is too long, nothing would be won: then it is said of that.
                self._asked(turn, {**once, "num_predict": 0}).close()
                if not self._make_room(error):
                    raise

    def _asked(self, messages: Sequence[Message], once: Mapping[str, Any]) -> "Answer":
        system = [] if self.settings.system is None else [Message("system", self.settings.system)]
        options = {**self._options(), **once, "truncate": self.settings.truncate}
        if self.settings.tools:
            options["tools"] = self.settings.tools
        return self.model.chat([*system, *messages], stream=True, **options)

    @property
    def _newest(self) -> int:
        """Where the last turn begins."""
        return max(place for place, one in enumerate(self.messages) if one.role == "user")

    def _make_room(self, error: PromptTooLong) -> bool:
        """False where the person wants none of it."""
        note(error.message)
        choice = self._choose("[d]rop the oldest turns, [c]lear all before this message, or [l]eave it: ")
        if choice == "d":
            self.settings.truncate = True
            state("From now on, the oldest turns are left out when necessary.")
        elif choice == "c":
            del self.messages[: self._newest]
            state("Everything before this message was removed.")
        return choice in ("d", "c")

    def _choose(self, question: str) -> str:
        """The first letter of one of _ROOM. Asks again for all else: the next message may begin with a c, and
        must not clear the conversation.
        """
        try:
            while (said := self.read(question).strip().lower()) not in _ROOM:
                pass
        except EOFError:
            return ""
        return said[:1]

    def _print(self, stream: "Answer") -> "Generation":
        try:
            say(stream, thinking=self.settings.thinking)
        except KeyboardInterrupt:
            interrupts.handled()
            echo("\n(stopped)", end="")
        echo("\n")
        answer = stream.result
        self._say_left_out(answer)
        for sentence in filter(None, (*answer.notes, forgot(answer), why_cut(answer, self.model))):
            note(sentence)
        if self.settings.verbose:
            echo(timings(answer, self.model), err=True)
        return answer

    def _say_left_out(self, answer: "Generation") -> None:
        """Once for each time that more of the conversation is left out."""
        sentence = left_out(answer, self.model)
        if sentence and answer.dropped_messages != self._dropped:
            note(f"{sentence}; num_keep says what stays, /clear starts a new conversation")
        self._dropped = answer.dropped_messages

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {**self.settings.parameters, **self.settings.form}
        if self.settings.adapters is not None:
            options["adapters"] = dict(self.settings.adapters)
        return options

    def _results(self, answer: "Generation") -> bool:
        """Ask for the results of the calls; False where there are none, or the person gives none."""
        for call in answer.tool_calls:
            result = self._result(call)
            if result is None:
                return False
            self.conversation.add(Message("tool", result, name=call.name, tool_call_id=call.id))
        return bool(answer.tool_calls)

    def _result(self, call: ToolCall) -> str | None:
        try:
            said = unquoted(read_block(self.read, f"result of {printable(call.name)}> "))
        except (EOFError, KeyboardInterrupt):
            interrupts.handled()
            state("No result; the conversation continues without it.")
            return None
        return said.strip() or "(no output)"
