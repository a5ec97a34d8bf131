"""How much a regular expression leaves open."""

import re
import sys

import pytest

from modelkit.regexes import ways


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("q_proj", 1),
        (r"layers\.\d+\.(q|k|v)_proj", 3),
        ("a|b|c", 3),
        ("(a|b)(c|d)", 4),
        ("(a|(b|c))", 4),
        ("(?:a|b)?", 4),
        ("[|?(]", 1),
        (r"\(\|\?", 1),
        ("(a|a)" * 50, 2**50),
        ("(?#[)" + "(a|a)" * 50 + "(?#])", sys.maxsize),
    ],
)
def test_every_choice_counts(text: str, count: int) -> None:
    re.compile(text)
    assert ways(text) == count
