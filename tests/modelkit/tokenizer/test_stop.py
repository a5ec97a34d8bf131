import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from modelkit.errors import RequestError
from modelkit.tokenizer import StopStrings


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    """What is emitted of the pieces, and whether a stop was found, as an engine would do it."""
    finder = StopStrings(stops)
    emitted = ""
    for piece in pieces:
        text, stopped = finder.push(piece)
        emitted += text
        if stopped:
            return emitted, True
    text, stopped = finder.finish()
    return emitted + text, stopped


LETTERS = st.text(alphabet="abc", max_size=6)


@given(stops=st.lists(LETTERS.filter(bool), max_size=4), pieces=st.lists(LETTERS, max_size=8))
@example(stops=["abcb", "b"], pieces=["a", "b", "c", "c"])
@example(stops=["abcb", "b"], pieces=["a", "b", "c", "b"])
@example(stops=["abcb", "b"], pieces=["ab"])
def test_text_ends_where_the_first_stop_string_starts(stops: list[str], pieces: list[str]):
    text = "".join(pieces)
    starts = [text.find(stop) for stop in stops if stop in text]
    assert run(stops, pieces) == (text[: min(starts, default=len(text))], bool(starts))


@given(stops=st.lists(LETTERS.filter(bool), max_size=4), pieces=st.lists(LETTERS, max_size=8))
def test_no_more_is_held_back_than_may_begin_a_stop_string(stops: list[str], pieces: list[str]):
    finder, emitted, text = StopStrings(stops), "", ""
    for piece in pieces:
        text += piece
        more, stopped = finder.push(piece)
        emitted += more
        if stopped:
            return
        held = text[len(emitted) :]
        assert text == emitted + held
        assert not held or any(stop.startswith(held) or stop in held for stop in stops)


def test_the_stop_string_found_is_told():
    finder = StopStrings(["</s>", "<|end|>"])
    assert finder.push("bye<|e") == ("bye", False)
    assert finder.push("nd|> and more") == ("", True)
    assert finder.matched == "<|end|>"


def test_nothing_is_emitted_after_a_stop():
    finder = StopStrings(["."])
    assert finder.push("a.b") == ("a", True)
    assert finder.push("c") == ("", True)
    assert finder.finish() == ("", True)


def test_a_held_tail_that_became_no_stop_is_emitted():
    finder = StopStrings(["###"])
    assert finder.push("a##") == ("a", False)
    assert finder.push("b") == ("##b", False)
    assert finder.push("#") == ("", False)
    assert finder.finish() == ("#", False)


def test_without_stop_strings_text_passes():
    assert run([], ["a", "b"]) == ("ab", False)


@pytest.mark.parametrize("stops", [[""], ["x" * 257], ["x"] * 65])
def test_unreasonable_stop_strings_are_refused(stops: list[str]):
    with pytest.raises(RequestError, match="stop string"):
        StopStrings(stops)
