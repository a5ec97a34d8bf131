import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import safetensors as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.errors import MalformedFile, ModelkitError, SourceError, UnsupportedSource
from modelkit.source.safetensors import read_header
from modelkit.source.tensor import BITS
from tests.modelkit.source.files import entry, raw, safetensors

A = entry("F32", [2, 2], 0, 16)
DATA = bytes(16)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "model.safetensors"
    path.write_bytes(content)
    return path


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty file": (b"", "0 bytes"),
    "nine bytes": (bytes(9), "9 bytes"),
    "header of no bytes": (raw(b"", DATA), "header of 0 bytes"),
    "header longer than the file": (b"\x11" + bytes(7) + b"{}", "header of 17 bytes"),
    "header length with the top bit": (b"\xff" * 8 + b"{}", "18,446,744,073,709,551,615"),
    "header above 100 MB": ((100_000_001).to_bytes(8, "little") + b"{}", "100,000,001"),
    "leading blank": (raw(" " + json.dumps({"a": A}), DATA), "`{` was expected"),
    "byte order mark": (raw("\ufeff{}"), "`{` was expected"),
    "array": (raw("[]"), "`{` was expected"),
    "not JSON": (raw("{'a'}"), "not valid"),
    "trailing NUL": (raw(b"{}\0"), "not valid"),
    "two objects": (raw("{}{}"), "not valid"),
    "invalid UTF-8": (raw(b'{"\xff":1}'), "not valid"),
    "deep nesting": (raw('{"a":' + "[" * 100_000), "nested"),
    "more values than tensors can have": (raw("{" + "," * 4_000_000), "values"),
    "duplicate tensor": (raw('{"a":%s,"a":%s}' % ((json.dumps(A),) * 2), DATA), "`a` is there twice"),
    "duplicate dtype": (raw('{"a":{"dtype":"F32",' + json.dumps(A)[1:] + "}", DATA), "`dtype` is there"),
    "extra key": (raw({"a": {**A, "x": 1}}, DATA), "exactly"),
    "key missing": (raw({"a": {"dtype": "U8", "shape": []}}), "exactly"),
    "entry is a number": (raw({"a": 1}), "exactly"),
    "NaN": (raw('{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,16]}}', DATA), "NaN"),
    "dimension 2.0": (raw({"a": entry("F32", [2.0, 2], 0, 16)}, DATA), "2.0 is not a size"),
    "dimension 1e0": (raw('{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}', b"x"), "1e0"),
    "dimension true": (raw({"a": entry("U8", [True], 0, 1)}, b"x"), "true is not a dimension"),
    "dimension text": (raw({"a": entry("U8", ["1"], 0, 1)}, b"x"), "not a dimension"),
    "dimension -0": (raw('{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}'), "-0 is not a size"),
    "negative dimensions": (raw({"a": entry("U8", [-2, -2], 0, 4)}, bytes(4)), "-2 is not a size"),
    "dimension of 5000 digits": (raw('{"a":{"dtype":"U8","shape":[%s]}}' % ("9" * 5000)), "not a size"),
    "dimension that wraps to 1": (raw({"a": entry("U8", [2**32 + 1], 0, 1)}, b"x"), "4294967297"),
    "product that wraps to 0": (raw({"a": entry("F32", [65536] * 4, 0, 0)}), "more elements"),
    "huge product beside a zero": (
        raw({"a": entry("U8", [0, 2**31 - 1, 2**31 - 1, 2**31], 0, 0)}),
        "not a dim",
    ),
    "nine dimensions": (raw({"a": entry("U8", [1] * 9, 0, 1)}, b"x"), "at most 8"),
    "shape is a number": (raw({"a": {**A, "shape": 4}}, DATA), "shape must be a list"),
    "span too small": (
        raw({"a": entry("F32", [2, 2], 0, 15)}, bytes(15)),
        "spans 15 bytes; F32 [2, 2] takes 16",
    ),
    "half a byte": (raw({"a": entry("F4", [3], 0, 1)}, b"x"), "takes 1.5"),
    "offsets backwards": (raw({"a": entry("U8", [0], 1, 0)}, b"x"), "not before, stops"),
    "one offset": (raw({"a": {**A, "data_offsets": [0]}}, DATA), "data_offsets"),
    "offsets that wrap": (raw({"a": entry("U8", [4], 2**64 - 8, 2**64 - 4)}, DATA), "gap"),
    "gap": (raw({"a": A, "b": entry("U8", [1], 17, 18)}, bytes(18)), "`b` leaves a gap"),
    "gap at the start": (raw({"a": entry("U8", [1], 1, 2)}, bytes(2)), "`a` leaves a gap"),
    "overlap": (raw({"a": A, "b": entry("U8", [4], 14, 18)}, bytes(18)), "`b` overlaps"),
    "same span twice": (raw({"a": A, "b": A}, DATA), "`b` overlaps"),
    "empty tensor inside another": (raw({"a": A, "b": entry("U8", [0], 8, 8)}, DATA), "overlaps"),
    "data cut off": (raw({"a": A}, bytes(15)), "is cut off"),
    "bytes after the data": (raw({"a": A}, bytes(16) + b"PK\3\4"), "belong to no tensor"),
    "unknown dtype": (raw({"a": {**A, "dtype": "F128"}}, DATA), 'unknown dtype "F128"'),
    "dtype in lower case": (raw({"a": {**A, "dtype": "f32"}}, DATA), "unknown dtype"),
    "dtype is a list": (raw({"a": {**A, "dtype": ["F32"]}}, DATA), "unknown dtype"),
    "name empty": (raw({"": A}, DATA), "not a tensor name"),
    "name with NUL": (raw({"a\0": A}, DATA), r"`a\x00`"),
    "name with an escape sequence": (raw({"\x1b[2J": A}, DATA), "not a tensor name"),
    "name of 513 bytes": (raw({"a" * 513: A}, DATA), "not a tensor name"),
    "name of 513 bytes in 171 characters": (raw({"語" * 171: A}, DATA), "not a tensor name"),
    "name that climbs": (raw({"../../etc/passwd": A}, DATA), "not a tensor name"),
    "name with half a surrogate pair": (raw(r'{"\ud800":' + json.dumps(A) + "}", DATA), "not a tensor name"),
    "metadata number": (raw({"__metadata__": {"n": 1}}), "`n`"),
    "metadata above 1 MB": (raw({"__metadata__": {"n": "x" * 1_000_000}}), "1,000,001 bytes"),
    "metadata with half a surrogate pair": (raw(r'{"__metadata__":{"n":"\ud800"}}'), "surrogate"),
    "web page": (b"<!DOCTYPE html><html>404</html>", "web page"),
}


