"""Checkpoints of GPTQ, AWQ and compressed-tensors: their codes are kept, and their numbers are right."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.errors import ModelkitError
from modelkit.pack.codes import numbers_of
from modelkit.pack.reader import Reader
from modelkit.pack.slabs import Coded
from modelkit.pack.sources import open_source
from modelkit.source.codes import CodeWeights
from modelkit.source.tree import read_directory
from modelkit.store.store import Store
from tests.support.checkpoints import random_state
from tests.support.code_checkpoints import (
    Codes,
    Tensors,
    as_codes,
    awq,
    compressed,
    compressed_bytes,
    gptq,
    random_codes,
)
from tests.support.parity import Reference
from tests.support.peft_folders import is_table, matrices, pair_for, peft_tensors, write_peft
from tests.support.tiny import write_tokenizer

GOLDEN = Path(__file__).parents[2] / "data" / "codes.npz"
IDS = list(range(3, 20))
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

Config = dict[str, Any]


def gptq_config(bits: int = 4, group: int = 32, **more: Any) -> Config:
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True, "desc_act": False, **more}


def awq_config(group: int = 32, **more: Any) -> Config:
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group,
        "zero_point": True,
        "version": "gemm",
        **more,
    }


def ct_config(bits: int = 4, group: int | None = 32, *, symmetric: bool = True, **more: Any) -> Config:
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "group_size": group, **more}
    weights["strategy"] = "group" if group else "channel"
    group_0 = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": group_0},
    }


def write(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_tokenizer(folder, tokens=128)
    save_file(
        {name: np.array(array, order="C") for name, array in tensors.items()}, folder / "model.safetensors"
    )
    (folder.parent / f"{folder.name}.modelfile").write_text(f"FROM ./{folder.name}\n", encoding="utf-8")
    return folder


def create(folder: Path, **options: Any) -> Any:
    recipe = folder.parent / f"{folder.name}.modelfile"
    return modelkit.create(recipe, name=folder.name, home=folder.parent, **options)


def logits(folder: Path) -> np.ndarray:
    with modelkit.load(folder.name, home=folder.parent) as model:
        return model.logits(IDS)


def apart(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(got - wanted).max() / wanted.std())


def stored(folder: Path) -> dict[str, Any]:
    path = Store(folder.parent).resolve(folder.name).files["model.safetensors"]
    found = mx.load(str(path), format="safetensors")
    assert isinstance(found, dict)
    return found


def llama(width: int = 256) -> tuple[Config, dict[str, tuple[int, ...]]]:
    """A llama of one layer, wide enough for every group."""
    record = Reference("llama").record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    config |= {"hidden_size": width, "intermediate_size": width, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": width // 4}
    sizes = {
        name: tuple(size if size == config["vocab_size"] else width for size in shape)
        for name, shape in record["tensors"].items()
        if ".layers." not in name or ".layers.0." in name
    }
    return config, sizes


def linear(shapes: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, shape in matrices(shapes).items()
        if "layers." in name
        and len(shape) == 2
        and shape[0] % 32 == 0
        and shape[1] % 32 == 0
        and not is_table(name)
    ]


def two(
    folder: Path,
    config: Config,
    shapes: Mapping[str, Any],
    quantization: Config,
    make: Callable[[str, tuple[int, int]], Codes],
    leaves: Callable[[Codes], Tensors],
    chosen: list[str] | None = None,
) -> tuple[Path, Path]:
    """A checkpoint of codes, and one of the same numbers as floats."""
    coded, plain = as_codes(random_state(shapes), chosen or linear(shapes), make, leaves)
    return (
        write(folder / "coded", {**config, "quantization_config": quantization}, coded),
        write(folder / "plain", config, plain),
    )


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


def auto_round_config(packing: str = "auto_round:auto_gptq", **more: Any) -> Config:
    own = {"quant_method": "auto-round", "packing_format": packing, "bits": 4, "group_size": 32, "sym": True}
    return {**own, "data_type": "int", **more}


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
    "gptq 256": (gptq_config(4, 256), 4, 256),
    "gptq v2": (gptq_config(checkpoint_format="gptq_v2"), 4, 32),
    **{
        f"rows {bits} {group}": (ct_config(bits, group), bits, group)
        for bits in (2, 3, 4, 5, 6, 8)
        for group in (64, None)
    },
    "bytes": (ct_config(8, None), 8, None),
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


def test_groups_in_the_order_of_activations_are_unpacked_when_that_is_asked_for(tmp_path: Path) -> None:
    config, shapes = llama()
    coded, plain = two(
        tmp_path,
        config,
        shapes,
        gptq_config(desc_act=True),
        lambda matrix, shape: random_codes(matrix, shape, 4, 32, shuffled=True),
        gptq,
    )
    with pytest.raises(ModelkitError, match="order of activations") as caught:
        create(coded)
    assert "-q f16" in str(caught.value)
    create(coded, quantize="f32")
    wanted = load_file(plain / "model.safetensors")
    for name in linear(shapes):  # as the tool has them: in the scales' own type
        np.testing.assert_array_equal(
            np.array(stored(coded)[name]), wanted[name].astype(np.float16), err_msg=name
        )


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


Changed = Callable[[Config, Tensors], None]


def _set(**fields: Any) -> Changed:
    return lambda config, _: config.update(fields)


def _tensor(leaf: str, change: Callable[[np.ndarray], np.ndarray | None]) -> Changed:
    def apply(_: Config, tensors: Tensors) -> None:
        name = next(one for one in sorted(tensors) if one.endswith(leaf))
        made = change(tensors.pop(name))
        if made is not None:
            tensors[name] = made

    return apply


def _nan(scales: np.ndarray) -> np.ndarray:
    scales = scales.copy()
    scales[0, 3] = np.nan
    return scales


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set(bits=5), "bits is 5; 2, 3, 4, 8 are read"),
        (_set(bits=True), "bits is True"),
        (_set(group_size=0), "group_size is 0"),
        (_set(group_size="128"), "group_size is '128'"),
        (_set(group_size=48), "in groups of 48 takes"),
        (_set(group_size=16), "groups of 16"),
        (_set(checkpoint_format="marlin"), "checkpoint_format is 'marlin'"),
        (_set(is_marlin_format=True), "is_marlin_format is True"),
        (_set(dynamic={"+:.*down.*": {"bits": 8}}), "dynamic is"),
        (_set(pack_dtype="int16"), "pack_dtype is 'int16'"),
        (_set(quant_method="hqq"), "is quantized with GPTQ (`"),
        (_tensor(".scales", lambda _: None), "has no"),
        (_tensor(".qweight", lambda one: one[:-1]), "in groups of 32 takes"),
        (_tensor(".qweight", lambda one: one.reshape(1, *one.shape)), "takes"),
        (_tensor(".qzeros", lambda one: one[:, :-1]), "takes I32"),
        (_tensor(".g_idx", lambda one: one[:-1]), "takes I32"),
        (_tensor(".g_idx", lambda one: one[::-1].copy()), "in another order than config.json says"),
        (_tensor(".g_idx", lambda one: one + 99), "names groups beyond"),
        (_tensor(".scales", _nan), "NaN or infinite"),
        (_tensor(".scales", lambda one: one.astype(np.float64)), "is F64"),
        (_tensor(".qzeros", lambda one: one + 1), "zero points other than 8"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change: Changed, said: str, tmp_path: Path) -> None:
    config, shapes = llama()
    quantization = gptq_config()
    coded, _ = as_codes(
        random_state(shapes), linear(shapes), lambda name, shape: random_codes(name, shape, 4, 32), gptq
    )
    change(quantization, coded)
    folder = write(tmp_path / "coded", {**config, "quantization_config": quantization}, coded)
    with pytest.raises(ModelkitError) as caught:
        create(folder)
    assert said in str(caught.value)
    assert not Store(tmp_path).packages()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (auto_round_config("auto_round:fp8_static"), "packing_format is 'auto_round:fp8_static'"),
        (auto_round_config(bits=6), "bits is 6; 2, 3, 4, 8 is what is read"),
        (auto_round_config("auto_round:auto_awq", bits=2), "bits is 2; 4 is what is read"),
        (auto_round_config(data_type="mx_fp"), "data_type is 'mx_fp'"),
        (auto_round_config(extra_config={".*gate.*": {"bits": 8}}), "no patterns"),
        (auto_round_config(rotation_config={"algorithm": "hadamard"}), "rotation_config is"),
        (awq_config(version="gemv"), "version is 'gemv'; gemm is read"),
        (awq_config(bits=8), "bits is 8; 4 is read"),
        ({**ct_config(), "transform_config": {"a": 1}}, "transform_config is"),
        ({**ct_config(), "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config.format is"),
        ({**ct_config(), "config_groups": {}}, "does not say how its weights are packed"),
        (ct_config(type="float"), "weights.type is 'float'"),
        (ct_config(7), "num_bits is 7"),
        (ct_config(8), "which is not 8 bits in groups of 32"),
        (ct_config(4, 64), "which is not 4 bits in groups of 64"),
        (ct_config(symmetric=False), "which is not 4 bits"),
    ],
)
def test_other_ways_are_refused_by_name(config: Config, said: str, tmp_path: Path) -> None:
    own, shapes = llama()
    method = config["quant_method"]
    by_columns: dict[str, Callable[[Codes], Tensors]] = {"awq": awq, "auto-round": gptq}
    leaves = by_columns.get(method, lambda one: compressed(one, symmetric=True))
    coded, _ = as_codes(
        random_state(shapes), linear(shapes), lambda name, shape: random_codes(name, shape, 4, 32), leaves
    )
    folder = write(tmp_path / "coded", {**own, "quantization_config": config}, coded)
    with pytest.raises(ModelkitError) as caught:
        create(folder)
    assert said in str(caught.value)


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


def test_a_matrix_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    own, shapes = llama()
    coded, plain = as_codes(
        random_state(shapes), linear(shapes), lambda name, shape: random_codes(name, shape, 4, 32), gptq
    )
    name = linear(shapes)[0]
    folder = write(
        tmp_path / "coded", {**own, "quantization_config": gptq_config()}, {**coded, name: plain[name]}
    )
    with pytest.raises(ModelkitError, match="there as codes and as floats"):
        create(folder)


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
    with pytest.raises(ModelkitError, match="Make a package of it first"):
        modelkit.create(tmp_path / "coded.modelfile", name="fused", home=tmp_path, fuse_adapters=True)
    Store(tmp_path).copy("coded", "moved")
    (tmp_path / "moved.modelfile").write_text("FROM moved\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "moved.modelfile", name="fused", home=tmp_path, fuse_adapters=True)
    before = logits(coded)
    fused = logits(tmp_path / "fused")
    assert (
        np.abs(fused - wanted).mean() < 0.5 * np.abs(before - wanted).mean()
    )  # four bits round it once more


def test_what_autoround_says_of_single_layers(tmp_path: Path) -> None:
    own, shapes = llama()
    special, left = (name for name in linear(shapes) if "k_proj" in name or "v_proj" in name)
    extra = {special.removesuffix(".weight"): {"bits": 8, "group_size": 64}, "lm_head": {"bits": 16}}
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
