"""Checkpoints of GPTQ, AWQ and compressed-tensors: their codes are kept, and their numbers are right."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file

import modelkit
from modelkit.errors import ModelkitError
from modelkit.pack.planning.slabs import Coded
from modelkit.pack.sources import open_source
from modelkit.pack.writing.codes import numbers_of
from modelkit.pack.writing.reader import Reader
from modelkit.source.codes import CodeWeights
from modelkit.source.tree import read_directory
from modelkit.store.store import Store
from tests.support.code_checkpoints import (
    Codes,
    Tensors,
    awq,
    compressed,
    compressed_bytes,
    gptq,
    random_codes,
)
from tests.support.code_folders import (
    IDS,
    apart,
    auto_round_config,
    awq_config,
    create,
    ct_config,
    gptq_config,
    linear,
    llama,
    logits,
    stored,
    two,
    write,
)
from tests.support.parity import Reference
from tests.support.peft_folders import pair_for, peft_tensors, write_peft

GOLDEN = Path(__file__).parents[3] / "data" / "codes.npz"
FAMILIES = [
    "llama",
    "qwen3_moe",
    "mixtral",
    "deepseek_v3",
    "gemma3_wrapped",
    "qwen3_5",
    "glm4",
    "gpt_neox",
    "falcon_h1",
    "phi",
]


def test_numbers_are_those_of_the_tools(tmp_path: Path) -> None:
    """What AutoAWQ, GPTQModel and compressed-tensors compute themselves from random words, in float32."""
    golden = np.load(GOLDEN)
    cases = sorted({name.partition(".")[0] for name in golden.files})
    assert len(cases) == 15
    for case in cases:
        leaves = {
            name.partition(".")[2]: golden[name] for name in golden.files if name.startswith(f"{case}.")
        }
        floats = leaves.pop("floats")
        if case.startswith("gptq"):
            config = gptq_config(int(case[4:]), 32, sym=False)
        elif case.startswith("awq"):
            config = awq_config()
        else:
            config = ct_config(int(case[2:-1]), symmetric=case.endswith("s"))
        folder = tmp_path / case
        write(
            folder,
            {**Reference("llama").record["config"], "quantization_config": config},
            {f"a.{leaf}": array for leaf, array in leaves.items()},
        )
        source = open_source(read_directory(folder), str(folder), {})
        assert isinstance(source.kind, CodeWeights)
        with Reader(source.inventory.weights) as reader:
            matrix = source.kind.matrices["a.weight"]
            whole = numbers_of(Coded(matrix, 0, 32), reader)
            part = numbers_of(Coded(matrix, 8, 24), reader)
        np.testing.assert_array_equal(whole, floats, err_msg=case)
        np.testing.assert_array_equal(part, floats[8:24], err_msg=case)


CASES = {
    "gptq auto-round": (auto_round_config(), 4, 32),
    "gptq auto-round v2": (auto_round_config("auto_round:gptqmodel", bits=8), 8, 32),
    "awq auto-round": (auto_round_config("auto_round:auto_awq"), 4, 32),
    **{
        f"gptq {bits} {group}": (gptq_config(bits, group), bits, group)
        for bits in (2, 3, 4, 8)
        for group in (32, 128)
    },
    "gptq row": (gptq_config(4, -1), 4, None),
    "gptq groups fixed before inputs are sorted": (gptq_config(desc_act=True, static_groups=True), 4, 32),
    "gptq 256": (gptq_config(4, 256), 4, 256),
    "gptq v2": (gptq_config(checkpoint_format="gptq_v2"), 4, 32),
    **{
        f"rows {bits} {group}": (ct_config(bits, group), bits, group)
        for bits in (2, 3, 4, 5, 6, 8)
        for group in (64, None)
    },
    "bytes": (ct_config(8, None), 8, None),
    "bytes of four bits, as activations of eight ask for": (ct_config(4, 32), 8, 32),
}


@pytest.mark.parametrize("name", CASES)
def test_symmetric_codes_are_kept_bit_for_bit(name: str, tmp_path: Path) -> None:
    quantization, bits, group = CASES[name]
    config, shapes = llama()
    version = 2 if name.endswith("v2") else 1
    leaves: dict[str, Callable[[Codes], Tensors]] = {
        "gptq": lambda one: gptq(one, version=version),
        "awq": awq,
        "rows": lambda one: compressed(one, symmetric=True),
        "bytes": lambda one: compressed_bytes(one, symmetric=True),
    }
    coded, plain = two(
        tmp_path,
        config,
        shapes,
        quantization,
        lambda matrix, shape: random_codes(matrix, shape, bits, group),
        leaves[name.partition(" ")[0]],
    )
    made = create(coded)
    assert not any("float16 biases" in note for note in made.notes)
    found, wanted = stored(coded), load_file(plain / "model.safetensors")
    size = group if group in (32, 64, 128) else 128
    for matrix in linear(shapes):
        module = matrix.removesuffix(".weight")
        parts = (found[f"{module}.weight"], found[f"{module}.scales"], found[f"{module}.biases"])
        assert parts[1].dtype == parts[2].dtype == mx.float16
        wide = [part.astype(mx.float32) for part in parts[1:]]
        got = mx.dequantize(parts[0], *wide, group_size=size, bits=bits)
        np.testing.assert_array_equal(np.array(got), wanted[matrix], err_msg=matrix)


@pytest.mark.parametrize("tool", ["awq", "gptq", "rows", "rows of bfloat16", "bytes"])
def test_zero_points_become_biases(tool: str, tmp_path: Path) -> None:
    """float16 ones for codes of four bits, off by less than a hundredth of a step; exact ones otherwise."""
    config, shapes = llama()
    bits, wide = (8, True) if tool == "bytes" else (4, tool.endswith("bfloat16"))
    dtype: Any = np.uint16 if wide and bits == 4 else np.float16
    quantization = {
        "awq": awq_config(),
        "gptq": gptq_config(sym=False),
        "rows": ct_config(symmetric=False),
        "rows of bfloat16": ct_config(symmetric=False),
        "bytes": ct_config(8, None, symmetric=False),
    }[tool]
    leaves: dict[str, Callable[[Codes], Tensors]] = {
        "awq": awq,
        "gptq": lambda one: gptq(one, version=1),
        "rows": lambda one: compressed(one, symmetric=False),
        "rows of bfloat16": lambda one: compressed(one, symmetric=False),
        "bytes": lambda one: compressed_bytes(one, symmetric=False),
    }

    def make(matrix: str, shape: tuple[int, int]) -> Codes:
        made = random_codes(matrix, shape, bits, None if bits == 8 else 32, symmetric=False, dtype=dtype)
        return Codes(made.codes, made.scales, np.maximum(made.zeros, 1), made.group_of, bits)

    coded, plain = two(tmp_path, config, shapes, quantization, make, leaves[tool])
    if dtype is np.uint16:
        _as_bfloat16(coded / "model.safetensors", ".weight_scale")
    made = create(coded)
    assert any("float16 biases" in note for note in made.notes) == (not wide)
    found, wanted = stored(coded), load_file(plain / "model.safetensors")
    for matrix in linear(shapes):
        module = matrix.removesuffix(".weight")
        scales, biases = found[f"{module}.scales"], found[f"{module}.biases"]
        assert scales.dtype == biases.dtype == (mx.float32 if wide else mx.float16)
        size = shapes[matrix][1] // scales.shape[1]
        exact = [part.astype(mx.float32) for part in (scales, biases)]
        got = np.array(mx.dequantize(found[matrix], *exact, group_size=size, bits=bits))
        step = np.repeat(np.array(exact[0]), size, axis=1)
        assert np.abs((got - wanted[matrix]) / step).max() <= (0 if wide else 0.01), matrix


def _as_bfloat16(path: Path, ending: str) -> None:
    """Rewrite tensors whose float32 numbers are bfloat16's."""
    found = mx.load(str(path), format="safetensors")
    assert isinstance(found, dict)
    mx.save_safetensors(
        str(path),
        {name: one.astype(mx.bfloat16) if name.endswith(ending) else one for name, one in found.items()},
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_answers_as_with_the_same_floats(name: str, tmp_path: Path) -> None:
    record = Reference(name).record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    coded, plain = two(
        tmp_path,
        config,
        record["tensors"],
        gptq_config(),
        lambda matrix, shape: random_codes(matrix, shape, 4, 32),
        gptq,
    )
    create(coded)
    create(plain)
    answers = logits(coded)
    assert apart(answers, logits(plain)) < 1e-3
    with modelkit.load(coded, home=tmp_path) as model:  # the folder as it is
        assert np.array_equal(model.logits(IDS), answers)


def test_matrices_that_are_joined_when_loaded_are_unpacked_where_one_is_float(tmp_path: Path) -> None:
    config, shapes = llama()
    (name,) = (one for one in linear(shapes) if "q_proj" in one)
    coded, plain = two(
        tmp_path,
        config,
        shapes,
        gptq_config(),
        lambda matrix, shape: random_codes(matrix, shape, 4, 32),
        gptq,
        [name],
    )
    create(coded)
    create(plain)
    assert apart(logits(coded), logits(plain)) < 1e-3


def test_quantizing_what_was_quantized_is_said(tmp_path: Path) -> None:
    config, shapes = llama()
    coded, _ = two(
        tmp_path, config, shapes, awq_config(), lambda matrix, shape: random_codes(matrix, shape, 4, 32), awq
    )
    made = create(coded, quantize="q8")
    assert any("already quantized with AWQ (4 bits); q8 is made of" in note for note in made.notes)


def test_a_package_says_what_it_is_made_of(tmp_path: Path) -> None:
    config, shapes = llama()
    coded, _ = two(
        tmp_path, config, shapes, awq_config(128), lambda name, shape: random_codes(name, shape, 4, 128), awq
    )
    create(coded)
    kept = json.loads(Store(tmp_path).resolve("coded").files["config.json"].read_bytes())
    assert "quantization_config" not in kept
    assert kept["quantization"] == {"group_size": 128, "bits": 4, "mode": "affine"}


def test_layers_of_several_ways_are_told_by_their_tensors(tmp_path: Path) -> None:
    own, shapes = llama()
    config = ct_config()
    config["config_groups"]["group_1"] = ct_config(8, 64)["config_groups"]["group_0"]
    names = linear(shapes)

    def make(name: str, shape: tuple[int, int]) -> Codes:
        return random_codes(name, shape, *((8, 64) if "down" in name else (4, 32)))

    coded, plain = two(
        tmp_path, own, shapes, config, make, lambda one: compressed(one, symmetric=True), names
    )
    create(coded)
    create(plain)
    assert apart(logits(coded), logits(plain)) < 1e-3


def test_an_adapter_is_added_to_codes_and_fused_into_their_package(tmp_path: Path) -> None:
    own, shapes = llama()
    coded, plain = two(
        tmp_path, own, shapes, gptq_config(), lambda name, shape: random_codes(name, shape, 4, 32), gptq
    )
    tensors: Tensors = {}
    for name in linear(shapes):
        tensors |= peft_tensors(name, *pair_for(name, shapes[name], 3, input_first=False))
    write_peft(tmp_path / "lora", tensors)
    for folder in (coded, plain):
        create(folder)
        (tmp_path / f"{folder.name}.modelfile").write_text(
            f"FROM ./{folder.name}\nADAPTER ./lora\n", encoding="utf-8"
        )
        modelkit.create(tmp_path / f"{folder.name}.modelfile", name=f"with-{folder.name}", home=tmp_path)
    wanted = logits(tmp_path / "with-plain")
    assert apart(logits(tmp_path / "with-coded"), wanted) < 1e-3
    with pytest.raises(ModelkitError, match="in codes, which have to be unpacked"):
        modelkit.create(tmp_path / "coded.modelfile", name="fused", home=tmp_path, fuse_adapters=True)
    Store(tmp_path).copy("coded", "moved")
    (tmp_path / "moved.modelfile").write_text("FROM moved\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "moved.modelfile", name="fused", home=tmp_path, fuse_adapters=True)
    before = logits(coded)
    fused = logits(tmp_path / "fused")
    assert (
        np.abs(fused - wanted).mean() < 0.5 * np.abs(before - wanted).mean()
    )  # four bits round it once more


@pytest.mark.parametrize("pattern", [None, r".*self_attn\\.k_proj.*"])
def test_what_autoround_says_of_single_layers(pattern: str | None, tmp_path: Path) -> None:
    """By their names, or by patterns, which are not read: their tensors tell what they are."""
    own, shapes = llama()
    special, left = (name for name in linear(shapes) if "k_proj" in name or "v_proj" in name)
    called = pattern or special.removesuffix(".weight")
    extra = {called: {"bits": 8, "group_size": 64}, "lm_head": {"bits": 16}}
    coded, plain = two(
        tmp_path,
        own,
        shapes,
        auto_round_config(extra_config={**extra, ".*norm.*": {"bits": 16}}),
        lambda name, shape: random_codes(name, shape, *((8, 64) if name == special else (4, 32))),
        gptq,
        [name for name in linear(shapes) if name != left],
    )
    create(coded)
    create(plain)
    assert apart(logits(coded), logits(plain)) < 1e-3


def test_modules_that_gptqmodel_stored_otherwise_are_told_by_their_tensors(tmp_path: Path) -> None:
    own, shapes = llama()
    rules = {"+:.*down.*": {"bits": 8, "group_size": 64}, "-:.*mtp.*": {}}
    coded, plain = two(
        tmp_path,
        own,
        shapes,
        {**gptq_config(), "dynamic": rules},
        lambda name, shape: random_codes(name, shape, *((8, 64) if "down" in name else (4, 32))),
        gptq,
        linear(shapes),
    )
    create(coded)
    create(plain)
    assert apart(logits(coded), logits(plain)) < 1e-3


def test_modules_that_gptqmodel_left_out_are_floats(tmp_path: Path) -> None:
    """As Qwen publishes its own: attention stays as it was."""
    own, shapes = llama()
    rules = {"lm_head": {}, "-:.*attn.*": {}, "-:.*mtp.*": {}, "+:.*down.*": {}}
    coded, plain = two(
        tmp_path,
        own,
        shapes,
        {**gptq_config(), "dynamic": rules},
        lambda name, shape: random_codes(name, shape, 4, 32),
        gptq,
        [name for name in linear(shapes) if "attn" not in name],
    )
    create(coded)
    create(plain)
    assert apart(logits(coded), logits(plain)) < 1e-3


@pytest.mark.parametrize("right", [True, False])
def test_zero_points_of_symmetric_matrices_are_looked_at(right: bool, tmp_path: Path) -> None:
    """Older versions of compressed-tensors write them, one byte each."""
    own, shapes = llama()

    def leaves(one: Codes) -> Tensors:
        zeros = np.full(one.zeros.shape, 0 if right else 1, np.int8)
        return {**compressed(one, symmetric=True), "weight_zero_point": zeros}

    coded, plain = two(
        tmp_path, own, shapes, ct_config(), lambda name, shape: random_codes(name, shape, 4, 32), leaves
    )
    if right:
        create(coded)
        create(plain)
        assert apart(logits(coded), logits(plain)) < 1e-3
    else:
        with pytest.raises(ModelkitError, match="zero points other than 8"):
            create(coded)
