"""Adapters that do not fit are refused by what is wrong, and nothing is written."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.errors import ModelkitError
from modelkit.pack.adapters.place import place
from modelkit.source.adapters.reading import read_adapter
from modelkit.store.store import Store
from runtime.models import describe
from tests.support.checkpoints import random_tensor, write_checkpoint
from tests.support.packaged_adapters import ROWS, TENSORS, TRUNK, Q, create
from tests.support.parity import Reference
from tests.support.peft_folders import pair_for, peft_tensors, write_peft
from tests.support.tiny import write_tokenizer


def _tensors(change: Callable[[dict[str, np.ndarray]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = {
            name: array.copy() for name, array in load_file(folder / "adapter_model.safetensors").items()
        }
        change(tensors)
        save_file(tensors, folder / "adapter_model.safetensors")

    return apply


def _config(**fields: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}), encoding="utf-8")

    return apply


def _moved(tensors: dict[str, np.ndarray], module: str) -> None:
    for leaf in ("lora_A", "lora_B"):
        tensors[f"base_model.model.{module}.{leaf}.weight"] = tensors.pop(f"{Q}.{leaf}.weight")


def _oversized(folder: Path) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [1 << 30], "data_offsets": [0, 1 << 32]}}).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def _stacked(folder: Path, rows: int) -> None:
    """A pair for a parameter, of that many ranks in all."""
    stem = "base_model.model.model.layers.1.mlp.experts"
    _config(target_parameters=["mlp.experts.gate_up_proj"])(folder)
    a, b = np.zeros((rows, 64), np.float32), np.zeros((64, rows), np.float32)
    _tensors(lambda t: t.update({f"{stem}.lora_A.weight": a, f"{stem}.lora_B.weight": b}))(folder)


def _pickled(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "rank": (_config(r=4), "has the rank 3, and its config says 4"),
    "rank of a pattern": (_config(rank_pattern={"q_proj": 2}), "has the rank 3, and its config says 2"),
    "rank 0": (_config(r=0), "a rank from 1 to"),
    "huge rank": (_config(r=1 << 40), "a rank from 1 to"),
    "a text for a rank": (_config(r="3"), "a rank from 1 to"),
    "alpha": (_config(lora_alpha="much"), "a number was expected"),
    "another kind": (_config(peft_type="IA3"), "of PEFT's type 'IA3'"),
    "layers": (_config(layer_replication=[[0, 2], [1, 3]]), "`layer_replication`"),
    "activated": (_config(alora_invocation_tokens=[1]), "is an activated LoRA"),
    "unknown field": (_config(use_wavelets=True), "`use_wavelets` is True, which changes the numbers"),
    "start": (_config(init_lora_weights="pissa_niter_4"), "`init_lora_weights`"),
    "endless pattern": (_config(rank_pattern={"(a+)+b": 2}), "too involved"),
    "choices behind a comment": (
        _config(rank_pattern={"(?#[)" + "(p|p)?" * 30 + "(?#])r": 2}),
        "too involved",
    ),
    "endless choices": (_config(rank_pattern={"(p|p)?" * 30 + "r": 2}), "too involved"),
    "endless repetitions": (
        _config(rank_pattern={r"[a-z.]*" * 3 + "r(a|b|c|d|e|f|g|h|i|j)" * 5: 2}),
        "too involved",
    ),
    "bad pattern": (_config(alpha_pattern={"a(": 2}), "is not a pattern"),
    "dora without magnitudes": (_config(use_dora=True), "has no magnitude, against `use_dora`"),
    "A alone": (_tensors(lambda t: t.pop(f"{Q}.lora_B.weight")), "has no whole pair: B"),
    "shape": (
        _tensors(lambda t: t.update({f"{Q}.lora_A.weight": np.zeros((3, 32), np.float32)})),
        "takes 32 numbers, and the base has 64",
    ),
    "rows": (
        _tensors(lambda t: t.update({f"{Q}.lora_B.weight": np.zeros((32, 3), np.float32)})),
        "belongs to nothing in this base, or has another shape",
    ),
    "meet": (
        _tensors(lambda t: t.update({f"{Q}.lora_B.weight": np.zeros((64, 2), np.float32)})),
        "do not meet",
    ),
    "layer": (_tensors(lambda t: _moved(t, "model.layers.9.self_attn.q_proj")), "model.layers.9"),
    "module": (_tensors(lambda t: _moved(t, "model.layers.1.attn.query")), "belongs to nothing in this base"),
    "norm": (
        _tensors(lambda t: t.update({"base_model.model.model.norm.weight": np.ones(64, np.float32)})),
        "cannot differ between the rows of a batch",
    ),
    "nan": (
        _tensors(lambda t: t[f"{Q}.lora_A.weight"].__setitem__((0, 0), np.nan)),
        f"/lora: `{Q}.lora_A.weight` has numbers that are NaN or infinite",
    ),
    "no tensors": (_tensors(lambda t: t.clear()), "it changes nothing of the base"),
    "dtype": (
        _tensors(lambda t: t.update({f"{Q}.lora_A.weight": np.zeros((3, 64), np.int32)})),
        "is I32",
    ),
    "dtype of a whole table": (
        _tensors(lambda t: t.update({f"{TRUNK}.embed_tokens.weight": np.zeros((128, 64))})),
        "is F64, and F32, F16 or BF16 was expected",
    ),
    "dtype of a bias": (
        _tensors(lambda t: t.update({f"{Q}.bias": np.zeros(64, np.int64)})),
        "is I64, and F32, F16 or BF16 was expected",
    ),
    "dtype of a saved table": (
        _tensors(lambda t: t.update({f"{TRUNK}.embed_tokens.base_layer.weight": np.zeros((128, 64))})),
        "is F64, and F32, F16 or BF16 was expected",
    ),
    "dtype of rows": (
        lambda folder: (
            _config(trainable_token_indices=[1, 2])(folder),
            _tensors(lambda t: t.update({ROWS: np.zeros((2, 64), np.uint8)}))(folder),
        ),
        "is U8, and F32, F16 or BF16 was expected",
    ),
    "nothing of a LoRA": (
        _tensors(lambda t: t.update({f"{Q}.lora_E": np.zeros(3, np.float32)})),
        "is nothing that a LoRA has",
    ),
    "two keys for one A": (
        _tensors(
            lambda t: t.update(
                {"model.layers.1.self_attn.q_proj.lora_A.weight": np.ones((3, 64), np.float32)}
            )
        ),
        "are for one thing",
    ),
    "two keys for one bias": (
        _tensors(
            lambda t: t.update({f"{Q}.{inner}bias": np.ones(64, np.float32) for inner in ("", "base_layer.")})
        ),
        "are for one thing",
    ),
    "experts": (lambda folder: _stacked(folder, 7), "for a number of experts"),
    "experts of no stack": (lambda folder: _stacked(folder, 6), "has a pair of shapes that the base has not"),
    "no config": (lambda folder: (folder / "adapter_config.json").unlink(), "has no adapter_config.json"),
    "config of another form": (
        lambda folder: (folder / "adapter_config.json").write_text("[1]"),
        "an object was expected",
    ),
    "form of a package": (
        lambda folder: (folder / "adapter_model.safetensors").rename(folder / "adapter.safetensors"),
        "modelkit export NAME DIR --adapter ADAPTER",
    ),
    "pickle": (_pickled, "Save it again as safetensors"),
    "size that lies": (_oversized, "is cut off"),
    "empty": (lambda folder: [path.unlink() for path in folder.iterdir()] and None, "holds no adapter"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name_and_nothing_is_written(case: str, folder: Path) -> None:
    damage, words = REFUSED[case]
    damage(write_peft(folder / "lora", TENSORS))
    with pytest.raises(ModelkitError) as refused:
        create(folder, "FROM ./model\nADAPTER ./lora\n")
    assert words in str(refused.value), refused.value
    assert not list(Store(folder).packages())


def test_a_whole_matrix_that_mlx_lm_turns_over_is_refused_by_name(tmp_path: Path) -> None:
    """Of latent attention: a full fine-tune has it, and `mlx_lm.fuse` a way."""
    config = Reference("deepseek_v3").record["config"]
    name = "model.layers.0.self_attn.embed_q.weight"
    (tmp_path / "adapter_config.json").write_text(json.dumps({"fine_tune_type": "full"}), encoding="utf-8")
    save_file({name: np.zeros((4, 24, 8), np.float32)}, tmp_path / "adapters.safetensors")
    with pytest.raises(ModelkitError, match=f"{name} is turned over by mlx-lm") as refused:
        place(read_adapter(tmp_path), describe(config), {})
    assert "mlx_lm.fuse" in (refused.value.hint or "")


def test_dora_of_experts_is_refused_before_anything_is_written_and_fused(tmp_path: Path) -> None:
    """One by one, as transformers 4 had them, PEFT has DoRA for them."""
    record = Reference("qwen3_moe").record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, record["tensors"]), tokens=128)
    experts, rows, columns = record["tensors"]["model.layers.0.mlp.experts.down_proj"]
    tensors: dict[str, np.ndarray] = {}
    for expert in range(experts):
        module = f"model.layers.0.mlp.experts.{expert}.down_proj"
        left, right = pair_for(module, (rows, columns), 3, input_first=False)
        tensors |= peft_tensors(f"{module}.weight", left, right)
        tensors[f"base_model.model.{module}.lora_magnitude_vector"] = np.full(rows, 0.7, np.float32)
    write_peft(tmp_path / "lora", tensors, use_dora=True)
    with pytest.raises(ModelkitError, match="a stack of experts, which takes no magnitude"):
        create(tmp_path, "FROM ./model\nADAPTER ./lora\n")
    assert not list(Store(tmp_path).packages())
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)
    fused = load_file(Store(tmp_path).resolve("it").files["model.safetensors"])
    stack = next(array for name, array in fused.items() if "layers.0" in name and "down_proj" in name)
    np.testing.assert_allclose(np.linalg.norm(stack, axis=-1), 0.7, rtol=1e-5)


@pytest.mark.parametrize("name", ["lora", "LoRA"])
def test_two_adapters_of_one_name_are_refused(name: str, folder: Path) -> None:
    write_peft(folder / "a" / "lora", TENSORS)
    write_peft(folder / "b" / name, TENSORS)
    with pytest.raises(ModelkitError, match=r"Modelfile:3:1: .*called lora already"):
        create(folder, f"FROM ./model\nADAPTER ./a/lora\nADAPTER ./b/{name}/adapter_model.safetensors\n")


def test_a_parameter_that_is_no_layers_is_refused_by_what_it_is(tmp_path: Path) -> None:
    """`fn` of hyper-connections is one matrix, and no stack of one."""
    record = Reference("hy_v4").record
    name = "model.layers.0.attn_hc.fn"
    rows, columns = record["tensors"][name]
    stem = f"base_model.model.{name.removesuffix('.fn')}"
    tensors = {
        f"{stem}.lora_A.weight": random_tensor("a", (3, columns)),
        f"{stem}.lora_B.weight": random_tensor("b", (rows, 3)),
    }
    folder = write_peft(tmp_path / "lora", tensors, target_parameters=["attn_hc.fn"])
    with pytest.raises(ModelkitError, match=r"attn_hc\.fn is not a matrix that adapters change"):
        place(read_adapter(folder), describe(record["config"]), record["tensors"])