@pytest.mark.parametrize(("content", "said"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_broken_file_is_refused_with_its_fault(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        read_header(write(tmp_path, content), label="that/model.safetensors")
    assert "that/model.safetensors" in caught.value.message
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"GGUF\x03\0\0\0" + bytes(64), "GGUF"),
        (b"PK\x03\x04" + bytes(64), "ZIP"),
        (b"\x80\x02}q\x00(X" + bytes(64), "pickle"),
        (b"\x80\x04\x95\x0b\0\0\0\0\0\0\0}\x94" + bytes(64), "pickle"),
        (b"\x89HDF\r\n\x1a\n" + bytes(64), "HDF5"),
        (b"\x93NUMPY\x01\0v\0" + bytes(64), "NumPy"),
        (b"\x1f\x8b\x08\0\0\0\0\0" + bytes(64), "gzip"),
    ],
)
def test_other_weights_under_a_false_name_are_called_what_they_are(
    tmp_path: Path, head: bytes, said: str
) -> None:
    with pytest.raises(UnsupportedSource, match=said) as caught:
        read_header(write(tmp_path, head))
    assert caught.value.hint


def test_a_git_lfs_pointer_is_recognised_by_content(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 5\n"
    with pytest.raises(MalformedFile, match="Git-LFS pointer") as caught:
        read_header(write(tmp_path, pointer))
    assert "git lfs pull" in str(caught.value)


def test_shared_malformed_files_are_all_refused(shared_data: Path) -> None:
    for path in sorted((shared_data / "malformed" / "safetensors").iterdir()):
        with pytest.raises(MalformedFile):
            read_header(path)


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match="not a regular file"):
        read_header(tmp_path / "model.safetensors")


def test_a_device_is_refused() -> None:
    with pytest.raises(SourceError, match="not a regular file"):
        read_header(Path("/dev/zero"))


def test_every_dtype_of_the_format_is_read(tmp_path: Path) -> None:
    tensors = {dtype: (dtype, (2, 4)) for dtype in BITS}
    path = write(tmp_path, safetensors(tensors))
    assert {tensor.dtype for tensor in read_header(path).tensors} == set(BITS)
    assert {info["dtype"] for _, info in reference.deserialize(path.read_bytes())} == set(BITS)


