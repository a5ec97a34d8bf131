"""What mlx-lm's form changes is what is written, never what is computed.

Where modelkit itself reads such a folder, it computes the reference's logits from it; mlx-lm's are in
tests/data/mlx_lm.json, which `python -m tests.support.export_table` makes.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import modelkit
from modelkit.errors import ModelkitError
from modelkit.pack.mlx_folder.plan import plan_folder
from modelkit.store.store import Store
from runtime.loading.load import load_model
from tests.modelkit.pack.mlx_lm.test_limits import FOUND
from tests.modelkit.pack.test_gguf import PROCESSOR
from tests.support.checkpoints import random_tensor, write_checkpoint
from tests.support.gguf_round import file_numbers
from tests.support.parity import Reference, bar, full_logits
from tests.support.tiny import write_tokenizer

# One for every fix that modelkit reads too, with the names of published files.
READ = [
    *("deepseek_v2_lite", "deepseek_v3", "deepseek_v3_halves", "glm4_tied", "gpt2", "gpt_neox"),
    *(
        "gpt_neox_sequential",
        "gpt_oss",
        "granitemoehybrid_dense",
        "granitemoeshared",
        "kimi_linear",
        "llama4",
        "llava",
    ),
    *("mamba2_groups", "muse_glimmer", "nemotron_h", "olmo3", "qwen3_5", "qwen3_vl_moe", "starcoder2_plain"),
]


def exported(name: str, folder: Path, quantize: str | None = None) -> Path:
    record = Reference(name).record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    write_checkpoint(folder / "model", config, record["tensors"])
    return export(folder, quantize)


def export(folder: Path, quantize: str | None = None) -> Path:
    write_tokenizer(folder / "model", tokens=128)
    (folder / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(folder / "Modelfile", name="it", home=folder / "home", quantize=quantize)
    modelkit.export("it", folder / "out", form="mlx-lm", home=folder / "home")
    return folder / "out"


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def tensors_of(folder: Path) -> dict[str, mx.array]:
    found: dict[str, mx.array] = {}
    for path in folder.glob("*.safetensors"):
        loaded = mx.load(str(path))
        assert isinstance(loaded, dict)
        found |= loaded
    return found


def logits_of(folder: Path, ids: np.ndarray) -> np.ndarray:
    model = load_model(config_of(folder), sorted(folder.glob("*.safetensors")), on=PROCESSOR)
    return full_logits(model, ids)


@pytest.mark.parametrize("name", READ)
def test_logits_stay(name: str, tmp_path: Path) -> None:
    reference, folder = Reference(name), exported(name, tmp_path)
    assert reference.error(logits_of(folder, reference.answers["ids"])) < bar(reference)
    with Store(tmp_path / "home").hold("it") as package:
        assert plan_folder(package, "mlx-lm").rewritten
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["weight_map"].keys() == tensors_of(folder).keys()


def test_a_delta_net_that_was_saved_in_equal_thirds(tmp_path: Path) -> None:
    """As transformers 5 does, whatever the sizes of queries, keys and values; norms have other names."""
    record = Reference("olmo_hybrid_rope").record
    source = write_checkpoint(tmp_path / "model", record["config"], record["tensors"])
    right = tensors_of(source)
    saved = dict(right)
    for name in [
        name for name in right if ".linear_attn.q_proj." in name or ".linear_attn.q_conv1d." in name
    ]:
        names = [name.replace(".q_", f".{letter}_") for letter in "qkv"]
        whole = mx.concatenate([right[one] for one in names])
        saved |= dict(zip(names, mx.split(whole, 3), strict=True))
        before = name.split("linear_attn.")[0]
        for old, new in (("input", "attention_layer_norm"), ("post_attention", "feedforward_layer_norm")):
            norm = saved.pop(f"{before}{old}_layernorm.weight", None)
            saved |= {} if norm is None else {f"{before}{new}.weight": norm}
    mx.save_safetensors(str(source / "model.safetensors"), saved)
    after = tensors_of(export(tmp_path))
    assert after.keys() == right.keys()
    assert all(mx.array_equal(after[name], array) for name, array in right.items())


def test_what_is_left_is_said_and_nothing_else() -> None:
    forms = {name: one["form"] for name, one in FOUND.items() if "form" in one}
    assert {name for name, one in forms.items() if one["outcome"] == "right"} == {
        name for name, one in forms.items() if not one["left"]
    }
    assert sum(one["outcome"] == "right" for one in forms.values()) > 25


def test_experts_that_create_stacked_have_the_names_of_mlx_lm(tmp_path: Path) -> None:
    record = Reference("kimi_linear").record
    shapes = {name.replace(".mlp.", ".block_sparse_moe."): shape for name, shape in record["tensors"].items()}
    write_checkpoint(tmp_path / "model", record["config"], shapes)
    names = tensors_of(export(tmp_path, "bf16")).keys()
    assert any(".mlp.switch_mlp." in name for name in names)
    assert not any(".block_sparse_moe.switch_mlp." in name for name in names)


def test_experts_that_mlx_lm_has_one_by_one(tmp_path: Path) -> None:
    """Each with the form of its stack: in q4 the last matrices have eight bits."""
    folder, ids = exported("dbrx", tmp_path, "q4g32"), Reference("dbrx").answers["ids"]
    modelkit.export("it", tmp_path / "plain", home=tmp_path / "home")
    before, after = tensors_of(tmp_path / "plain"), tensors_of(folder)
    block, said = "transformer.blocks.1.ffn", config_of(folder)["quantization"]
    for name, matrix in (("w1", "gate_proj"), ("v1", "up_proj"), ("w2", "down_proj")):
        for part in ("weight", "scales", "biases"):
            stack = before[f"{block}.switch_mlp.{matrix}.{part}"]
            each = [after[f"{block}.experts.{i}.{name}.{part}"] for i in range(6)]
            assert mx.array_equal(mx.stack(each), stack)
    assert said[f"{block}.experts.5.w2"]["bits"] == 8
    assert not any("switch_mlp" in name for name in (*after, *said))
    ours = logits_of(folder, ids)
    assert np.array_equal(ours, logits_of(tmp_path / "plain", ids))
    if find_spec("mlx_lm") is not None:
        from mlx_lm.utils import load_model as load  # pyright: ignore[reportMissingImports]

        theirs = np.array(load(folder, strict=True)[0](mx.array(ids)[None])[0].astype(mx.float32))
        assert np.abs(theirs - ours).max() < 1e-2 * ours.std()


def test_experts_that_mlx_lm_has_one_by_one_are_stacks_in_a_gguf_file(tmp_path: Path) -> None:
    folder = exported("dbrx", tmp_path, "q4g32")
    modelkit.create(modelkit.Modelfile.parse(f"FROM {folder}"), name="apart", home=tmp_path / "home")
    for name in ("it", "apart"):
        modelkit.export_gguf(name, tmp_path / f"{name}.gguf", home=tmp_path / "home")
    (stacked, _), (apart, _) = file_numbers(tmp_path / "it.gguf"), file_numbers(tmp_path / "apart.gguf")
    assert stacked.keys() == apart.keys()
    assert all(np.array_equal(stacked[name], apart[name]) for name in stacked)


def test_packed_latent_heads_are_packed_once(tmp_path: Path) -> None:
    """Values keep their codes; keys are what the codes say, turned over."""
    folder = exported("kimi_linear", tmp_path, "q4g32")
    modelkit.export("it", tmp_path / "plain", home=tmp_path / "home")
    before, after = tensors_of(tmp_path / "plain"), tensors_of(folder)
    module, config = "model.layers.1.self_attn", config_of(tmp_path / "plain")
    size, values = config["qk_nope_head_dim"], config["v_head_dim"]
    parts = {part: before[f"{module}.kv_b_proj.{part}"] for part in ("weight", "scales", "biases")}
    for part, array in parts.items():
        kept = array.reshape(-1, size + values, array.shape[-1])[:, size:]
        assert mx.array_equal(after[f"{module}.unembed_out.{part}"], kept)
    wide = mx.dequantize(*parts.values(), group_size=32, bits=4).reshape(-1, size + values, 32)
    assert mx.array_equal(after[f"{module}.embed_q.weight"], wide[:, :size].swapaxes(1, 2))
    assert not any("kv_b_proj" in name for name in after)


def test_multipliers_that_mlx_lm_leaves_out_are_in_the_matrices(tmp_path: Path) -> None:
    tensors, config = tensors_of(exported("falcon_h1", tmp_path)), Reference("falcon_h1").record["config"]
    for end, field in (("k_proj", "key_multiplier"), ("v_proj", "attention_in_multiplier"), ("q_proj", None)):
        name = f"model.layers.0.self_attn.{end}.weight"
        factor = 1 if field is None else config[field]
        wanted = random_tensor(name, tuple(tensors[name].shape)) * np.float32(factor)
        assert np.allclose(np.array(tensors[name]), wanted, rtol=1e-6)


def test_a_model_that_is_right_as_it_is_keeps_its_files(tmp_path: Path) -> None:
    exported("llama", tmp_path)
    again = modelkit.export("it", tmp_path / "again", form="mlx-lm", home=tmp_path / "home")
    assert (again.made, again.copied) == (0, 0)


def test_an_export_goes_on_in_the_same_form_only(tmp_path: Path) -> None:
    folder = exported("glm4_tied", tmp_path)
    (folder / "model.safetensors").unlink()
    done = modelkit.export("it", folder, form="mlx-lm", home=tmp_path / "home")
    assert done.made == 1
    with pytest.raises(ModelkitError, match="is not empty"):
        modelkit.export("it", folder, home=tmp_path / "home")


def test_other_forms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelkitError, match="form"):
        modelkit.export("it", tmp_path / "out", form="peft", home=tmp_path)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("quantize", [None, "q8"])
def test_a_wrapper_without_a_class_there_goes_as_its_text_model(quantize: str | None, tmp_path: Path) -> None:
    record = Reference("llama").record
    shapes = {name.replace("model.", "model.text_model.", 1): of for name, of in record["tensors"].items()}
    text = {key: value for key, value in record["config"].items() if key not in ("eos_token_id", "dtype")}
    config = {"model_type": "smolvlm", "dtype": "float32", "text_config": text}
    write_checkpoint(tmp_path / "model", config, {**shapes, "model.vision_model.norm.weight": [8]})
    folder = export(tmp_path, quantize)
    modelkit.export("it", tmp_path / "as_it_is", home=tmp_path / "home")
    ids = np.arange(3, 40)
    assert np.array_equal(logits_of(folder, ids), logits_of(tmp_path / "as_it_is", ids))
    assert config_of(folder)["model_type"] == "llama"
    assert all(
        name.startswith(("model.layers.", "model.embed", "model.norm", "lm_head."))
        for name in tensors_of(folder)
    )
