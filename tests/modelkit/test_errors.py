"""Messages are for reading, whatever a stranger's file, name or field holds."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import modelkit
from modelkit.cli.terminal.screen import show_error
from modelkit.errors import Busy, InvalidName, ModelfileError, ModelkitError, PromptTooLong, Unplaced
from modelkit.faults import as_modelkit_error
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


@pytest.mark.parametrize("said", ["can't start new thread", "Resource temporarily unavailable"])
def test_who_gets_no_thread_hears_which_limits_there_are(said: str) -> None:
    error = as_modelkit_error(RuntimeError(said))
    assert "no more threads" in error.message
    assert "`ulimit -u`" in (error.hint or "")


def test_memory_that_runs_out_is_no_unknown_reason() -> None:
    error = as_modelkit_error(MemoryError())
    assert error.message == "there is not enough memory for this"
    assert "`ulimit -v`" in (error.hint or "")


def test_where_a_rank_has_too_little_memory_it_is_named_with_what_to_do() -> None:
    error = as_modelkit_error(CacheFull(400, 300, "rank 1 has 100 bytes free for its part"))
    assert "takes 400 bytes and may take 300, as rank 1 has 100 bytes free for its part" in str(error)
    assert "cut it so that this rank has less" in str(error)


def test_a_conversation_without_room_hears_what_to_do() -> None:
    error = as_modelkit_error(CacheFull(4_456_448, 4_194_304))
    assert "takes 4,456,448 bytes and may take 4,194,304" in error.message
    assert "Shorten the prompt" in (error.hint or "")


def test_wrong_usage_is_no_exception(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(f"Invalid value for '--format': {'a' * 3000} cannot be read")
    assert len(capsys.readouterr().err) < 800


@pytest.mark.parametrize(
    "error",
    [
        InvalidName("no name", hint="Choose another."),
        ModelfileError("no word", file="Modelfile", line=7, column=1, hint="FROM ./model"),
        PromptTooLong("too long", prompt_tokens=9, context_tokens=8),
        Busy("busy", waiting=3, retry_after_s=2),
        Unplaced("nowhere", part="head"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_they_go_from_process_to_process(error: ModelkitError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    assert vars(again) == vars(error)


def _refuse() -> None:
    raise PromptTooLong("too long", prompt_tokens=9, context_tokens=8)


def test_a_pool_of_processes_hands_them_out() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(PromptTooLong) as caught:
            pool.submit(_refuse).result(60)
        assert caught.value.prompt_tokens == 9
        assert pool.submit(abs, -1).result(60) == 1
