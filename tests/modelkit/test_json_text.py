import pytest

from modelkit.json_text import is_finite, parse_strictly
from modelkit.python_faults import fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a":1,"a":2}', "the key `a` is there twice"),
        (b'{"\\u001b[2J":1,"\\u001b[2J":2}', r"the key `\x1b[2J` is there twice"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":1e999}', "the number 1e999 is too large"),
        (b'["\\ud83d\\ude00", "\\ude00"]', "it has half a surrogate pair in a text"),
        (b"\xff", "byte 0 (0xff) is not UTF-8"),
        ('{"a":1}'.encode("utf-16"), "byte 0 (0xff) is not UTF-8"),
        (b"\xef\xbb\xbf{}", "it begins with a byte order mark; save it as UTF-8 without one"),
        ("\ufeff{}", "it begins with a byte order mark; save it as UTF-8 without one"),
        (b"[" * 1_000_000, "it is nested too deep"),
    ],
)
def test_what_two_readers_could_take_differently_is_refused(text: bytes | str, said: str):
    with pytest.raises((ValueError, RecursionError)) as caught:
        parse_strictly(text)
    assert fault(caught.value) == said


def test_pairs_of_surrogates_are_one_character():
    assert parse_strictly(b'"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.parametrize("value", [0, -3, 1.5, 2**70, 1e308])
def test_numbers_that_a_float_holds_are_finite(value: object):
    assert is_finite(value)


@pytest.mark.parametrize("value", [True, "1", None, [1], float("nan"), float("inf"), 10**400, -(10**400)])
def test_everything_else_is_not(value: object):
    assert not is_finite(value)
