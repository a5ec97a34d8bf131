"""Messages are for reading, whatever a stranger's file, name or field holds."""

import pytest

import modelkit
from modelkit.cli.screen import show_error
from modelkit.errors import ModelfileError, ModelkitError
from modelkit.faults import worded
from runtime.errors import CacheFull


def test_a_word_too_long_to_be_read_is_shortened() -> None:
    error = ModelkitError(f"there is no {'a' * 5000}, expected b", hint=f"Write {'c' * 5000}.")
    assert error.message.startswith("there is no aaa")
    assert error.message.endswith("aaa, expected b")
    assert "4,721 characters left out" in error.message
    assert len(str(error)) < 800


def test_texts_of_many_words_stay() -> None:
    text = "one " * 2000
    assert ModelkitError(text).message == text


def test_the_name_of_a_modelfile_is_no_exception() -> None:
    with pytest.raises(ModelfileError) as caught:
        modelkit.Modelfile.read("x" * 4000)
    assert len(str(caught.value)) < 500
    assert str(caught.value).startswith("xxx")


def test_a_conversation_without_room_hears_what_to_do() -> None:
    error = worded(CacheFull(4_456_448, 4_194_304))
    assert "takes 4,456,448 bytes and may take 4,194,304" in error.message
    assert "shorter prompt" in (error.hint or "")


def test_wrong_usage_is_no_exception(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(f"Invalid value for '--format': {'a' * 3000} cannot be read")
    assert len(capsys.readouterr().err) < 800
