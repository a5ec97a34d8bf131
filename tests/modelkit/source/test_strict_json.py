import contextlib
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.errors import MalformedFile
from modelkit.source.strict_json import parse_json, read_json


def write(folder: Path, content: bytes) -> Path:
    path = folder / "config.json"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "a JSON array; an object"),
        (b"null", "a JSON null"),
        (b"true", "a JSON boolean"),
        (b"1", "a JSON number"),
        (b'{"a":1,"a":2}', "`a` is there twice"),
        (b'{"a":{"b":1,"b":1}}', "`b` is there twice"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":-Infinity}', "-Infinity is not JSON"),
        (b'{"a":1e999}', "too large"),
        (b'{"a":' + b"9" * 5000 + b"}", "a whole number in it has thousands of digits"),
        (b'{"a":"\\ud800"}', "half a surrogate pair"),
        (b'{"\\ud800":1}', "not valid JSON"),
        (b'{"a":"\xff"}', "byte 6 (0xff) is not UTF-8"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark"),
        (b'{"a":"\n"}', "not valid JSON"),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", "more than 64 levels"),
        (b'{"a":' + b"[" * 1_000_000, "more than 64 levels"),
        (b"<html><body>Entry not found", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git-LFS pointer"),
    ],
)
def test_what_is_not_one_strict_object_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        read_json(write(tmp_path, content), label="here/config.json")
    assert "here/config.json" in caught.value.message
    assert said in caught.value.message


def test_a_file_above_its_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match="larger than 10 bytes"):
        read_json(write(tmp_path, b'{"a": "bcd"}'), limit=10)


def test_depth_counts_every_level(tmp_path: Path) -> None:
    assert parse_json(b"[[[]]]", "x", depth=3) == [[[]]]
    with pytest.raises(MalformedFile, match="more than 2 levels"):
        parse_json(b"[[[]]]", "x", depth=2)


@pytest.mark.parametrize("spelled", ["Infinity", '{"__float__": "Infinity"}'])
def test_both_spellings_of_infinity_are_read_when_asked_for(tmp_path: Path, spelled: str) -> None:
    path = write(tmp_path, f'{{"limits": [0.0, {spelled}]}}'.encode())
    assert read_json(path, nonfinite=True) == {"limits": [0.0, math.inf]}


def test_an_unknown_non_finite_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match="__float__"):
        read_json(write(tmp_path, b'{"a": {"__float__": "12"}}'), nonfinite=True)


def test_configs_with_infinity_in_shared_data_are_read(shared_data: Path) -> None:
    new, old = (
        read_json(shared_data / "tiny" / "mamba2" / name, nonfinite=True)
        for name in ("config.json", "config.legacy.json")
    )
    assert math.inf in new["time_step_limit"]
    assert math.inf in old["time_step_limit"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(value=json_values)
def test_whatever_json_can_write_is_read_back_equal(value: object) -> None:
    assert parse_json(json.dumps(value).encode(), "x") == value


@given(data=st.binary(max_size=60))
def test_any_bytes_give_a_value_or_one_of_our_errors(data: bytes) -> None:
    with contextlib.suppress(MalformedFile):
        parse_json(b"{" + data, "x")
