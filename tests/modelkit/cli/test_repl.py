"""The conversation: what lines do, what is remembered, how it is left and stopped."""

import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from prompt_toolkit.application import Application, create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from modelkit.answers.generation import Generation
from modelkit.chat.message import Message
from modelkit.cli.repl import Session, converse, read_block
from modelkit.cli.repl.blocks import unfinished
from modelkit.cli.terminal import lines as terminal
from modelkit.errors import RequestError
from modelkit.memory import Memory
from modelkit.modelfile import Parameters
from modelkit.output.events import Text
from modelkit.prefixes import Prefix
from runtime.engine.request import Usage
from tests.support.typed import typed

CTRL_C = KeyboardInterrupt()


class Answer:
    """A stream of words; after `stop_after` of them the person presses Ctrl-C."""

    def __init__(self, text: str, stop_after: int | None, dropped: int = 0) -> None:
        self._dropped = dropped
        self._words = text.split(" ")
        self._stop_after = stop_after
        self._said: list[str] = []

    progress = None

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def events(self) -> Iterator[Text]:
        for place, word in enumerate(self._words):
            if place == self._stop_after:
                raise KeyboardInterrupt
            self._said.append(word if place == 0 else f" {word}")
            yield Text(self._said[-1])

    @property
    def result(self) -> Generation:
        usage = Usage(generated_tokens=len(self._said))
        return Generation("".join(self._said), (), usage, "stop", 0, dropped_messages=self._dropped)


class Model:
    """Answers with what it was asked, and remembers how."""

    name = "story"
    load_s = 0.5
    threads = None
    context_length = 256
    memory = Memory(
        weight_bytes=1000, draft_bytes=0, cache_bytes=2000, available_bytes=10**9, prefix_bytes=9000
    )

    adapters = ("law", "verse")

    def __init__(self, *, has_template: bool = True, stop_after: int | None = None) -> None:
        self.has_template = has_template
        self.defaults = Parameters({"temperature": 0.5})
        self.asked: list[Any] = []
        self.parameters: dict[str, Any] = {}
        self.kept: list[Prefix] = []
        self._stop_after = stop_after

    def chat(self, messages: list[Message], *, stream: bool, **parameters: Any) -> Answer:
        assert stream
        if messages[-1].content == "too long":
            raise RequestError("the prompt is too long", hint="Shorten it.")
        self.asked = [(message.role, message.content) for message in messages]
        self.truncates = parameters.pop("truncate")
        self.parameters = parameters
        # Of more than five messages, all but the last four are left out, two at a time.
        dropped = max(len(messages) - 4, 0) // 2 * 2
        return Answer(f"you said {messages[-1].content}", self._stop_after, dropped)

    def prefixes(self) -> list[Prefix]:
        return self.kept

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(ids).decode()

    def generate(self, prompt: str, *, raw: bool, stream: bool, **parameters: Any) -> Answer:
        assert raw
        assert stream
        self.asked, self.parameters = [prompt], parameters
        return Answer(f"{prompt} and on", self._stop_after)


def talk(model: Model, *lines: str | BaseException, **settings: Any) -> Session:
    session = Session(model, "story", **settings)  # type: ignore[arg-type]
    converse(session, typed(*lines))
    return session


def test_what_is_left_out_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    session = talk(Model(), "a", "b", "c", "d", "/clear", "e", "f", "g", "h")
    said = [line for line in capsys.readouterr().err.splitlines() if "outgrown" in line]
    assert len(said) == 2
    assert "the context of 256 tokens" in said[0]
    assert len(session.messages) == 8


def test_the_conversation_is_remembered() -> None:
    model = Model()
    talk(model, "one", "two")
    assert model.asked == [("user", "one"), ("assistant", "you said one"), ("user", "two")]


def test_answers_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    talk(Model(), "one")
    assert "you said one\n\n" in capsys.readouterr().out


def test_cache_shows_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model()
    talk(model, "/cache")
    assert "nothing is cached" in capsys.readouterr().out
    model.kept = [Prefix(1, 0, 2, 1500, 0.0, ids=(104, 105), resumable=True)]
    talk(model, "/cache")
    shown = capsys.readouterr().out
    assert re.search(r"0\+2 +1.5 kB  resumable .* hi\n1.5 kB of at most 9 kB", shown)


def test_clear_forgets() -> None:
    model = Model()
    talk(model, "one", "/clear", "two")
    assert model.asked == [("user", "two")]


@pytest.mark.parametrize("word", ["/bye", "/exit", "  /bye  "])
def test_bye_leaves(word: str) -> None:
    model = Model()
    talk(model, word, "one")
    assert model.asked == []


