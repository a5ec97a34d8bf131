"""The conversation's other commands: taking back, files, tools, thinking, forms, saving."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import Result

from modelkit.chat.message import Message, ToolCall
from modelkit.chat.styles.thinking import Thinking as Offered
from modelkit.cli.repl import Session, converse
from modelkit.cli.repl.commands import HELP
from modelkit.cli.repl.completion import offers
from modelkit.cli.repl.files import fenced, with_files
from modelkit.cli.terminal.speaker import Speaker, say
from modelkit.errors import ModelClosed, RequestError
from modelkit.modelfile import Parameters
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.showing.texts import recipe
from modelkit.store import Store
from tests.support.talking import Answer, Model, said, talk
from tests.support.typed import typed


def test_undo_takes_the_last_turn_back() -> None:
    model = Model()
    assert said(talk(model, "one", "two", "/undo", "three")) == ["one", "answer 1", "three", "answer 3"]
    assert said(talk(model, "/undo")) == []


def test_retry_asks_again_with_a_new_seed() -> None:
    model = Model()
    session = talk(model, "one", "/set parameter seed 4", "two", "/retry")
    assert said(session) == ["one", "answer 1", "two", "answer 3"]
    assert [options.get("seed") for options in model.options] == [None, 4, -1]
    assert [m.content for m in model.asked[-1]] == ["one", "answer 1", "two"]


def test_edit_takes_the_place_of_the_last_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.edit", lambda text, **_: text.upper() + "\n")
    assert said(talk(Model(), "one", "/edit")) == ["ONE", "answer 1"]
    monkeypatch.setattr("click.edit", lambda text, **_: None)
    assert said(talk(Model(), "one", "/edit")) == ["one", "answer 1"]


def test_what_was_thought_and_called_stays_in_the_conversation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('{"name": "add", "parameters": {"type": "object"}}')
    model = Model()
    session = talk(model, f"/tools {tools}", "one", "2", "/tools off", "two")
    call = ToolCall("add", {"a": 1}, "c1")
    assert session.messages[:4] == [
        Message("user", "one"),
        Message("assistant", "", "hm", (call,)),
        Message("tool", "2", name="add", tool_call_id="c1"),
        Message("assistant", "answer 3", "hm"),
    ]
    assert model.options[0]["tools"][0]["function"]["name"] == "add"
    assert "tools" not in model.options[-1]
    assert "The model may call add." in capsys.readouterr().out


def test_tools_that_the_model_does_not_take_are_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('{"name": "add"}')

    class Strict(Model):
        def chat(self, messages: Iterable[Message], *, stream: bool, **options: Any) -> Answer:
            if options.get("tools"):
                raise RequestError("tools have no effect")
            return super().chat(messages, stream=stream, **options)

    session = talk(Strict(), f"/tools {tools}", "one")
    assert said(session) == ["one", "answer 1"]
    assert session.settings.tools is None
    assert "tools have no effect" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["/undo 2", "/clear all", "/bye now", "/set noformat json", "/set nothink low"]
)
def test_a_command_that_takes_nothing_says_so_and_does_nothing(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session = talk(Model(), "one", line, "two")
    assert said(session) == ["one", "answer 1", "two", "answer 3"]
    assert " takes nothing after it\n" in capsys.readouterr().err


@pytest.mark.parametrize("between", [" ", "\t", "\n", " \t "])
def test_whatever_stands_behind_a_command_it_is_no_message(between: str) -> None:
    """A pasted line with a tab in it went to the model."""
    session = talk(Model(), f"/set{between}system{between}Be brief.\nBe kind.", "one")
    assert session.settings.system == "Be brief.\nBe kind."
    assert [message.content for message in session.messages if message.role == "user"] == ["one"]


@pytest.mark.parametrize(
    ("line", "first", "rows"),
    [("/? undo", "/undo", 1), ("/help /set", "/set parameter", 7), ("/? exit", "/set parameter", len(HELP))],
)
def test_help_is_about_the_command_that_is_named(
    line: str, first: str, rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(Model(), line)
    shown = [one for one in capsys.readouterr().out.splitlines() if one[:1] not in ("", " ")]
    assert shown[1].startswith(first)
    assert len(shown) == rows + 1, shown


def test_help_about_no_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    talk(Model(), "/? und")
    assert "there is no command /und\n  Did you mean" in capsys.readouterr().err


def test_a_result_that_nobody_gives(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('[{"type": "function", "function": {"name": "add"}}]')
    session = talk(Model(), f"/tools {tools}", "one", KeyboardInterrupt())
    assert [message.role for message in session.messages] == ["user", "assistant"]
    assert session.messages[-1].tool_calls == (ToolCall("add", {"a": 1}, "c1"),)


def test_a_result_of_several_lines(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('[{"type": "function", "function": {"name": "add"}}]')
    session = talk(Model(), f"/tools {tools}", "one", '"""a', 'b"""')
    assert next(one.content for one in session.messages if one.role == "tool") == "a\nb"


def test_thinking_and_forms_are_set(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model()
    lines = ("/set think high", "one", "/set nothink", "/set format json", "two", "/set noformat", "three")
    talk(model, *lines, "/set think much", "/set thinking hidden", "/set format {")
    assert [options.get("think") for options in model.options] == ["high", "off", "off"]
    assert [options.get("format") for options in model.options] == [None, "json", None]
    out = capsys.readouterr()
    assert "think is off" in out.out
    assert "Thinking is hidden." in out.out
    assert "think is 'much'" in out.err
    assert "this schema is not valid JSON" in out.err


def test_a_value_may_stand_in_quotes_as_in_a_modelfile(capsys: pytest.CaptureFixture[str]) -> None:
    session = talk(Model(), '/set parameter stop " a"', '/set system "Be brief."', '/set parameter stop ""')
    assert (session.settings.parameters["stop"], session.settings.system) == ((" a",), "Be brief.")
    assert "expected at most 16 texts of 1 to 256 characters" in capsys.readouterr().err
    several = talk(Model(), '/set parameter stop " a"  "b c"').settings.parameters
    assert several["stop"] == (" a", "b c")
    assert "stop is ' a', 'b c'" in capsys.readouterr().out
    assert talk(Model(), '/set system Say "yes" or "no"').settings.system == 'Say "yes" or "no"'


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("/set verbos", "verbose"),
        ("/set nothin", "nothink` or `/set think VALUE"),
        ("/set parameter seed=4", "parameter seed 4"),
        ("/set temp=0.5", "parameter temperature 0.5"),
    ],
)
def test_a_hint_says_what_can_be_typed(line: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    talk(Model(), line)
    assert f"Did you mean `/set {meant}`?" in capsys.readouterr().err


def test_thinking_that_the_model_does_not_offer_is_refused_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Served(Model):
        def can_think(self) -> bool:
            return False

    here, there = Model(), Served()
    here.thinking = Offered()
    for model in (here, there):
        talk(model, "/set think high", "/set think off", "one")
        assert "think cannot be high" in capsys.readouterr().err
        assert [options.get("think") for options in model.options] == ["off"]


def test_files_come_with_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("first\n")
    Path("b c.txt").write_text("with ``` in it", encoding="utf-8-sig")
    model = Model()
    talk(model, "Compare @a.txt, please", '/read "b c.txt" What is it?', "mail me@example.org @nobody")
    asked = [messages[-1].content for messages in model.asked]
    assert asked[0] == "Compare @a.txt, please\n\na.txt:\n```\nfirst\n```"
    assert asked[1] == "What is it?\n\nb c.txt:\n````\nwith ``` in it\n````"
    assert asked[2] == "mail me@example.org @nobody"


def test_a_mention_that_looks_like_a_file_and_is_none_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model()
    talk(model, "see @missing.txt, @nobody and @v1.0.", 'see @"my notes"', '"""why?\n@app.get\n"""')
    error = capsys.readouterr().err
    assert "there is no file missing.txt; the message has only its name" in error
    assert ("nobody" in error, "v1.0" in error, "app.get" in error) == (False, False, False)
    assert "there is no file my notes" in error
    assert len(model.asked) == 2


@pytest.mark.parametrize("name", ["a" * 300, "~nobody-of-that-name", "a\0b", "~nobody-of-that-name.x,"])
def test_a_word_behind_an_at_sign_that_can_be_no_file_is_text(name: str) -> None:
    assert with_files(f"see @{name}") == (f"see @{name}", [])
    assert said(talk(Model(), f"see @{name}", f"/read {name}")) == [f"see @{name}", "answer 1"]
    assert offers(f"see @{name}/") == []


def test_what_goes_wrong_with_a_form_or_an_editor_ends_one_line_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VISUAL", str(tmp_path / "no-editor"))
    lines = (f"/set format @{tmp_path / 'no-file'}", "/set grammar some.gbnf", "one", "/edit")
    assert said(talk(Model(), *lines)) == ["one", "answer 1"]
    monkeypatch.setenv("VISUAL", "'half a quotation")
    assert said(talk(Model(), "one", "/edit", "two")) == ["one", "answer 1", "two", "answer 3"]
    errors = capsys.readouterr().err
    assert "no-file cannot be read" in errors
    assert "write /set grammar @some.gbnf" in errors
    assert "no-editor cannot be opened: no such file or directory" in " ".join(errors.split())
    assert "VISUAL or EDITOR" in errors


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "there is no file"),
        (lambda path: path.write_bytes(b"\xff"), "not UTF-8"),
        (lambda path: path.write_bytes(b"x" * 1_000_001), "larger than"),
    ],
)
def test_files_that_cannot_come(make: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    make(path)
    with pytest.raises(RequestError, match=says):
        with_files(f"look at @{path}!")


def test_a_full_context_is_the_persons_decision(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(room=2)
    session = talk(model, "one", "two", "l", "two", "d", "three")
    assert "it has 99 tokens and the context is 64" in capsys.readouterr().err
    assert said(session) == ["one", "answer 1", "two", "answer 3", "three", "answer 5"]
    assert [options["truncate"] for options in model.options] == [False, True, True]
    assert said(talk(Model(room=2), "one", "two", "c")) == ["two", "answer 1"]
    assert said(talk(Model(), "one", "two", "/drop")) == ["two", "answer 3"]


@pytest.mark.parametrize("typed", ["Can you sum it up?", "do it", "d.", "/clear"])
def test_a_message_typed_at_the_question_about_a_full_context_removes_nothing(typed: str) -> None:
    session = talk(Model(room=2), "one", "two", typed, "l")
    assert (said(session), session.settings.truncate) == (["one", "answer 1"], False)


def test_nothing_is_dropped_for_a_message_that_is_too_long_alone(capsys: pytest.CaptureFixture[str]) -> None:
    session = talk(Model(), "one", "a whole book", "two")
    output = capsys.readouterr()
    assert "a book in 1" in output.err
    assert "oldest turns" not in output.out + output.err
    assert said(session) == ["one", "answer 1", "two", "answer 3"]


@pytest.mark.parametrize(
    "form", ["regex (", 'format {"type": "string", "pattern": "("}', 'grammar start: "a']
)
def test_a_form_that_no_model_takes_is_refused_at_once(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = Model()
    talk(model, "/set regex a+", f"/set {form}", "one")
    assert "not a usable" in capsys.readouterr().err
    assert model.options[0]["regex"] == "a+"
    talk(model, "/set grammar start: <think>", "one")  # it may have that token
    assert model.options[1]["grammar"] == "start: <think>"


def test_another_model_starts_anew() -> None:
    first, other = Model(), Model()
    session = talk(first, "one", "/load other", "two", load=lambda name: other)
    assert (said(session), session.name) == (["two", "answer 1"], "other")
    assert (first.closed, other.closed) == (True, False)
    session.close()
    assert other.closed


def test_adapters_that_were_chosen_of_another_model_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    other = Model()
    other.adapters = ("law", "verse")
    talk(Model(), "/load other", load=lambda _: other)
    assert "adapters" not in capsys.readouterr().err
    session = talk(Model(), "/set adapters", "/load other", load=lambda _: other)
    assert "other answers with all its adapters (law, verse)" in capsys.readouterr().err
    assert session.settings.adapters is None


def test_what_has_no_place_in_another_model_is_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    other = Model()
    other.has_template = False
    lines = ("/set think off", "/set parameter top_k 3", "/load other")
    session = talk(Model(), *lines, load=lambda name: other)
    assert dict(session.settings.parameters) == {"top_k": 3}
    assert "other has no chat template; no longer set: think" in capsys.readouterr().err


def test_a_session_becomes_a_package(
    created: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    created("story")
    talk(Model(), "/set system Be brief.", "/set parameter top_k 3", "one", "/save mine", "/show modelfile")
    session = Session(Model(), "mine")  # type: ignore[arg-type]
    converse(session, typed("/show modelfile"))
    shown = capsys.readouterr().out
    assert "created mine" in shown
    for line in ("SYSTEM Be brief.", "PARAMETER top_k 3", "MESSAGE user one", "MESSAGE assistant answer 2"):
        assert line in shown


@pytest.mark.parametrize("code", ['def f():\n    """One."""\n    return 1\n', "x\n" * 10_000])
def test_a_session_about_code_becomes_a_package_that_can_be_made_again(
    created: Callable[..., None], modelkit: Callable[..., Result], home: Path, tmp_path: Path, code: str
) -> None:
    """No Modelfile can hold a text with a line that ends in three quotes, or any number of lines."""
    created("story")
    (tmp_path / "code.py").write_text(code)
    session = talk(Model(), f"see @{tmp_path / 'code.py'}", "/save mine")
    store = Store(home)
    saved = store.resolve("mine")
    assert recipe(saved).messages == tuple((one.role, one.content) for one in session.messages)
    (tmp_path / "again").write_text(modelkit("show", "mine", "--modelfile").stdout)
    assert modelkit("create", "again", "-f", str(tmp_path / "again")).exit_code == 0
    assert store.digest("again") == saved.digest


def test_parameters_of_the_command_line_are_saved(
    created: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    created("story")
    session = Session(Model(), "story")  # type: ignore[arg-type]
    session.settings.given = Parameters({"temperature": 0.25, "top_k": 3})
    converse(session, typed("/set parameter top_k 4", "/save mine"))
    converse(Session(Model(), "mine"), typed("/show modelfile"))  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "PARAMETER temperature 0.25" in shown
    assert "PARAMETER top_k 4" in shown


def test_what_a_package_has_no_place_for_is_said(
    created: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    created("story")
    (tmp_path / "tools").write_text('{"name": "add"}', encoding="utf-8")
    talk(Model(), "/set adapters", "/set format json", f"/tools {tmp_path / 'tools'}", "/save mine")
    said = capsys.readouterr().err
    for what in ("chosen adapters", "answer formats", "tools (/tools)"):
        assert what in said
    talk(Model(), "one", "/save again")
    assert "left out" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("/re", ["/read", "/retry"]),
        ("/set th", ["think", "thinking"]),
        ("/set parameter draft_a", ["draft_acceptance"]),
        ("/set think h", ["high"]),
        ("/show t", ["template"]),
        ("/load st", ["story"]),
        ("look at @a", ["@a.txt", "@another/"]),
        ("/read a", ["a.txt", "another/"]),
        ("/read b", ['"b c.txt"']),
        ("and @b", ['@"b c.txt"']),
        ("/tools b", ["b c.txt"]),
        ("hello ", []),
    ],
)
def test_tab_offers(line: str, some: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").touch()
    Path("b c.txt").touch()
    Path("another").mkdir()
    assert offers(line, lambda: ["story"]) == some


def test_the_screen_shows_thinking_in_grey_and_calls_on_their_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = [
        Thinking("hm"),
        Text("Well"),
        CallStart(0, "c1", "add"),
        CallArguments(0, '{"a":'),
        CallArguments(0, " 1}"),
        CallEnd(0),
    ]
    for thinking, begins in ((True, "\x1b[90mhm\x1b[39m\n\nWell"), (False, "Well")):
        speaker = Speaker(thinking=thinking)
        for event in events:
            if speaker.has_to_say(event):
                speaker.take(event)
        speaker.end()
        assert capsys.readouterr().out == f'{begins}\ncalls add {{"a": 1}}'


@pytest.mark.parametrize(("name", "value", "words"), [("NO_COLOR", "1", 1), ("TERM", "dumb", 40)])
def test_a_terminal_without_colours_gets_the_words_alone(
    name: str, value: str, words: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    speaker = Speaker(thinking=True)
    for event in (Thinking("hm " * words), Text("Well")):
        speaker.take(event)
    speaker.end()
    assert capsys.readouterr().out.replace("\n", " ").split() == ["hm"] * words + ["Well"]


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    assert fenced("x", "````").startswith("x:\n`````\n")


def test_an_answer_that_breaks_off_ends_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal: the error that follows is on a line of its own. What is piped is the text alone."""

    def broken(*begun: Event) -> Iterator[Event]:
        yield from begun
        raise ModelClosed("gone")

    for terminal, begun, shown in (
        (True, (Text("Once"),), "Once\n"),
        (True, (), ""),
        (False, (Text("Once"),), "Once"),
    ):
        monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal)
        with pytest.raises(ModelClosed):
            say(cast("Any", Answer(broken(*begun))))
        assert capsys.readouterr().out == shown
