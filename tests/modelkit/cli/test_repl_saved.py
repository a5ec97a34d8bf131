"""What is kept of conversations, and going on with one another day."""

import errno
import re
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from modelkit.chat.message import Message
from modelkit.cli import run
from modelkit.cli.repl import Session, converse
from modelkit.cli.repl.saved import MOST_SAVED, ConversationFile, last
from modelkit.cli.run import RunOptions
from modelkit.errors import RequestError
from tests.support.talking import Model, talk
from tests.support.typed import typed


def test_a_conversation_goes_on_another_day(home: Path) -> None:
    session = talk(Model(), "/set system Be brief.", "one", file=ConversationFile(home, "story"))
    talk(Model(), "other", file=ConversationFile(home, "another"))
    earlier = last(home, "story")
    assert [*earlier.messages] == session.messages
    assert earlier.system == "Be brief."
    assert stat.S_IMODE(earlier.path.stat().st_mode) == 0o600
    more = Session(Model(), "story", file=ConversationFile(home, "story", earlier.path))  # type: ignore[arg-type]
    more.conversation.add(*earlier.messages)
    converse(more, typed("two", "/clear", "three"))
    assert len(list(earlier.path.parent.iterdir())) == 3
    with pytest.raises(RequestError, match="no earlier conversation with nothing"):
        last(home, "nothing")


def test_any_spelling_of_the_name_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(Model(), "one", file=ConversationFile(home, "story"))
    monkeypatch.setattr("modelkit.cli.terminal.lines.open_reader", lambda *_: typed())
    plain = dict.fromkeys(("raw", "hide_thinking", "verbose", "local", "as_json"), False)
    nothing: Any = {"text": None, "system": None, "form": {}, "settings": {}, "adapters": None, **plain}
    run._converse(Model(), RunOptions(name="STORY:latest", go_on=True, **nothing))  # type: ignore[arg-type]
    assert "continuing a conversation of 2 messages" in capsys.readouterr().err


def test_what_is_said_to_another_model_is_kept_as_its_own(home: Path) -> None:
    other = Model()
    other.name = "other"
    talk(Model(), "one", "/load other", "two", file=ConversationFile(home, "story"), load=lambda _: other)
    assert [last(home, name).messages[0].content for name in ("story", "other")] == ["one", "two"]


def test_kept_files_that_are_damaged_are_passed_over(home: Path) -> None:
    talk(Model(), "one", file=ConversationFile(home, "story"))
    folder = home / "sessions"
    for number, text in enumerate(("", "[]", "{}", "nonsense", '{"form": 1, "model": "story"}\n5')):
        (folder / f"99990101-00000{number}.jsonl").write_text(text)
    assert [message.content for message in last(home, "story").messages] == ["one", "answer 1"]


def test_only_the_latest_conversations_are_kept(home: Path) -> None:
    folder = home / "sessions"
    folder.mkdir(parents=True)
    for number in range(MOST_SAVED + 5):
        (folder / f"19990101-{number:06}.jsonl").write_text("{}")
    talk(Model(), "one", file=ConversationFile(home, "story"))
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == MOST_SAVED
    assert names[0] == "19990101-000006.jsonl"


def test_a_clock_that_is_set_back_loses_no_conversation(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MOST_SAVED):
        ConversationFile(home, "story").write([Message("user", str(number))], None)
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    talk(Model(), "one", file=ConversationFile(home, "story"))
    assert [message.content for message in last(home, "story").messages] == ["one", "answer 1"]
    assert len(list((home / "sessions").iterdir())) == MOST_SAVED


def test_a_conversation_that_still_goes_on_is_kept(home: Path) -> None:
    kept = ConversationFile(home, "story")
    kept.write([Message("user", "first")], None)
    for number in range(MOST_SAVED):
        ConversationFile(home, "other").write([Message("user", str(number))], None)
    kept.write([Message("user", "again")], None)
    assert [message.content for message in last(home, "story").messages] == ["again"]


def test_a_place_that_cannot_be_written_is_said_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "sessions").write_text("")
    talk(Model(), "one", "two", file=ConversationFile(home, "story"))
    assert capsys.readouterr().err.count("is not saved") == 1


def test_what_was_said_while_the_disk_was_full_is_saved_once_there_is_room(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from modelkit.cli.repl import saved

    file, replace = ConversationFile(home, "story"), saved.replace
    said = [Message("user", "one"), Message("assistant", "1")]

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saved, "replace", full)
    assert re.search(
        r"not saved for now: \S+/sessions: no space .* are free there", str(file.write(said, None))
    )
    assert file.write(said, None) is None, "it was said"
    monkeypatch.setattr(saved, "replace", replace)
    said += [Message("user", "two"), Message("assistant", "2")]
    assert file.write(said, None) == "this conversation is saved again"
    assert [*last(home, "story").messages] == said
    assert file.write(said, None) is None
