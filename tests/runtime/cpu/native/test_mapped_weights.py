"""Arrays over mapped files: the numbers of the file, never written to, unmapped with the last of them, shared
between processes.
"""

import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.cpu.native.mapped_weights import dense, mapped
from runtime.weights.files import DTYPES

kernels = native.kernels
if kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)


@pytest.fixture(autouse=True)
def on_processor():
    with mx.stream(mx.cpu):
        yield


def everything(_name: str) -> bool:
    return True


def written(folder: Path, **tensors: mx.array) -> Path:
    """A file whose tensors are aligned, which is left to chance where MLX writes it."""
    path = folder / "m.safetensors"
    mx.save_safetensors(str(path), tensors)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    blanks = b" " * (-length % 8)
    whole = length + len(blanks)
    path.write_bytes(whole.to_bytes(8, "little") + content[8 : 8 + length] + blanks + content[8 + length :])
    return path


def maps(path: Path) -> int:
    with open("/proc/self/maps") as lines:
        return sum(str(path) in line for line in lines)


def test_the_numbers_are_those_that_are_read(tmp_path: Path) -> None:
    types = [one for one in dict.fromkeys(DTYPES.values()) if one != mx.bool_]
    tensors = {str(one): mx.arange(24).reshape(2, 3, 4).astype(one) for one in types}
    tensors |= {"yes or no": mx.array([True, False] * 4), "scalar": mx.array(2, dtype=mx.int64)}
    path = written(tmp_path, **tensors)
    found = mapped(path, everything)
    assert maps(path) == 1
    for name, array in mx.load(str(path)).items():
        if name in found.arrays:
            assert found.arrays[name].dtype == array.dtype
            assert mx.array_equal(found.arrays[name], array), name
    assert {"mlx.core.bfloat16", "mlx.core.uint32"} <= found.arrays.keys()


def test_only_what_is_wanted_is_mapped(tmp_path: Path) -> None:
    path = written(tmp_path, a=mx.ones(4), b=mx.ones(4))
    assert mapped(path, everything).others is False
    found = mapped(path, lambda name: name == "b")
    assert (list(found.arrays), found.others) == (["b"], True)


def test_what_lies_askew_is_left_to_be_read(tmp_path: Path) -> None:
    header = (
        b'{"odd":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},"a":{"dtype":"U8","shape":[1],'
        b'"data_offsets":[0,1]},"none":{"dtype":"F32","shape":[0],"data_offsets":[9,9]}}'
    )
    header += b" " * (-len(header) % 8)
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(9))
    found = mapped(path, everything)
    assert (list(found.arrays), found.others) == (["a"], True)


def test_a_file_that_cannot_be_mapped_is_left_to_be_read(monkeypatch, tmp_path: Path) -> None:
    path = written(tmp_path, a=mx.ones(4))

    def refuse(_path: str) -> None:
        raise ValueError

    monkeypatch.setattr(kernels, "File", refuse)
    assert mapped(path, everything).others is True
    monkeypatch.setattr("runtime.cpu.native.mapped_weights.kernels", None)
    assert mapped(path, everything).others is True


@pytest.mark.parametrize(
    ("start", "shape", "dtype"),
    [
        (0, [1], mx.uint8),  # the word in front
        (8, [57], mx.uint8),
        (8, [15], mx.float32),
        (60, [2], mx.float32),
        (1 << 60, [1], mx.uint8),
        (8, [1 << 30, 1 << 30, 1 << 30], mx.float32),
        (9, [1], mx.float32),
        (8, [-1], mx.uint8),
        (8, [0], mx.uint8),
        (0, [], mx.float32),
        (64, [], mx.float32),
        (1 << 60, [], mx.float32),
    ],
)
def test_nothing_beyond_the_file_is_an_array(tmp_path: Path, start: int, shape: list[int], dtype) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(64))
    file = kernels.File(str(path))
    assert file.at(8, [14], mx.float32).shape == (14,)
    with pytest.raises(ValueError, match=r"beyond its file|nothing can be mapped"):
        file.at(start, shape, dtype)


def test_no_file_no_arrays(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(bytes(8))
    for name in ("none", "short", "."):
        with pytest.raises(ValueError, match=str(tmp_path)):
            kernels.File(str(tmp_path / name))


def test_the_last_array_unmaps(tmp_path: Path) -> None:
    path = written(tmp_path, a=mx.arange(4096.0).reshape(64, 64), b=mx.ones(4))
    arrays = mapped(path, everything).arrays
    rows = arrays["a"][3:5]
    mx.eval(rows)
    a = arrays.pop("a")
    arrays.clear()
    del a
    assert maps(path) == 1
    path.unlink()
    assert rows.tolist() == np.arange(192, 320).reshape(2, 64).tolist()
    del rows
    assert maps(path) == 0


def test_answers_are_never_written_into_a_file(tmp_path: Path) -> None:
    """MLX takes an input's memory where nobody else holds it: here nobody does."""
    path = written(tmp_path, a=mx.ones(1 << 16))
    before = path.read_bytes()
    for compute in (lambda a: a * 2, mx.exp, lambda a: mx.where(a > 0, a, 3), lambda a: a.at[3].add(1)):
        got = compute(mapped(path, everything).arrays["a"])
        mx.eval(got)
        assert got.shape == (1 << 16,)
    norm = kernels.rms_norm(mapped(path, everything).arrays["a"].reshape(64, 1024), None, 1e-5)
    mx.eval(norm)
    assert path.read_bytes() == before


def test_dense_copies_only_what_is_seen_through_strides(tmp_path: Path) -> None:
    array = mapped(written(tmp_path, a=mx.arange(6.0).reshape(2, 3)), everything).arrays["a"]
    assert dense(array) is array
    half = array[1:]
    assert dense(half) is half
    turned = dense(array.T)
    mx.eval(turned)
    assert kernels.is_dense(turned)
    assert turned.tolist() == array.T.tolist()


SHARE = """
import sys, mlx.core as mx
from pathlib import Path
from runtime.cpu.native.mapped_weights import mapped
mx.set_default_device(mx.cpu)
array = mapped(Path(sys.argv[1]), lambda _: True).arrays["a"]
mx.eval(array.sum())
print("read", flush=True)
sys.stdin.read()
"""


def shared(path: Path) -> int:
    """Bytes of the mapped file that this process has in memory and others have too. Of a file that lies in
    memory itself pages are never clean.
    """
    ours, total = False, 0
    with open("/proc/self/smaps") as lines:
        for line in lines:
            if "-" in line.split()[0]:
                ours = str(path) in line
            elif ours and line.startswith("Shared_"):
                total += 1024 * int(line.split()[1])
    return total


def test_processes_share_pages(tmp_path: Path) -> None:
    size = 1 << 22
    path = written(tmp_path, a=mx.random.randint(0, 255, (size,)).astype(mx.uint8))
    with subprocess.Popen(
        [sys.executable, "-c", SHARE, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"read\n"
        array = mapped(path, everything).arrays["a"]
        mx.eval(array.sum())
        assert shared(path) >= size
        other.communicate()
