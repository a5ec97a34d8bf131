"""Numbers and factors of a GGUF file that no package is made of."""

from pathlib import Path

import numpy as np
import pytest

from modelkit.errors import MalformedFile, PlanError
from modelkit.source.gguf.file import read_gguf
from modelkit.store.store import Store
from tests.support import gguf_llama
from tests.support.gguf import Gguf, Tensor
from tests.support.gguf_package import create, write


@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q6_k"])
def test_a_scale_that_is_no_number_is_refused_by_its_place(name: str, store: Store, tmp_path: Path) -> None:
    content = bytearray(gguf_llama.llama([name]))
    path = write(tmp_path / "s", bytes(content))
    tensor = read_gguf(path).tensors["blk.1.ffn_up.weight"]
    at = tensor.start + 37 * tensor.row_bytes + (208 if name == "q6_k" else 0)
    content[at : at + 2] = b"\x00\x7e"
    path.write_bytes(bytes(content))
    with pytest.raises(MalformedFile, match=r"m\.gguf: tensor `blk\.1\.ffn_up\.weight`, row 37, block 0"):
        create(store, path)


@pytest.mark.parametrize("name", ["blk.1.ffn_norm", "blk.0.attn_k", "blk.0.ffn_up", "output"])
@pytest.mark.parametrize(("dtype", "nan"), [("f32", 0x7FC00000), ("f16", 0xFC00), ("bf16", 0xFF80)])
def test_a_float_that_is_no_number_is_refused_by_its_tensor(
    dtype: str, nan: int, name: str, store: Store, tmp_path: Path
) -> None:
    made = gguf_llama.tensors([dtype])
    one = next(tensor for tensor in made if tensor.name == f"{name}.weight")
    words = np.frombuffer(one.content, "<u2" if one.type in ("f16", "bf16") else "<u4").copy()
    words[-7] = nan if words.itemsize == 2 or dtype == "f32" else 0x7F800000
    one.data = words.tobytes()
    source = write(tmp_path / "source", bytes(Gguf(gguf_llama.metadata(), made)))
    with pytest.raises(MalformedFile, match=f"tensor `{name}.weight` has numbers that are NaN or infinite"):
        create(store, source)


def test_a_factor_of_the_rotation_that_is_no_number_is_refused(store: Store, tmp_path: Path) -> None:
    factors = Tensor("rope_freqs.weight", "f32", (32,), np.full(32, np.inf, np.float32).tobytes())
    content = bytes(Gguf(gguf_llama.metadata(), [*gguf_llama.tensors(["f32"]), factors]))
    with pytest.raises(MalformedFile, match=r"`rope_freqs.weight` has numbers that are NaN or infinite"):
        create(store, write(tmp_path / "source", content))


def test_a_factor_that_does_not_fit_is_refused(store: Store, tmp_path: Path) -> None:
    made = gguf_llama.tensors(["nvfp4"])
    made.append(Tensor("blk.0.ffn_up.scale", "f32", (3,), bytes(12)))
    path = write(tmp_path / "s", bytes(Gguf(gguf_llama.metadata(), made)))
    with pytest.raises(PlanError, match=r"blk.0.ffn_up.scale is F32 \[3\]"):
        create(store, path)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_a_factor_of_floats_is_refused(kind: str, store: Store, tmp_path: Path) -> None:
    """llama.cpp multiplies by it, whatever the matrix is."""
    made = gguf_llama.tensors([kind])
    made.append(Tensor("blk.0.ffn_up.scale", "f32", (1,), np.array([2.0], np.float32).tobytes()))
    path = write(tmp_path / "s", bytes(Gguf(gguf_llama.metadata(), made)))
    with pytest.raises(PlanError, match=r"blk.0.ffn_up.scale is a factor of .*up_proj.weight"):
        create(store, path)
