"""GGUF adapters that llama.cpp made of PEFT's are the same pairs, bit for bit."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from modelkit.errors import ModelkitError, UnsupportedSource
from modelkit.pack.adapters.filled import fill
from modelkit.pack.adapters.place import place
from modelkit.source.adapters.reading import read_adapter
from modelkit.store.store import Store
from runtime.models import describe
from tests.support.adapter_references import FOLDER
from tests.support.checkpoints import write_checkpoint
from tests.support.gguf import Gguf, Tensor
from tests.support.parity import Reference
from tests.support.peft_folders import gguf_case, pair_for, peft_tensors, write_peft
from tests.support.tiny import write_tokenizer

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


@pytest.mark.parametrize("kind", ["gguf", "peft"])
def test_a_head_with_a_pair_of_its_own_takes_none_of_the_tables(kind: str, tmp_path: Path) -> None:
    """Though it is tied to the table: the adapter tells each of the two."""
    record = Reference("llama").record
    config = {**record["config"], "tie_word_embeddings": True}
    tokens, width = record["tensors"]["model.embed_tokens.weight"]
    left, right = np.ones((tokens, 3), np.float32), np.ones((3, width), np.float32)
    pair = peft_tensors("lm_head.weight", left, right)
    if kind == "peft":
        both = pair | peft_tensors("model.embed_tokens.weight", left, right)
        adapter = read_adapter(write_peft(tmp_path / "lora", both, ensure_weight_tying=True))
    else:
        stored = {"output.weight.lora_a": right, "output.weight.lora_b": left}
        stored |= {"token_embd.weight.lora_a": left, "token_embd.weight.lora_b": right.T}
        path = tmp_path / "lora.gguf"
        path.write_bytes(lora_file(stored))
        adapter = read_adapter(path, config)
    placed = place(adapter, describe(config), {}).placed
    assert sorted(one.module for one in placed) == ["lm_head", "model.embed_tokens"]


@pytest.mark.parametrize("kind", ["gguf", "peft"])
def test_a_pair_for_the_table_alone_leaves_the_head_that_is_tied_to_it(kind: str, tmp_path: Path) -> None:
    record = Reference("llama").record
    config = {**record["config"], "tie_word_embeddings": True}
    tokens, width = record["tensors"]["model.embed_tokens.weight"]
    left, right = np.ones((tokens, 3), np.float32), np.ones((3, width), np.float32)
    if kind == "peft":
        pair = peft_tensors("model.embed_tokens.weight", left, right)
        adapter = read_adapter(write_peft(tmp_path / "lora", pair))
    else:
        path = tmp_path / "lora.gguf"
        path.write_bytes(lora_file({"token_embd.weight.lora_a": left, "token_embd.weight.lora_b": right.T}))
        adapter = read_adapter(path, config)
    placement = place(adapter, describe(config), {})
    assert [one.module for one in placement.placed] == ["model.embed_tokens"]
    assert placement.unties


def test_halves_of_rank_1_may_be_vectors(tmp_path: Path) -> None:
    """Where their writer left out sizes of 1, as ggml counts dimensions."""
    record = Reference("qwen2_moe").record
    described = describe(record["config"])
    shapes = {key: tuple(shape) for key, shape in record["tensors"].items()}
    rng = np.random.default_rng(3)
    _, width = shapes["model.layers.0.mlp.shared_expert_gate.weight"]
    stored = {
        "blk.0.attn_output.weight.lora_a": rng.random((1, width), np.float32),
        "blk.0.attn_output.weight.lora_b": rng.random((width, 1), np.float32),
        "blk.0.ffn_gate_inp_shexp.weight.lora_a": rng.random((3, width), np.float32),
        "blk.0.ffn_gate_inp_shexp.weight.lora_b": rng.random((1, 3), np.float32),
    }
    found: list[dict[str, np.ndarray]] = []
    for name, one in (
        ("whole", stored),
        ("vectors", {k: a[0] if a.shape[0] == 1 else a for k, a in stored.items()}),
    ):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(lora_file(one, architecture="qwen2moe"))
        filled, _ = fill(place(read_adapter(path, record["config"]), described, shapes), described)
        found.append({key: words.array for key, words in filled.items()})
    assert len(found[0]) == 4
    assert found[0].keys() == found[1].keys()
    for tensor, array in found[0].items():
        np.testing.assert_array_equal(found[1][tensor], array, err_msg=tensor)


@pytest.mark.parametrize(("name", "rank"), [("llama", 32), ("llama", 8), ("phi3_window", 8)])
def test_what_is_in_blocks_is_what_they_hold(name: str, rank: int, tmp_path: Path) -> None:
    """`--outtype q8_0`, which leaves a half whose rows do not divide in F16."""
    record = Reference(name).record
    described = describe(record["config"])
    shapes = {key: tuple(shape) for key, shape in record["tensors"].items()}
    fused = name != "llama"
    rows, width = shapes["model.layers.0.self_attn." + ("qkv_proj.weight" if fused else "q_proj.weight")]
    stem = f"blk.0.{'attn_qkv' if fused else 'attn_q'}.weight.lora_"
    rng = np.random.default_rng(3)
    floats: dict[str, np.ndarray] = {}
    tensors: list[Tensor] = []
    for leaf, shape in (("a", (rank, width)), ("b", (rows, rank))):
        if shape[1] % 32:
            array = rng.standard_normal(shape, np.float32).astype(np.float16)
            tensors.append(Tensor(f"{stem}{leaf}", "f16", shape, array.tobytes()))
            floats[f"{stem}{leaf}"] = array.astype(np.float32)
            continue
        scales = rng.random((shape[0] * shape[1] // 32, 1)).astype("<f2")
        codes = rng.integers(-127, 128, (len(scales), 32)).astype(np.int8)
        data = b"".join(scale.tobytes() + code.tobytes() for scale, code in zip(scales, codes, strict=True))
        tensors.append(Tensor(f"{stem}{leaf}", "q8_0", shape, data))
        floats[f"{stem}{leaf}"] = (scales.astype(np.float32) * codes).reshape(shape)
    said = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 6.0}
    said["general.architecture"] = "phi3" if fused else "llama"
    (tmp_path / "blocks.gguf").write_bytes(bytes(Gguf(said, tensors)))
    (tmp_path / "floats.gguf").write_bytes(lora_file(floats, architecture=str(said["general.architecture"])))
    found = [
        fill(place(read_adapter(tmp_path / f"{kind}.gguf", record["config"]), described, shapes), described)
        for kind in ("blocks", "floats")
    ]
    assert found[0][0].keys() == found[1][0].keys()
    for key, words in found[1][0].items():
        np.testing.assert_array_equal(found[0][0][key].floats(), words.floats(), err_msg=key)


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), 1e30])
def test_an_alpha_that_is_no_number_is_refused_by_name(alpha: float, tmp_path: Path) -> None:
    path = tmp_path / "lora.gguf"
    path.write_bytes(lora_file({}, alpha))
    with pytest.raises(ModelkitError, match=r"`adapter\.lora\.alpha` is .*; a number was expected"):
        read_adapter(path, Reference("llama").record["config"])


def lora_file(
    stored: dict[str, np.ndarray],
    alpha: float = 6.0,
    *,
    architecture: str = "llama",
    more: dict[str, Any] | None = None,
) -> bytes:
    said = {"general.architecture": architecture, "general.type": "adapter", "adapter.type": "lora"}
    tensors = [Tensor(name, "f32", array.shape, array.tobytes()) for name, array in stored.items()]
    return bytes(Gguf({**said, "adapter.lora.alpha": alpha, **(more or {})}, tensors))


def test_one_that_tokens_activate_is_refused_by_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "lora.gguf"
    path.write_bytes(lora_file({}, more={"adapter.alora.invocation_tokens": [1, 2]}))
    with pytest.raises(UnsupportedSource, match=r"activated LoRA: `adapter\.alora\.invocation_tokens`"):
        read_adapter(path, Reference("llama").record["config"])


def test_what_llama_cpp_tells_of_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "lora.gguf"
    told = {"adapter.lora.task_name": "retrieval", "adapter.lora.prompt_prefix": "Query: "}
    path.write_bytes(lora_file({}, more=told))
    notes = read_adapter(path, Reference("llama").record["config"]).notes
    assert ["'retrieval'" in notes[0], "'Query: '" in notes[1]] == [True, True]


def test_norms_that_were_trained_are_fused_as_pefts_are(tmp_path: Path) -> None:
    """llama.cpp passes over them."""
    record = Reference("llama").record
    folder = write_checkpoint(tmp_path / "base", record["config"], record["tensors"])
    write_tokenizer(folder, tokens=record["config"]["vocab_size"])
    name = "model.layers.0.self_attn.o_proj.weight"
    left, right = pair_for(name, tuple(record["tensors"][name]), 3, input_first=False)
    norm = np.linspace(0.5, 2, record["config"]["hidden_size"], dtype=np.float32)
    own = {"base_model.model.model.layers.1.input_layernorm.weight": norm}
    write_peft(tmp_path / "lora", peft_tensors(name, left, right) | own, modules_to_save=["input_layernorm"])
    stored = {"blk.0.attn_output.weight.lora_a": right, "blk.0.attn_output.weight.lora_b": left}
    (tmp_path / "lora.gguf").write_bytes(lora_file(stored | {"blk.1.attn_norm.weight": norm}))
    digests: list[str] = []
    for entry in ("lora", "lora.gguf"):
        recipe = tmp_path / "Modelfile"
        recipe.write_text(f"FROM ./base\nADAPTER ./{entry}\n", encoding="utf-8")
        with pytest.raises(ModelkitError, match=r"input_layernorm\.weight cannot differ between the rows"):
            modelkit.create(recipe, name="x", home=tmp_path)
        modelkit.create(recipe, name="x", home=tmp_path, fuse_adapters=True)
        digests.append(Store(tmp_path).resolve("x").files["model.safetensors"].name)
    assert digests[0] == digests[1]


def test_an_adapter_for_another_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSource, match="an adapter for 'phi3', and the base is a llama model"):
        read_adapter(unpacked("phi3_window", tmp_path), Reference("llama").record["config"])
