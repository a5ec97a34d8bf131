"""GGUF adapters that llama.cpp made of PEFT's are the same pairs, bit for bit."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from modelkit.errors import UnsupportedSource
from modelkit.pack.adapters.filled import fill
from modelkit.pack.adapters.place import place
from modelkit.source.adapters.opened import read_adapter
from runtime.models import describe
from tests.support.adapter_references import FOLDER
from tests.support.parity import Reference
from tests.support.peft_folders import gguf_case, write_peft

CASES = sorted(path.name.removesuffix(".gguf.gz") for path in (FOLDER / "gguf").glob("*.gguf.gz"))


def unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name}.gguf"
    path.write_bytes(gzip.decompress((FOLDER / "gguf" / f"{name}.gguf.gz").read_bytes()))
    return path


@pytest.mark.parametrize("name", CASES)
def test_llama_cpps_adapter_is_pefts(name: str, tmp_path: Path) -> None:
    record = Reference(name).record
    described = describe(record["config"])
    shapes = {key: tuple(shape) for key, shape in record["tensors"].items()}
    write_peft(tmp_path / "lora", gguf_case(record["tensors"]))
    theirs = fill(place(read_adapter(tmp_path / "lora"), described, shapes), described)
    path = unpacked(name, tmp_path)
    ours = fill(place(read_adapter(path, record["config"]), described, shapes), described)
    assert ours[1] == theirs[1]
    assert ours[0].keys() == theirs[0].keys()
    for tensor, words in theirs[0].items():
        np.testing.assert_array_equal(ours[0][tensor].array, words.array, err_msg=tensor)


def test_an_adapter_for_another_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSource, match="an adapter for `phi3`, and the base is a llama model"):
        read_adapter(unpacked("phi3_window", tmp_path), Reference("llama").record["config"])