def test_offsets_count_from_the_start_of_the_file(tmp_path: Path) -> None:
    content = raw({"b": entry("U8", [3], 2, 5), "a": entry("U16", [1], 0, 2)}, b"aabbb")
    path = write(tmp_path, content)
    first, second = read_header(path).tensors
    assert (content[first.start : first.stop], content[second.start : second.stop]) == (b"aa", b"bbb")
    assert (first.name, first.nbytes, first.path) == ("a", 2, path)


def test_padding_after_the_header_object_is_fine(tmp_path: Path) -> None:
    assert read_header(write(tmp_path, raw(json.dumps({"a": A}) + "      ", DATA))).tensors[0].shape == (2, 2)


def test_metadata_is_handed_on(tmp_path: Path) -> None:
    assert read_header(write(tmp_path, raw({"__metadata__": {"format": "pt"}}))).metadata == {"format": "pt"}


def test_a_file_that_changed_since_is_told_apart(tmp_path: Path) -> None:
    path = write(tmp_path, safetensors({"a": ("U8", (4,))}))
    header = read_header(path)
    with path.open("rb") as file:
        assert header.unchanged(file.fileno())
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    other.replace(path)
    with path.open("rb") as file:
        assert not header.unchanged(file.fileno())


def outcome(path: Path) -> Any:
    try:
        return read_header(path)
    except ModelkitError:
        return None


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutants") / "model.safetensors"


PIECES = (b"-", b"0", b"1", b"9", b",", b" ", b"[", b"}", b'"', b".0", b"e0", b"\\u0061", b"null")


def mutate(content: bytes, seed: int) -> bytes:
    """Change a valid file in one to three places, mostly in its header and mostly still readable."""
    rng = random.Random(seed)
    body = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(8, len(body)) if rng.random() < 0.95 else rng.randrange(8)
        piece = rng.choice(
            (b"-", b"0", b"1", b"9", b",", b" ", b"[", b"}", b'"', b".0", b"e0", b"\\u0061", b"null")
        )
        width = rng.choice((0, 1, 1, len(piece)))
        body[at : at + width] = piece
    if rng.random() < 0.9:  # keep the announced length true, so that the parser sees the mutant
        body[:8] = (len(body) - len(content) + int.from_bytes(content[:8], "little")).to_bytes(8, "little")
    return bytes(body)


@settings(max_examples=1500)
@given(
    specs=st.lists(
        st.tuples(st.sampled_from(sorted(BITS)), st.lists(st.sampled_from([0, 1, 2, 8]), max_size=3)),
        max_size=4,
    ),
    seed=st.integers(0, 2**32),
)
def test_nothing_is_accepted_that_the_reference_library_refuses(
    scratch: Path, specs: list[tuple[str, list[int]]], seed: int
) -> None:
    content = mutate(
        safetensors({f"t{i}": (dtype, (*shape, 8)) for i, (dtype, shape) in enumerate(specs)}), seed
    )
    scratch.write_bytes(content)
    header = outcome(scratch)
    if header is not None:
        theirs = dict(reference.deserialize(content))
        ours = {tensor.name: tensor for tensor in header.tensors}
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            assert list(tensor.shape) == theirs[name]["shape"]
            assert content[tensor.start : tensor.stop] == bytes(theirs[name]["data"])


@settings(max_examples=300)
@given(content=st.binary(max_size=200))
def test_any_bytes_give_a_header_or_one_of_our_errors(scratch: Path, content: bytes) -> None:
    scratch.write_bytes(content)
    outcome(scratch)


def test_metadata_may_be_null_as_mlx_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(raw({"__metadata__": None, "a": A}, DATA))
    assert read_header(path).metadata == {}


@pytest.mark.parametrize("value", ["[]", "0", "false", '""', "[[]]", "1", '"x"', '{"a": 1}'])
def test_metadata_of_another_type_is_refused(tmp_path: Path, value: str) -> None:
    """As the reference library does; null is none."""
    path = tmp_path / "x.safetensors"

    def write(metadata: str) -> None:
        text = f'{{"__metadata__":{metadata},"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}'.encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0")

    write(value)
    with pytest.raises(MalformedFile, match="__metadata__"):
        read_header(path)
    write("null")
    assert read_header(path).metadata == {}
