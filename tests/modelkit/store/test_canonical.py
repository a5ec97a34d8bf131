"""JSON in and out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.errors import StoreError
from modelkit.store.canonical import canonical, parse_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_written_reads_back(value: dict[str, object]):
    assert parse_object(canonical(value), "it", 1 << 20) == value


@given(st.dictionaries(st.text(), st.integers(), max_size=6))
def test_order_does_not_matter(value: dict[str, int]):
    assert canonical(dict(reversed(value.items()))) == canonical(value)


def test_there_is_one_spelling():
    assert canonical({"b": [1, True, None], "a": "é"}) == '{"a":"é","b":[1,true,null]}'.encode()


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"[]", b"7", b"null", b'"x"', b"{", b"{}x", b"\xff", b'{"a":1,"a":2}', b'{"x":{"a":1,"a":2}}'),
        *(b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":1e999}', b'{"a":' + b"9" * 5000 + b"}"),
        *(b'{"a":"\\ud800"}', '{"a":1}'.encode("utf-16"), b'\xef\xbb\xbf{"a":1}'),
        *(b'{"a":' + b"[" * 100_000, b'{"a":' * 100_000, b" " * 2000 + b"{}"),
    ],
    ids=lambda raw: repr(raw[:12]),
)
def test_doubtful_json_is_refused(raw: bytes):
    with pytest.raises(StoreError, match=r"^it "):
        parse_object(raw, "it", 1 << 20 if len(raw) != 2002 else 1000)


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": float("inf")}, {"a": "\ud800"}, {"a": b"x"}])
def test_what_json_cannot_hold_is_refused(value: dict[str, object]):
    with pytest.raises(StoreError):
        canonical(value)
