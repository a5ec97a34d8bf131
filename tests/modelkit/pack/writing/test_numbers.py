"""NaN in weights that stay as they are, and infinities in matrices: found wherever a file is cut, and no
package is made of them.
"""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.errors import MalformedFile
from modelkit.pack.writing.numbers import Passing
from modelkit.packages import list_packages
from modelkit.source.safetensors import read_header
from tests.support.tiny import write_model

MATRIX = "model.layers.1.mlp.up_proj.weight"

NANS = {"F32": (0x7FC00000, 0xFF800001), "F16": (0x7C01, 0xFFFF), "BF16": (0x7F81, 0xFFC0)}
INFINITIES = {"F32": (0x7F800000, 0xFF800000), "F16": (0x7C00, 0xFC00), "BF16": (0x7F80, 0xFF80)}


def write(path: Path, words: dict[str, np.ndarray]) -> None:
    """One tensor of each dtype, behind one of bytes, so that numbers lie at odd offsets, too."""
    header, at = ['"bytes":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}'], 3
    for dtype, one in words.items():
        header.append(
            f'"{dtype}":{{"dtype":"{dtype}","shape":[{one.size}],"data_offsets":[{at},{at + one.nbytes}]}}'
        )
        at += one.nbytes
    text = "{" + ",".join(header) + "}"
    data = b"\xff\xff\xff" + b"".join(one.tobytes() for one in words.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + data)


def passed(path: Path, rng: random.Random) -> None:
    data, at = memoryview(path.read_bytes()), 0
    numbers = Passing(read_header(path).tensors)
    while at < len(data):
        count = rng.choice((1, 2, 3, 5, 7, 64, 500))
        numbers.take(data[at : at + count])
        at += count


@pytest.mark.parametrize("dtype", NANS)
def test_one_is_found_wherever_the_file_is_cut(dtype: str, tmp_path: Path) -> None:
    rng, path = random.Random(dtype), tmp_path / "model.safetensors"
    for _ in range(60):
        words = {name: np.zeros(9, "<u4" if name == "F32" else "<u2") for name in NANS}
        for name, values in INFINITIES.items():
            words[name][rng.randrange(9)] = rng.choice(values)
        write(path, words)
        passed(path, rng)
        words[dtype][rng.randrange(9)] = rng.choice(NANS[dtype])
        write(path, words)
        with pytest.raises(
            MalformedFile, match=f"model.safetensors: tensor `{dtype}` has numbers that are NaN"
        ):
            passed(path, rng)


def test_no_package_is_made_of_them(tmp_path: Path) -> None:
    folder, home = write_model(tmp_path / "model"), tmp_path / "home"
    (tmp_path / "Modelfile").write_text("FROM ./model\n")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    last = read_header(weights).tensors[-1]
    nan = np.array([np.nan], "<f4").tobytes() if last.dtype == "F32" else b"\xc0\x7f"
    weights.write_bytes(whole[: -len(nan)] + nan)
    with pytest.raises(MalformedFile, match=f"`{last.name}` has numbers that are NaN") as caught:
        modelkit.create(tmp_path / "Modelfile", name="lost", home=home)
    assert caught.value.hint is not None
    assert list_packages(home=home) == []
    weights.write_bytes(whole)
    modelkit.create(tmp_path / "Modelfile", name="lost", home=home)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wanted", ["", "QUANTIZE bf16\n"])
def test_a_matrix_has_no_infinite_numbers_and_a_bias_may(
    wanted: str, dtype: type[np.floating[Any]], tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "model", attention_bias=True)
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith("q_proj.weight")]:
        tensors[name.replace("weight", "bias")] = np.zeros(64, np.float32)
    for name in [name for name in tensors if name.endswith(("k_proj.weight", "v_proj.weight"))]:
        tensors[name.replace("weight", "bias")] = np.zeros(32, np.float32)
    for name in [name for name in tensors if name.endswith("o_proj.weight")]:
        tensors[name.replace("weight", "bias")] = np.full(64, -np.inf, np.float32)
    save_file(tensors, folder / "model.safetensors")
    (tmp_path / "Modelfile").write_text(f"FROM ./model\n{wanted}")
    modelkit.create(tmp_path / "Modelfile", name="whole", home=tmp_path / "home")
    tensors[MATRIX] = tensors[MATRIX].astype(dtype)
    tensors[MATRIX][3, 5] = -np.inf
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(MalformedFile, match=f"`{MATRIX}` has numbers that are infinite") as caught:
        modelkit.create(tmp_path / "Modelfile", name="lost", home=tmp_path / "home")
    assert caught.value.hint is not None
