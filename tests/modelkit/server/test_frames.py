"""A filled frame is the JSON of the object whose values it was filled with."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.server.frames import MARK, Frame, ascii_text, utf8_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS, TEXTS)
def test_filled_frames_read_as_the_object(first: str, second: str) -> None:
    frame = Frame(json.dumps({"before": [1, {"a": MARK}], "b": MARK, "after": '"'}).encode())
    expected = {"before": [1, {"a": first}], "b": second, "after": '"'}
    assert json.loads(frame.filled(ascii_text(first), utf8_text(second))) == expected


@given(TEXTS)
def test_texts_are_written_as_the_standard_library_writes_them(text: str) -> None:
    assert ascii_text(text) == json.dumps(text).encode()
    assert json.loads(utf8_text(text)) == text


@pytest.mark.parametrize("values", [(), (b"1", b"2")])
def test_every_mark_gets_its_value(values: tuple[bytes, ...]) -> None:
    frame = Frame(json.dumps({"a": MARK}).encode())
    with pytest.raises(ValueError, match="zip"):
        frame.filled(*values)


def test_a_text_that_looks_like_a_place_is_a_text() -> None:
    frame = Frame(json.dumps({"model": "\0", "a": MARK}).encode())
    assert json.loads(frame.filled(b"7")) == {"model": "\0", "a": 7}
