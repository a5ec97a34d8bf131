import re
import struct
import tracemalloc
from pathlib import Path

import pytest

from modelkit.errors import MalformedFile, SourceError, UnsupportedSource
from modelkit.source.gguf.file import read_gguf
from tests.support.gguf import ARRAY, BOOL, I32, STRING, U32, Gguf, Tensor, Typed, pair, text

TWO = (Tensor("a", "f32", (3, 4)), Tensor("b", "q8_0", (2, 64)))
HUGE = 2**64 - 1


def write(folder: Path, content: bytes, name: str = "m.gguf") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_what_a_file_holds_comes_back(tmp_path: Path) -> None:
    metadata = {"a.string": "zß水", "a.flag": True, "an.array": ["one", "", "three"], "ints": [3, 1]}
    typed = {f"t{kind}": Typed(kind, 7) for kind in (0, 1, 2, 3, 4, 5, 10, 11)}
    floats = {"f32": Typed(6, 0.5), "f64": Typed(12, 1e300), "empty": Typed(ARRAY, [], STRING)}
    flags = {"flags": Typed(ARRAY, [True, False], BOOL)}
    path = write(tmp_path, bytes(Gguf({**metadata, **typed, **floats, **flags}, TWO)))
    found = read_gguf(path)
    assert dict(found.metadata) == {
        **{key: tuple(value) if isinstance(value, list) else value for key, value in metadata.items()},
        **dict.fromkeys(typed, 7),
        "f32": 0.5,
        "f64": 1e300,
        "empty": (),
        "flags": (True, False),
    }
    a, b = found.tensors.values()
    assert (a.name, a.type.name, a.shape, a.nbytes) == ("a", "f32", (3, 4), 48)
    assert (b.name, b.type.name, b.shape, b.nbytes, b.row_bytes) == ("b", "q8_0", (2, 64), 136, 68)
    assert b.start - a.start == 64
    assert found.notes == ()