def test_ctrl_c_at_the_prompt_does_not_leave(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model()
    talk(model, CTRL_C, "one")
    assert model.asked == [("user", "one")]
    assert "Ctrl-D or /bye leaves." in capsys.readouterr().out


def test_ctrl_c_stops_an_answer_and_keeps_what_came() -> None:
    session = talk(Model(stop_after=2), "one")
    assert session.messages[1] == Message("assistant", "you said")


def test_an_answer_stopped_before_its_first_word_was_not_asked() -> None:
    assert talk(Model(stop_after=0), "one").messages == []


def test_an_error_ends_a_line_and_not_the_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    session = talk(Model(), "too long", "one")
    assert [m.content for m in session.messages] == ["one", "you said one"]
    assert "Error: the prompt is too long\n  Shorten it.\n" in capsys.readouterr().err


def test_blank_lines_ask_nothing() -> None:
    assert talk(Model(), "", "   ").messages == []


def test_three_quotes_make_a_message_of_several_lines() -> None:
    model = Model()
    talk(model, '"""first', "/second", 'third"""')
    assert model.asked == [("user", "first\n/second\nthird")]


def test_a_quoted_block_on_one_line() -> None:
    assert read_block(typed('"""a"""')) == '"""a"""'


def test_a_path_is_no_command() -> None:
    model = Model()
    talk(model, "/etc/passwd is a file")
    assert model.asked == [("user", "/etc/passwd is a file")]


def test_a_word_that_switches_thinking_is_the_models() -> None:
    model = Model()
    talk(model, "/no_think Is it late?")
    assert model.asked == [("user", "/no_think Is it late?")]


def test_an_unknown_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    talk(Model(), "/fly")
    assert "Error: there is no command /fly" in capsys.readouterr().err


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    talk(Model(), "/?")
    assert "/set parameter NAME VALUE" in capsys.readouterr().out


def test_parameters_can_be_changed_again_and_again() -> None:
    model = Model()
    talk(model, "/set parameter top_k 3", "/set parameter top_k 4", "/set parameter stop a b", "one")
    assert model.parameters == {"top_k": 4, "stop": ("a b",)}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/set parameter topk 3", "Did you mean top_k"),
        ("/set parameter top_k many", "expected a whole number"),
        ("/set parameter num_ctx 99", "can only be set when the model is loaded"),
        ("/set sail", "/set cannot set 'sail'"),
        ("/set temperature 1", "`/set parameter temperature 1`"),
        ("/set temprature 1", "`/set parameter temperature 1`"),
        ("/set formt json", "`/set format json`"),
        ("/set max_tokens 5", "`/set parameter num_predict 5`"),
        ("/set mirostat 1", "It has no meaning here"),
        ("/cleer", "`/clear`"),
        ("/show paramters", "`parameters`"),
        ("/set", "/set what?"),
        ("/show off", "/show cannot show 'off'"),
    ],
)
def test_a_setting_that_cannot_be_is_an_error(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(Model(), line)
    assert words in capsys.readouterr().err


def test_a_system_text_comes_first_until_it_is_taken_back() -> None:
    model = Model()
    talk(model, '/set system """Be', 'brief."""', "one")
    assert model.asked[0] == ("system", "Be\nbrief.")
    talk(model, "/set system Be brief.", "/set system", "one")
    assert model.asked[0] == ("user", "one")


def test_verbose_and_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    talk(Model(), "/set verbose", "one")
    assert "3 tokens, ended by the model" in capsys.readouterr().err
    talk(Model(), "/set quiet", "one", verbose=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "line", ["/set think off", "/set parameter think auto", "/set parameter think_tokens 3"]
)
@pytest.mark.parametrize("settings", [{"has_template": False}, {"has_template": True, "raw": True}])
def test_thinking_has_no_place_in_lines_that_go_as_they_are(
    settings: dict[str, bool], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every line after it would be refused."""
    model = Model(has_template=settings["has_template"])
    talk(model, line, "one", raw=settings.get("raw", False))
    assert "has no effect: lines go to the model as they are" in capsys.readouterr().err
    assert model.parameters == {}


@pytest.mark.parametrize("settings", [{"has_template": False}, {"has_template": True, "raw": True}])
def test_without_a_template_each_line_stands_alone(settings: dict[str, bool]) -> None:
    model = Model(has_template=settings.pop("has_template"))
    session = talk(model, "one", "two", **settings)
    assert (model.asked, session.messages) == (["two"], [])


def test_show_parameters_has_the_changed_ones_too(capsys: pytest.CaptureFixture[str]) -> None:
    talk(Model(), "/set parameter seed 3", "/show parameters")
    assert "temperature  0.5\nseed         3\n" in capsys.readouterr().out


def test_show_parts_of_the_package(created: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    created("story", "SYSTEM Be brief.", "PARAMETER top_k 7")
    talk(Model(), "/show", "/show modelfile", "/show system", "/set system No.", "/show system")
    shown = capsys.readouterr().out
    assert "architecture      LlamaForCausalLM" in shown
    assert "/target\nSYSTEM Be brief.\n" in shown
    assert shown.rstrip().endswith("Be brief.\nThe system message is changed.\nNo.")


def test_a_folder_has_no_package_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(Model(), "./story")  # type: ignore[arg-type]
    converse(session, typed("/show"))
    assert "only packages can be shown" in capsys.readouterr().err


def test_run_without_a_prompt_on_a_terminal_is_a_conversation(
    created: Callable[..., None],
    modelkit: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from modelkit.cli.run import command

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    created("story")
    monkeypatch.setattr(sys, "stdin", Terminal("Once\n/bye\n"))
    monkeypatch.setattr(terminal, "open_reader", lambda *_: lambda _prompt: sys.stdin.readline().rstrip("\n"))
    command.main(["story", "-p", "num_predict=2"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("Type a message, or /? for help.\n")


def reads_plain_lines(monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr("builtins.input", lambda prompt: f"{prompt}hello")
    return terminal.open_reader()("> ") == "> hello"


def test_a_dumb_terminal_gets_plain_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert reads_plain_lines(monkeypatch)


def test_without_prompt_toolkit_there_is_plain_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    assert reads_plain_lines(monkeypatch)


def test_piped_output_gets_plain_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """`modelkit run story | tee said.txt`: an editor has nothing to draw on."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with create_pipe_input() as keys, create_app_session(input=keys):
        assert reads_plain_lines(monkeypatch)


def test_ctrl_z_suspends_and_is_no_part_of_the_message(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suspended: list[Application[Any]] = []
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(Application, "suspend_to_background", lambda app, *_: suspended.append(app))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("Hel\x1alo\r")
        assert terminal.open_reader()(">>> ") == "Hello"
    assert len(suspended) == 1


def test_a_message_of_several_lines_comes_back_whole(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Up, as one entry: Enter goes on within three quotes, wherever the reader stands."""
    monkeypatch.setenv("TERM", "xterm")
    block = '"""first\n  second\nthird"""'
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        read = terminal.open_reader(None, unfinished)
        for typed_keys, line in ((block.replace("\n", "\r"), block), ("\x1b[A", block), ("next", "next")):
            keys.send_text(typed_keys + "\r")
            assert read(">>> ") == line
    assert list(terminal.open_history().load_history_strings()) == ["next", block]


def test_the_history_is_the_owners_alone(home: Path) -> None:
    history = terminal.open_history()
    history.store_string("a secret")
    assert "a secret" in (home / "history").read_text()
    assert (home / "history").stat().st_mode & 0o077 == 0


def test_a_history_that_cannot_be_kept_any_more_stops_nobody(home: Path) -> None:
    history = terminal.open_history()
    (home / "history").unlink()
    (home / "history").mkdir()
    history.append_string("a secret")
    assert history.get_strings() == ["a secret"]


def test_a_history_that_cannot_be_kept_is_forgotten(home: Path) -> None:
    (home / "history").mkdir(parents=True)
    terminal.open_history().store_string("a secret")
    assert list((home / "history").iterdir()) == []


def test_what_is_set_is_confirmed(capsys: pytest.CaptureFixture[str]) -> None:
    talk(
        Model(),
        "/set parameter top_k 3",
        "/set parameter temperature",
        "/set parameter min_p",
        "/set parameter num_ctx",
        "/set system Be brief.",
        "/set system",
    )
    assert capsys.readouterr().out.splitlines()[1:-1] == [
        "top_k is 3",
        "temperature is 0.5",
        "min_p is 0.0 (the default)",
        "num_ctx is not set (the default)",
        "The system message is changed.",
        "The package's system message is used again.",
    ]


def test_an_answer_that_is_cut_is_marked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "modelkit.cli.repl.session.why_cut",
        lambda *_: "the answer was cut short: num_predict allows 3 tokens",
    )
    talk(Model(), "one")
    assert "note: the answer was cut short" in capsys.readouterr().err


def test_adapters_are_chosen_between_answers(capsys: pytest.CaptureFixture[str]) -> None:
    model, chosen = Model(), []
    for line in (
        "",
        "/set adapters verse law=0.5",
        "/set adapters",
        "/set adapters none",
        "/set adapters all",
        "/set adapters prose",
    ):
        talk(model, line, "one")
        chosen.append(model.parameters.get("adapters"))
    assert chosen == [None, {"verse": 1.0, "law": 0.5}, {}, {}, None, None]
    out = capsys.readouterr()
    for said in ("in use: verse law=0.5.", "in use: none.", "in use: law verse."):
        assert said in out.out
    assert "no adapter 'prose'" in out.err
