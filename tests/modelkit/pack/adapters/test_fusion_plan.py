"""`create --fuse-adapters`: what is written is what a checkpoint with the adapter in it gives."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import save_file

import modelkit
from modelkit.errors import ModelkitError
from modelkit.pack.metadata import FILE, read_metadata
from modelkit.store.store import Store
from tests.modelkit.pack.adapters.test_every_family import SCALE
from tests.support.adapter_references import AdapterReference
from tests.support.checkpoints import random_state, random_tensor, write_checkpoint
from tests.support.code_folders import llama as small_llama
from tests.support.gguf import Gguf
from tests.support.gguf_llama import checkpoint, llama
from tests.support.gguf_llama import metadata as gguf_metadata
from tests.support.gguf_llama import tensors as gguf_tensors
from tests.support.packaged_adapters import TENSORS, Q
from tests.support.parity import Reference
from tests.support.peft_folders import delta_of, matrices, pair_for, peft_tensors, write_peft
from tests.support.small_floats import two
from tests.support.tiny import write_model, write_tokenizer

NAMES = [*AdapterReference.names(), *AdapterReference.names("mlx/")]
FAMILIES = ["llama", "gpt2", "gpt_oss", "qwen3_next", "olmo_hybrid", "deepseek_v2", "mixtral", "llama4_text"]


def create(folder: Path, *, fuse: bool = True, **options: Any) -> Any:
    (folder / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    return modelkit.create(folder / "Modelfile", name="it", home=folder, fuse_adapters=fuse, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_fused_package_answers_as_peft(name: str, tmp_path: Path) -> None:
    reference = AdapterReference(name)
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "lora")
    create(tmp_path)
    package = Store(tmp_path).resolve("it")
    assert not any(path.startswith("adapters/") for path in package.files)
    (said,) = read_metadata(package.files[FILE], "it").adapters
    assert said.fused
    with modelkit.load("it", home=tmp_path) as model:
        got = model.logits([int(one) for one in reference.ids])[:, reference.answers["columns"]]
    error = np.abs(got - reference.answers["logits"]).max() / reference.answers["std"]
    # Sums in another order move a hybrid by 2e-4; a pair at a wrong place moves any model by more than 0.1.
    assert error < 1e-3, error


def test_the_columns_of_a_table_have_their_norms_over_all_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = AdapterReference("llama_dora_table")
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "lora")
    create(tmp_path)
    whole = weights_of("it", tmp_path)["model.embed_tokens.weight"]
    monkeypatch.setattr("modelkit.pack.writing.write.BLOCK_BYTES", 1000)
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path / "other", fuse_adapters=True)
    cut = weights_of("it", tmp_path / "other")["model.embed_tokens.weight"]
    np.testing.assert_allclose(np.array(cut), np.array(whole), rtol=1e-6)


@pytest.mark.parametrize("name", ["llama_tied_tokens", "llama_tokens_apart"])
def test_an_adapter_of_a_package_is_fused_as_one_of_a_folder(name: str, tmp_path: Path) -> None:
    reference = AdapterReference(name)
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "lora")
    create(tmp_path)
    wanted = weights_of("it", tmp_path)
    create(tmp_path, fuse=False)
    (tmp_path / "Modelfile").write_text("FROM it\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="again", home=tmp_path, fuse_adapters=True)
    got = weights_of("again", tmp_path)
    assert got.keys() == wanted.keys()
    assert all(mx.array_equal(values, wanted[name]) for name, values in got.items())


@pytest.mark.parametrize("name", AdapterReference.names("encoders/"))
@pytest.mark.parametrize("fuse", [False, True])
def test_an_encoder_with_an_adapter_embeds_as_peft(name: str, fuse: bool, tmp_path: Path) -> None:
    reference = AdapterReference(name)
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "lora")
    create(tmp_path, fuse=fuse)
    with modelkit.load("it", home=tmp_path) as model:
        assert model.adapters == (() if fuse else ("lora",))
        got = model.embed([[int(one) for one in reference.ids]], normalize=False).vectors[0]
    wanted = reference.answers["logits"].mean(0)
    assert np.abs(got[reference.answers["columns"]] - wanted).max() / reference.answers["std"] < 1e-3


@pytest.mark.parametrize("name", FAMILIES)
def test_fusing_and_quantizing_is_quantizing_the_fused_checkpoint(name: str, tmp_path: Path) -> None:
    record = Reference(name).record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    state = random_state(record["tensors"])
    tensors: dict[str, np.ndarray] = {}
    fused = dict(state)
    for matrix, shape in matrices(record["tensors"]).items():
        if (
            matrix.startswith(("lm_head", "vision", "model.vision", "multi_modal"))
            or "embed" in matrix
            or "wte" in matrix
        ):
            continue
        first = (name in ("gpt_oss", "llama4_text") and len(shape) == 3) or (
            name == "gpt2" and ".c_" in matrix
        )
        left, right = pair_for(matrix, shape, 3, input_first=first)
        tensors |= peft_tensors(matrix, left, right)
        fused[matrix] = state[matrix] + delta_of(left, right, SCALE, input_first=first)
    stacks = sorted(
        {
            one.partition("layers.")[2].partition(".")[2]
            for one in matrices(record["tensors"])
            if one.endswith("_proj")
        }
    )
    write_peft(tmp_path / "lora", tensors, target_parameters=stacks or None)
    for folder, values in (("model", state), ("fused", fused)):
        made = write_checkpoint(tmp_path / folder, config, {})
        write_tokenizer(made, tokens=128)
        save_file(values, made / "model.safetensors", metadata={"format": "pt"})
    create(tmp_path, quantize="q8")
    (tmp_path / "Modelfile").write_text("FROM ./fused\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="other", home=tmp_path, quantize="q8")
    store = Store(tmp_path)
    got, wanted = (
        mx.load(str(store.resolve(one).files["model.safetensors"]), format="safetensors")
        for one in ("it", "other")
    )
    assert isinstance(got, dict)
    assert isinstance(wanted, dict)
    assert got.keys() == wanted.keys()
    for tensor, values in wanted.items():
        if values.dtype == mx.uint32:
            same = float(np.mean(np.array(got[tensor].view(mx.uint8)) == np.array(values.view(mx.uint8))))
            assert same > 0.99, (tensor, same)
        else:
            np.testing.assert_allclose(
                np.array(got[tensor]), np.array(values), atol=1e-5, rtol=1e-4, err_msg=tensor
            )


def packed_base(name: str, tmp_path: Path, quantize: str) -> tuple[AdapterReference, dict[str, Any]]:
    """A package called `packed`, a Modelfile that adds the adapter to it, and what the package has."""
    reference = AdapterReference(name)
    config = {key: value for key, value in reference.base["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, reference.base["tensors"]), tokens=128)
    reference.write(tmp_path / "lora")
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="packed", home=tmp_path, quantize=quantize)
    (tmp_path / "Modelfile").write_text("FROM packed\nADAPTER ./lora\n", encoding="utf-8")
    return reference, weights_of("packed", tmp_path)


def weights_of(name: str, home: Path) -> dict[str, Any]:
    found = mx.load(str(Store(home).resolve(name).files["model.safetensors"]), format="safetensors")
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("quantize", ["q8g32", "q4g32", "mxfp8", "mxfp4", "nvfp4"])
def test_a_packed_base_is_packed_again_where_the_adapter_is(quantize: str, tmp_path: Path) -> None:
    """Changed matrices keep their form; all other tensors keep their bytes."""
    _, before = packed_base("llama_lora", tmp_path, quantize)
    made = modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)
    after = weights_of("it", tmp_path)
    assert {name: (one.shape, one.dtype) for name, one in after.items()} == {
        name: (one.shape, one.dtype) for name, one in before.items()
    }
    packing = json.loads(Store(tmp_path).resolve("it").files["config.json"].read_bytes())["quantization"]
    pairs = mx.load(str(tmp_path / "lora" / "adapter_model.safetensors"))
    assert isinstance(pairs, dict)
    scale = json.loads((tmp_path / "lora" / "adapter_config.json").read_text())
    for name, values in before.items():
        module, _, leaf = name.rpartition(".")
        down = pairs.get(f"base_model.model.{module}.lora_A.weight")
        if down is None:
            assert mx.array_equal(after[name].view(mx.uint8), values.view(mx.uint8)), name
        elif leaf == "weight":
            own = packing.get(module, packing)
            how = {
                "mode": "affine",
                **{key: own[key] for key in ("bits", "group_size", "mode") if key in own},
            }
            parts = [wide(before.get(f"{module}.{leaf}")) for leaf in ("scales", "biases")]
            more = (
                pairs[f"base_model.model.{module}.lora_B.weight"] @ down * (scale["lora_alpha"] / scale["r"])
            )
            total = mx.dequantize(values, *parts, **how).astype(mx.float32) + more
            once = mx.quantize(total.astype(values_dtype(before, module)), **how)
            assert not mx.array_equal(after[name], values), name
            same = np.mean(np.array(after[name].view(mx.uint8)) == np.array(once[0].view(mx.uint8)))
            assert same > 0.99, (name, same)
    assert any("again as before" in note for note in made.notes)
    packed = Store(tmp_path).resolve("packed").files["config.json"].read_bytes()
    assert Store(tmp_path).resolve("it").files["config.json"].read_bytes() == packed


def wide(part: Any) -> Any:
    """Scales that are floats, in float32; codes of scales as they are."""
    return part if part is None or part.dtype == mx.uint8 else part.astype(mx.float32)


def values_dtype(tensors: dict[str, Any], module: str) -> Any:
    found = tensors[f"{module}.scales"].dtype
    return mx.bfloat16 if found == mx.uint8 else found


@pytest.mark.parametrize(
    "name", ["llama_lora", "gpt2_dora", "gpt_oss_parameters", "qwen3_next_hybrid", "llama_dora_table"]
)
def test_what_was_packed_again_answers_as_the_adapter_beside_it(name: str, tmp_path: Path) -> None:
    reference, _ = packed_base(name, tmp_path, "q8g32")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)
    modelkit.create(tmp_path / "Modelfile", name="beside", home=tmp_path)
    ids = [int(one) for one in reference.ids]
    answers: dict[str, Any] = {}
    for package in ("packed", "beside", "it"):
        with modelkit.load(package, home=tmp_path) as model:
            answers[package] = model.logits(ids)
    moved = np.abs(answers["beside"] - answers["packed"]).mean()
    assert np.abs(answers["it"] - answers["beside"]).mean() < 0.1 * moved


def test_whole_experts_go_into_a_packed_base(tmp_path: Path) -> None:
    """Biases of a stack, too, whose numbers alternate in PEFT's file and stand apart in the package."""
    reference, before = packed_base("gpt_oss_saved_experts", tmp_path, "q8g32")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)
    after = weights_of("it", tmp_path)
    saved = mx.load(str(tmp_path / "lora" / "adapter_model.safetensors"))
    assert isinstance(saved, dict)
    for layer in range(2):
        own = f"model.layers.{layer}.mlp.experts"
        whole = saved[f"base_model.model.{own}.gate_up_proj_bias"]
        for place, part in enumerate(("gate_proj", "up_proj")):
            assert mx.array_equal(after[f"{own}.{part}.bias"], whole[:, place::2])
            assert before[f"{own}.{part}.bias"].shape == whole[:, place::2].shape
    with modelkit.load("it", home=tmp_path) as model:
        got = model.logits([int(one) for one in reference.ids])[:, reference.answers["columns"]]
    assert np.abs(got - reference.answers["logits"]).mean() / reference.answers["std"] < 0.1