def entry(*, dims: int = 1, shape: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    return text("x") + struct.pack(f"<I{len(shape)}Q", dims, *shape) + struct.pack("<IQ", kind, offset)


def lone(raw: bytes, data: int = 64) -> bytes:
    """A file whose only tensor's entry is `raw`."""
    header = bytes(Gguf(tensor_count=1).header()) + raw
    return header + bytes(-len(header) % 32) + bytes(data)


# The cases of llama.cpp's tests/test-gguf.cpp (MIT), then those of our own.
HOSTILE: dict[str, tuple[bytes, str]] = {
    "bad magic": (bytes(Gguf(magic=b"FUGG")), "big-endian"),
    "version 0": (bytes(Gguf(version=0)), "version 0"),
    "version 1": (bytes(Gguf(version=1)), "version 1"),
    "future version": (bytes(Gguf(version=4)), "version 4"),
    "tensor count -1": (bytes(Gguf(tensor_count=HUGE)), "18,446,744,073,709,551,615 tensors"),
    "key count -1": (bytes(Gguf(key_count=HUGE)), "18,446,744,073,709,551,615 metadata keys"),
    "key size -1": (bytes(Gguf(pairs=[struct.pack("<Q", HUGE)], key_count=1)), "metadata key of 18,446"),
    "empty key": (bytes(Gguf({"": 1})), "metadata key of 0 bytes"),
    "bad type of value": (bytes(Gguf(pairs=[text("k") + struct.pack("<I", 13)])), "unknown type 13"),
    "duplicate key": (bytes(Gguf(pairs=[pair("k", 1), pair("k", 2)])), "`k` twice"),
    "alignment 13": (bytes(Gguf({"general.alignment": 13})), "`general.alignment` is 13"),
    "alignment is text": (bytes(Gguf({"general.alignment": "32"})), "`general.alignment` is '32'"),
    "long tensor name": (bytes(Gguf(tensors=[Tensor("x" * 65)])), "tensor name of 65 bytes"),
    "five dimensions": (lone(entry(dims=5, shape=(1,) * 5)), "5 dimensions"),
    "dimension -1": (lone(entry(shape=(HUGE,))), "which no tensor can have"),
    "dimension 0": (lone(entry(dims=2, shape=(4, 0))), "which no tensor can have"),
    "too many numbers": (lone(entry(dims=2, shape=(2**33, 2**33))), "which no tensor can have"),
    "too many bytes": (lone(entry(dims=2, shape=(2**30, 2**31), kind=27)), "is cut off"),
    "bytes wrap when padded": (lone(entry(dims=3, shape=(4, 2**30 - 1, 2**30 + 1))), "is cut off"),
    "bad type of tensor": (lone(entry(kind=43)), "type 43"),
    "offset -1": (lone(entry(offset=HUGE)), "not a multiple of 32"),
    "duplicate tensor": (bytes(Gguf(tensors=[Tensor("x"), Tensor("x")])), "tensor `x` twice"),
    "inconsistent alignment": (
        bytes(Gguf({"general.alignment": 64}, [Tensor("a"), Tensor("b")])),
        "not a multiple of 64",
    ),
    "not enough data": (bytes(Gguf(tensors=TWO))[:-40], "is cut off"),
    "memory overflow": (
        bytes(Gguf(tensors=[Tensor(n, 24, (2**63 - 64,), b"", o) for n, o in (("x", 0), ("y", 2**63))])),
        "no tensor can have",
    ),
    "empty file": (b"", "0 bytes"),
    "four bytes": (b"GGUF", "4 bytes"),
    "GGML": (b"tjgg" + bytes(30), "a GGML file, not GGUF"),
    "another file": (b"hello world, this is text", "not a GGUF file"),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid", "Git-LFS pointer"),
    "web page": (b"<!doctype html><html>", "web page"),
    "ZIP": (b"PK\x03\x04" + bytes(60), "ZIP archive"),
    "big-endian version": (b"GGUF\0\0\0\3" + bytes(16), "big-endian"),
    "string longer than the file": (
        bytes(Gguf(pairs=[text("k") + struct.pack("<IQ", STRING, 2**20)])),
        "ends inside its header",
    ),
    "string of 2^63": (bytes(Gguf(pairs=[text("k") + struct.pack("<IQ", STRING, 2**63)])), "at most"),
    "array of 2^62": (bytes(Gguf(pairs=[text("k") + struct.pack("<IIQ", ARRAY, U32, 2**62)])), "at most"),
    "array longer than the file": (
        bytes(Gguf(pairs=[text("k") + struct.pack("<IIQ", ARRAY, STRING, 2**22)])),
        "ends inside its header",
    ),
    "array of arrays": (bytes(Gguf(pairs=[text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1)])), "of arrays"),
    "array of unknown": (bytes(Gguf(pairs=[text("k") + struct.pack("<IIQ", ARRAY, 99, 1)])), "type 99"),
    "long item": (bytes(Gguf({"k": ["x" * 70_000]})), "string of 70,000 bytes"),
    "truth of 7": (bytes(Gguf({"k": Typed(0, 7)})).replace(b"k\0\0\0\0\7", b"k\7\0\0\0\7"), "truth value"),
    "truth of 7 in an array": (
        bytes(Gguf(pairs=[text("k") + struct.pack("<IIQ2B", ARRAY, BOOL, 2, 1, 7)])),
        "truth value",
    ),
    "text is not UTF-8": (bytes(Gguf({"k": b"\xff\xfe"})), "not UTF-8"),
    "key with a blank": (bytes(Gguf({"a b": 1})), "not a metadata key"),
    "key with a NUL": (bytes(Gguf({"a\0": 1})), "not a metadata key"),
    "alignment 0": (bytes(Gguf({"general.alignment": 0})), "`general.alignment` is 0"),
    "alignment 2^31": (bytes(Gguf({"general.alignment": 2**31})), "general.alignment"),
    "alignment -32": (bytes(Gguf({"general.alignment": Typed(I32, -32)})), "general.alignment"),
    "name with a NUL": (bytes(Gguf(tensors=[Tensor("a\0b")])), "not a tensor name"),
    "name that climbs": (bytes(Gguf(tensors=[Tensor("../../x")])), "not a tensor name"),
    "no name": (bytes(Gguf(tensors=[Tensor("")])), "tensor name of 0 bytes"),
    "no dimension": (lone(entry(dims=0, shape=())), "0 dimensions"),
    "2^32-1 dimensions": (lone(entry(dims=2**32 - 1)), "4,294,967,295 dimensions"),
    "type that is gone": (lone(entry(kind=31)), "Q4_0_4_4"),
    "type of another program": (lone(entry(kind=144)), "only ik_llama.cpp has"),
    "type of activations": (lone(entry(kind=15)), "Q8_K"),
    "part of a block": (lone(entry(shape=(33,), kind=8)), "Q8_0 stores blocks of 32"),
    "offset 7": (lone(entry(offset=7)), "not a multiple of 32"),
    "offset beyond the file": (lone(entry(offset=2**62)), "is cut off"),
    "overlap": (
        bytes(Gguf(tensors=[Tensor("a", shape=(64,)), Tensor("b", shape=(64,), offset=32)])),
        "overlaps",
    ),
    "200,000 keys": (bytes(Gguf(key_count=200_000)), "200,000 metadata keys"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_breaks_the_format_is_refused_by_name(case: str, tmp_path: Path) -> None:
    content, said = HOSTILE[case]
    path = write(tmp_path, content)
    tracemalloc.start()
    try:
        with pytest.raises(SourceError) as caught:
            list(read_gguf(path).metadata.values())
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert said in str(caught.value)
    assert str(caught.value).count(str(path)) == 1


def test_bad_text_in_an_array_is_refused_when_it_is_read(tmp_path: Path) -> None:
    found = read_gguf(write(tmp_path, bytes(Gguf({"k": [b"ok", b"\xff"]}))))
    with pytest.raises(MalformedFile, match="`k` holds text that is not UTF-8"):
        found.metadata["k"]


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    whole = bytes(Gguf({"a": "text", "b": [1, 2], "c": ["x", "yz"]}, TWO))
    data_end = len(whole) - (-136 % 32)  # the last tensor's padding may be absent
    for size in range(data_end):
        with pytest.raises(SourceError):
            read_gguf(write(tmp_path, whole[:size]))
    assert read_gguf(write(tmp_path, whole[:data_end])).notes == ()


def test_bytes_of_no_tensor_are_told(tmp_path: Path) -> None:
    found = read_gguf(write(tmp_path, bytes(Gguf(tensors=TWO, tail=bytes(100)))))
    assert found.notes == (f"{tmp_path}/m.gguf has 100 bytes that belong to no tensor; they are left out",)


def shard(number: int, count: int, tensors: list[Tensor], total: int = 2) -> bytes:
    split = {"split.no": Typed(2, number), "split.count": Typed(2, count)}
    return bytes(Gguf({**split, "split.tensors.count": Typed(I32, total), "number": number}, tensors))


@pytest.mark.parametrize("ending", ["-of-00002.gguf", "-of-00002.GGUF", "-OF-00002.GGUF"])
def test_shards_are_read_as_one_model(ending: str, tmp_path: Path) -> None:
    first = write(tmp_path, shard(0, 2, [Tensor("a")]), f"m-00001{ending}")
    second = write(tmp_path, shard(1, 2, [Tensor("b")]), f"m-00002{ending}")
    found = read_gguf(first)
    assert [part.path for part in found.parts] == [first, second]
    assert {name: tensor.path for name, tensor in found.tensors.items()} == {"a": first, "b": second}
    assert found.metadata["number"] == 0
    with pytest.raises(UnsupportedSource, match=rf"shard 2 of 2\n.* m-00001{re.escape(ending)}"):
        read_gguf(second)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (None, "m-00002-of-00002.gguf is not beside it"),
        (shard(1, 2, [Tensor("a")]), "tensor `a` is in"),
        (shard(1, 2, [Tensor("b"), Tensor("c")]), "hold 3 tensors; 2 were announced"),
        (shard(0, 2, [Tensor("b")]), "another shard"),
        (shard(1, 2, [Tensor("b")], total=3), "another shard"),
        (bytes(Gguf(tensors=[Tensor("b")])), "another shard"),
    ],
)
def test_shards_that_do_not_fit_are_refused(second: bytes | None, said: str, tmp_path: Path) -> None:
    first = write(tmp_path, shard(0, 2, [Tensor("a")]), "m-00001-of-00002.gguf")
    if second is not None:
        write(tmp_path, second, "m-00002-of-00002.gguf")
    with pytest.raises(SourceError, match=said):
        read_gguf(first)


