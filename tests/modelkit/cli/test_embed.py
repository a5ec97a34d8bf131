"""`modelkit embed`: what it reads."""

import io
from collections.abc import Callable

import pytest
from click.testing import Result

from modelkit.cli import embed
from modelkit.errors import RequestError


def test_a_dash_is_standard_input(created: Callable[..., None], modelkit: Callable[..., Result]) -> None:
    created("story")
    found = [modelkit("embed", "story", *way, stdin="a\nb\n").stdout for way in ((), ("-",), ("a", "b"))]
    assert found[0] == found[1] == found[2]
    assert modelkit("embed", "story", "-", "-").stdout.count("\n") == 2  # two texts


def test_a_line_without_an_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "_LONGEST", 4)
    assert list(embed._lines(io.StringIO("abc\n\nabcd"))) == ["abc", "", "abcd"]
    with pytest.raises(RequestError, match="line 2 of standard input has more than 4 characters"):
        list(embed._lines(io.StringIO("a\nabcdefg")))
