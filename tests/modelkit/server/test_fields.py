"""Fields of a body: their values in a plain form, or an error with the whole name."""

from collections.abc import Callable
from typing import Any

import pytest

from modelkit.server.faults import Refused
from modelkit.server.fields import Fields

BODY: dict[str, Any] = {
    "text": "a",
    "empty": "",
    "nothing": None,
    "five": 5,
    "exact": 3.0,
    "half": 0.5,
    "yes": True,
    "list": [{"role": "user"}, 7],
    "words": ["a", 1],
    "deep": {"inner": {"value": "x"}},
}


def test_values() -> None:
    fields = Fields(BODY)
    assert (fields.text("text"), fields.text("nothing"), fields.text("absent", "b")) == ("a", None, "b")
    assert (fields.whole("five"), fields.whole("exact"), fields.whole("absent", default=9)) == (5, 3, 9)
    assert (fields.number("half"), fields.number("five"), fields.number("nothing")) == (0.5, 5.0, None)
    assert (fields.flag("yes"), fields.flag("absent", False)) == (True, False)
    assert (fields.choice("text", ["a", "b"]), fields.choice("nothing", ["a"], "a")) == ("a", "a")
    assert (fields.items("nothing"), fields.texts("text"), fields.has("nothing")) == ([], ["a"], False)
    deep = fields.fields("deep")
    assert deep is not None
    assert (deep.name("inner"), deep.fields("nothing")) == ("deep.inner", None)
    fields.refuse("empty", "is nothing")


@pytest.mark.parametrize(
    ("read", "where", "expected"),
    [
        (lambda f: f.text("five"), "five", "a text"),
        (lambda f: f.needed_text("empty"), "empty", "missing"),
        (lambda f: f.needed_text("absent"), "absent", "missing"),
        (lambda f: f.whole("half"), "half", "a whole number"),
        (lambda f: f.whole("yes"), "yes", "a whole number"),
        (lambda f: f.whole("text"), "text", "a whole number"),
        (lambda f: f.whole("five", 6, 9), "five", "from 6 to 9"),
        (lambda f: f.whole("five", high=4), "five", "at most 4"),
        (lambda f: f.number("yes"), "yes", "a number"),
        (lambda f: f.number("half", 1), "half", "at least 1"),
        (lambda f: f.flag("five"), "five", "true or false"),
        (lambda f: f.choice("text", ["b", "c"]), "text", "one of b, c"),
        (lambda f: f.items("text"), "text", "a list"),
        (lambda f: f.items("list", most=1), "list", "at most 1"),
        (lambda f: f.texts("words"), "words[1]", "a text"),
        (lambda f: list(f.each("list")), "list[1]", "an object"),
        (lambda f: f.fields("deep").fields("inner").whole("value"), "deep.inner.value", "a whole number"),
        (lambda f: f.refuse("text", "is not there"), "text", "is not there"),
        (lambda f: Fields([]), None, "an object"),
    ],
)
def test_an_error_says_where_and_what(read: Callable[[Any], Any], where: str | None, expected: str) -> None:
    with pytest.raises(Refused, match=expected) as caught:
        read(Fields(BODY))
    assert caught.value.fault.kind == "invalid_request"
    if where is not None:
        assert caught.value.fault.param == where
        assert where in caught.value.message


@pytest.mark.parametrize("value", [[1], "a", 5, None])
def test_the_body_itself_is_no_field(value: object) -> None:
    with pytest.raises(Refused, match=r"the body is .*, expected an object") as raised:
        Fields(value)
    assert raised.value.fault.param is None
    with pytest.raises(Refused, match=r"tools\[0\] is 5, expected an object") as raised:
        list(Fields({"tools": [5]}).each("tools"))
    assert raised.value.fault.param == "tools[0]"


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda f: f.text("yes"), "yes is true, expected a text"),
        (lambda f: f.text("deep"), "deep is an object, expected a text"),
        (lambda f: f.texts("five"), "five is 5, expected a text, or a list of texts"),
        (
            lambda f: f.whole("text", 1, 2**31 - 1),
            "text is 'a', expected a whole number from 1 to 2147483647",
        ),
        (
            lambda f: f.fit("words", "stop", ["a"] * 17),
            "words has 17 texts, expected at most 16 texts of 1 to",
        ),
        (
            lambda f: f.fit("words", "stop", ["a", "b" * 257]),
            "words[1] has 257 characters, expected at most 16",
        ),
        (lambda one: one.duration("deep"), "deep is an object, expected seconds"),
        (lambda one: one.duration("yes"), "yes is true, expected seconds"),
    ],
)
def test_words_are_those_of_who_writes_json(read: Callable[[Fields], object], said: str) -> None:
    with pytest.raises(Refused) as error:
        read(Fields(BODY))
    assert error.value.message.startswith(said)


def test_the_first_of_several_that_is_there_is_read() -> None:
    fields = Fields(BODY)
    assert fields.first(("absent", "nothing", "five", "half")) == "five"
    assert fields.first(("absent", "nothing")) is None
    assert "five" not in fields.unread()
    assert "half" in fields.unread()


@pytest.mark.parametrize("value", [0, 0.0, "x", [0], {"a": None}, True])
def test_what_says_something_is_named_where_nobody_reads_it(value: object) -> None:
    empty = {"tags": [], "note": "", "more": {}, "gone": None, "off": False}
    assert Fields({"weight": value, **empty}).unread() == ("weight",)