@pytest.mark.parametrize(
    ("name", "layer", "fuse"),
    [
        ("gpt2", "c_proj", True),
        ("gpt2", "c_proj", False),
        ("mamba", "conv1d", True),
        ("qwen3_next", "conv1d", True),
    ],
)
def test_layers_that_are_saved_whole_act_as_in_a_checkpoint(
    name: str, layer: str, fuse: bool, tmp_path: Path
) -> None:
    """Matrices that transformers holds input first, and filters, whose axes MLX has in another order."""
    record = Reference(name).record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, record["tensors"]), tokens=128)
    state = random_state(record["tensors"])
    whole = {
        one: random_tensor(f"other {one}", array.shape)
        for one, array in state.items()
        if one.endswith(f".{layer}.weight")
    }
    tensors = {f"base_model.model.{one}": array for one, array in whole.items()}
    write_peft(tmp_path / "lora", tensors, modules_to_save=[layer])
    create(tmp_path, fuse=fuse)
    with modelkit.load("it", home=tmp_path) as model:
        got = model.logits([5, 9, 3, 20])
    save_file({**state, **whole}, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with modelkit.load(tmp_path / "model") as model:
        wanted = model.logits([5, 9, 3, 20])
    assert np.abs(got - wanted).max() / wanted.std() < 1e-4


def test_blocks_of_gguf_are_not_packed_again(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(llama(["q4_k"]))
    (tmp_path / "Modelfile").write_text("FROM ./m.gguf\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="packed", home=tmp_path)
    write_peft(
        tmp_path / "lora",
        peft_tensors(
            "model.layers.0.self_attn.q_proj.weight", *pair_for("q", (256, 256), 3, input_first=False)
        ),
    )
    for origin in ("./m.gguf", "packed"):
        (tmp_path / "Modelfile").write_text(f"FROM {origin}\nADAPTER ./lora\n", encoding="utf-8")
        with pytest.raises(ModelkitError, match="in GGUF's blocks, which modelkit cannot write anew"):
            modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)


@pytest.mark.parametrize(("packing", "tool"), [("mxfp8", "modelopt"), ("mxfp4", "quark"), ("bf16", "")])
def test_a_sum_is_float32_where_that_is_asked_for(packing: str, tool: str, tmp_path: Path) -> None:
    """bf16 holds the base's numbers, and not these."""
    config, shapes = small_llama()
    if tool:
        two(tmp_path, config, shapes, packing, tool)
        base = "./coded"
    else:
        write_tokenizer(write_checkpoint(tmp_path / "model", config, shapes), tokens=128)
        (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
        modelkit.create(tmp_path / "Modelfile", name="base", home=tmp_path, quantize=packing)
        base = "base"
    matrix = "model.layers.0.self_attn.o_proj.weight"
    left, right = pair_for(matrix, shapes[matrix], 3, input_first=False)
    write_peft(tmp_path / "lora", peft_tensors(matrix, left, right))
    numbers: list[np.ndarray] = []
    for lines, fuse in ((f"FROM {base}\n", False), (f"FROM {base}\nADAPTER ./lora\n", True)):
        (tmp_path / "Modelfile").write_text(lines, encoding="utf-8")
        made = {"home": tmp_path, "quantize": "f32", "fuse_adapters": fuse}
        modelkit.create(tmp_path / "Modelfile", name="it", **made)
        numbers.append(np.array(weights_of("it", tmp_path)[matrix]))
    wanted = numbers[0] + SCALE * left.astype(np.float64) @ right.astype(np.float64)
    np.testing.assert_allclose(numbers[1], wanted, atol=2e-7, rtol=2e-7)


@pytest.mark.parametrize("quantize", ["f32", "q8g32", "q4"])
def test_blocks_of_gguf_take_an_adapter_on_their_way_to_another_format(quantize: str, tmp_path: Path) -> None:
    """What changes is the file's numbers, as gguf-py reads them, with the adapter in float64, and then
    rounded once; all else is what it is without the adapter.
    """
    made = gguf_tensors(["q4_k", "q6_k", "q8_0", "q4_0", "iq4_xs", "f32"])
    (tmp_path / "m.gguf").write_bytes(bytes(Gguf(gguf_metadata(), made)))
    (tmp_path / "Modelfile").write_text("FROM ./m.gguf\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="plain", home=tmp_path, quantize=quantize)
    wanted = checkpoint(made)
    tensors: dict[str, np.ndarray] = {}
    changed: dict[str, np.ndarray] = {}
    for name in matrices({name: array.shape for name, array in wanted.items()}):
        if "layers.1" in name or "embed" in name:
            continue
        left, right = (0.1 * one for one in pair_for(name, wanted[name].shape, 3, input_first=False))
        tensors |= peft_tensors(name, left, right)
        changed[name] = wanted[name] + SCALE * left.astype(np.float64) @ right.astype(np.float64)
    write_peft(tmp_path / "lora", tensors)
    (tmp_path / "Modelfile").write_text("FROM ./m.gguf\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, quantize=quantize, fuse_adapters=True)
    before, after = weights_of("plain", tmp_path), weights_of("it", tmp_path)
    packing = json.loads(Store(tmp_path).resolve("it").files["config.json"].read_bytes()).get("quantization")
    assert {name: (one.shape, one.dtype) for name, one in after.items()} == {
        name: (one.shape, one.dtype) for name, one in before.items()
    }
    for name, values in after.items():
        module, _, leaf = name.rpartition(".")
        if f"{module}.weight" not in changed:
            assert mx.array_equal(values.view(mx.uint8), before[name].view(mx.uint8)), name
        elif leaf == "weight" and values.dtype != mx.uint32:
            np.testing.assert_allclose(np.array(values), changed[name], atol=2e-7, rtol=2e-7, err_msg=name)
        elif leaf == "weight":
            own = packing.get(module, packing)
            how = {key: own.get(key, packing[key]) for key in ("bits", "group_size")}
            once = mx.array(changed[name].astype(np.float32)).astype(after[f"{module}.scales"].dtype)
            codes = mx.quantize(once, **how)[0]
            same = np.mean(np.array(values.view(mx.uint8)) == np.array(codes.view(mx.uint8)))
            assert same > 0.99, (name, same)


@pytest.mark.parametrize(
    "name",
    ["llama_dora_table", "llama_saved", "llama_tied_tokens", "gpt2_dora", "phi3_fused", "glm4_moe_layers"],
)
def test_adapters_go_into_a_gguf_file_as_into_its_checkpoint(name: str, tmp_path: Path) -> None:
    """Whose rows stand otherwise there, or whose numbers do (norms), or which has cut what is joined."""
    reference = AdapterReference(name)
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "lora")
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="base", home=tmp_path)
    modelkit.export_gguf("base", tmp_path / "m.gguf", home=tmp_path)
    (tmp_path / "Modelfile").write_text("FROM ./m.gguf\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)
    with modelkit.load("it", home=tmp_path) as model:
        got = model.logits([int(one) for one in reference.ids])[:, reference.answers["columns"]]
    assert np.abs(got - reference.answers["logits"]).max() / reference.answers["std"] < 1e-3


def test_another_scale_in_an_adapters_config_makes_other_weights(tmp_path: Path) -> None:
    """Though its tensors are the same, and were fused into the same base before."""
    write_model(tmp_path / "model")
    found = []
    for alpha in (8, 4):
        write_peft(tmp_path / "lora", TENSORS, lora_alpha=alpha)
        create(tmp_path)
        found.append(weights_of("it", tmp_path))
        create(tmp_path, fuse=False)
        modelkit.create(modelkit.Modelfile.parse("FROM it"), name="on", home=tmp_path, fuse_adapters=True)
        found.append(weights_of("on", tmp_path))
    base = weights_of("it", tmp_path)
    changed = f"{Q.removeprefix('base_model.model.')}.weight"
    whole, inherited, half, half_inherited = (one[changed] - base[changed] for one in found)
    assert np.abs(whole).max() > 0.01
    np.testing.assert_allclose(whole, 2 * half, atol=1e-6)
    np.testing.assert_array_equal(whole, inherited)
    np.testing.assert_array_equal(half, half_inherited)


def test_there_must_be_an_adapter(tmp_path: Path) -> None:
    reference = AdapterReference("llama_lora")
    config = {key: value for key, value in reference.base["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, reference.base["tensors"]), tokens=128)
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    with pytest.raises(ModelkitError, match="no adapter to fuse"):
        modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)
