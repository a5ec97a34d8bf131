"""A terminal that no text fits is told before an answer begins, where one may come to it."""

import pytest

from modelkit.errors import RequestError
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import Form

NOTHING = "/a+/ & /b+/"
COME_TO = [
    f'start: "a" "b" T\nT: {NOTHING}',
    f'start: "a" "b" T | "a" "c"\nT: {NOTHING} // which\n# and more\nU: "k"',
    f'start: "a" ("b" T)*\nT: {NOTHING}\n%ignore " "',
    'start: x "q" x T\nx: "1"\nT: U V\nU: /[a&&b]/\nV: "v"',
    '%import common.INT\nstart: "a" "b" T\nT: INT & /b/',
]
NOT_COME_TO = [
    f'start: "a" "b" (T | "c")\nT: {NOTHING}',
    f'start: "a" "b" T?\nT: {NOTHING}',
    f'start: T | "c" "d"\nT: {NOTHING}',
    'start: "a" "b" T\nT: /a+/ & /.{2}/',
    'start: "a" "b" T\nT: "c" | U\nU: /[a&&b]/',
    'start: "a" "b" T\nT: "k&"~2',
]


@pytest.mark.parametrize("text", COME_TO)
def test_one_that_an_answer_comes_to_is_refused_by_name(text: str) -> None:
    with pytest.raises(RequestError, match="no text fits the terminal T"):
        check(Form("grammar", "lark", text))


@pytest.mark.parametrize("text", NOT_COME_TO)
def test_others_are_taken(text: str) -> None:
    check(Form("grammar", "lark", text))
