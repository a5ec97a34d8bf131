"""How long a model stays, as requests, options and the environment write it."""

import math
import time
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.durations import FOR_EVER, read_keep_alive, read_retry_after
from modelkit.errors import ModelkitError, RequestError
from modelkit.settings import Settings


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (300, 300.0),
        (0, 0.0),
        (0.5, 0.5),
        ("0", 0.0),
        ("90", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("300ms", 0.3),
        ("1m1s500ms", 61.5),
        ("+10s", 10.0),
        (-1, FOR_EVER),
        (-0.001, FOR_EVER),
        ("-1", FOR_EVER),
        ("-1s", FOR_EVER),
        ("-24h", FOR_EVER),
        (10**400, FOR_EVER),
        (-(10**400), FOR_EVER),
        (math.inf, FOR_EVER),
        (10**9, 1e9),
        (10**12, FOR_EVER),
        (1e300, FOR_EVER),
        ("99999999h", FOR_EVER),
    ],
)
def test_seconds_and_durations(value: object, seconds: float) -> None:
    assert read_keep_alive(value, "keep_alive") == pytest.approx(seconds)


BAD: list[Any] = ["", " ", "5 m", "m", "5x", "1h-5m", "--1s", "5m ", "1e3", "٣s", "5" * 200]


@pytest.mark.parametrize("value", [*BAD, True, None, [], {}, math.nan], ids=repr)
def test_anything_else_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(RequestError, match=r"^keep_alive is .*expected seconds, or a duration"):
        read_keep_alive(value, "keep_alive")


@given(st.integers(0, 10**7))
def test_what_go_writes_is_read_as_it_was(seconds: int) -> None:
    written = f"{seconds // 3600}h{seconds // 60 % 60}m{seconds % 60}s"
    assert read_keep_alive(written, "x") == seconds


def test_the_environment_has_the_default() -> None:
    assert Settings.from_environment({"MODELKIT_HOME": "/x"}).keep_alive_s == 300
    assert Settings.from_environment({"MODELKIT_KEEP_ALIVE": "1h"}).keep_alive_s == 3600
    assert Settings.from_environment({"MODELKIT_KEEP_ALIVE": "-1"}).keep_alive_s == FOR_EVER
    with pytest.raises(ModelkitError, match="MODELKIT_KEEP_ALIVE is 'soon'"):
        Settings.from_environment({"MODELKIT_KEEP_ALIVE": "soon"})


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        *((None, None), ("", None), ("soon", None), ("-5", None), ("7, 8", None), ("7" * 10, None)),
        *(("7", 7), (" 0 ", 0), ("Sun, 06 Nov 1994 08:49:37 GMT", 0), ("Sun Nov  6 08:49:37 1994", 0)),
        *(("Sunday, 06-Nov-94 08:49:37 GMT", 0), ("Sun, 99 Nov 2094 08:49:37 GMT", None)),
    ],
)
def test_a_server_says_how_long_to_wait(said: str | None, seconds: float | None) -> None:
    assert read_retry_after(said) == seconds


def test_a_server_says_until_when_to_wait() -> None:
    until = read_retry_after(formatdate(time.time() + 60, usegmt=True))
    assert until is not None
    assert 50 < until <= 60
