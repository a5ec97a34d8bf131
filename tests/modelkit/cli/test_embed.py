"""`modelkit embed`: what it reads."""

import io

import pytest

from modelkit.cli import embed
from modelkit.errors import RequestError


def test_a_line_without_an_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "_LONGEST", 4)
    assert list(embed._lines(io.StringIO("abc\n\nabcd"))) == ["abc", "", "abcd"]
    with pytest.raises(RequestError, match="line 2 of standard input has more than 4 characters"):
        list(embed._lines(io.StringIO("a\nabcdefg")))