def test_a_shard_under_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match="cannot be found without the name"):
        read_gguf(write(tmp_path, shard(0, 2, [Tensor("a")])))
    with pytest.raises(MalformedFile, match=r"no `split\.count`"):
        read_gguf(write(tmp_path, bytes(Gguf(tensors=TWO)), "m-00001-of-00002.gguf"))
    with pytest.raises(MalformedFile, match="which no shard can have"):
        read_gguf(write(tmp_path, shard(3, 2, [Tensor("a")])))


def test_a_large_vocabulary_is_cheap(tmp_path: Path) -> None:
    tokens = [f"token-{number}" for number in range(50_000)]
    path = write(tmp_path, bytes(Gguf({"tokenizer.ggml.tokens": tokens})))
    tracemalloc.start()
    found = read_gguf(path)
    assert found.metadata.count("tokenizer.ggml.tokens") == len(tokens)
    unread = tracemalloc.get_traced_memory()[1]
    assert found.metadata["tokenizer.ggml.tokens"] == tuple(tokens)
    read = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = path.stat().st_size
    assert unread < 4 * size
    assert read < 10_000_000


def test_given_files_are_judged_as_noted(shared_data: Path) -> None:
    folder = shared_data / "malformed" / "gguf"
    judged = {}
    for path in sorted(folder.iterdir()):
        try:
            judged[path.name] = bool(read_gguf(path).tensors)
        except SourceError:
            judged[path.name] = False
    assert judged == {path.name: path.name.startswith("ok_") for path in folder.iterdir()}
    assert len(judged) == 6
