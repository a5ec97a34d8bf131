"""An adapter of a package, written as PEFT has adapters: the same adapter when it is read again."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

import modelkit
from modelkit.cli.main import cli
from modelkit.errors import ModelkitError
from modelkit.source.adapters.opened import read_adapter
from modelkit.store.store import Store
from tests.support.adapter_references import AdapterReference
from tests.support.checkpoints import random_tensor, write_checkpoint
from tests.support.parity import Reference
from tests.support.peft_folders import write_peft
from tests.support.tiny import write_tokenizer

SAME = [
    *("llama_lora", "llama_dora", "llama_lora_bias", "llama_patterns", "llama_rslora", "llama_untied_saved"),
    *("phi3_fused", "mlx/llama_lora", "mlx/llama_dora"),
    *("llama_tied_table", "llama_tied_tokens", "llama_tokens_apart", "gpt_oss_router", "mlx/llama_table"),
]
REFUSED = {
    "gpt2_dora": "which checkpoints of this model have otherwise",
    "mixtral_down": "which checkpoints of this model have otherwise|a stack",
    "qwen3_moe_parameters": "which checkpoints of this model have otherwise|a stack",
    "gpt_oss_parameters": "which checkpoints of this model have otherwise|a stack",
}


def package(name: str, tmp_path: Path, quantize: str | None = None) -> Path:
    reference = AdapterReference(name)
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "lora")
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, quantize=quantize)
    return tmp_path


@pytest.mark.parametrize("name", SAME)
def test_it_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    home = package(name, tmp_path, "q8g32" if name == "llama_lora" else None)
    assert modelkit.export_adapter("it", "lora", tmp_path / "out", home=home) == (
        "adapter_config.json",
        "adapter_model.safetensors",
    )
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./out\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="again", home=home)
    store = Store(home)
    files = [store.resolve(one).files for one in ("it", "again")]
    before, after = (
        mx.load(str(its[f"adapters/{folder}/adapter.safetensors"]), format="safetensors")
        for its, folder in zip(files, ("lora", "out"), strict=True)
    )
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert {*before} == {*after}
    assert all(mx.array_equal(values, after[name]) for name, values in before.items())
    scales = [
        json.loads(its[f"adapters/{folder}/adapter_config.json"].read_bytes())
        for its, folder in zip(files, ("lora", "out"), strict=True)
    ]
    for key in ("scale", "scales"):
        assert scales[0].get(key) == pytest.approx(scales[1].get(key)), key


def test_biases_lie_where_peft_looks_for_them(tmp_path: Path) -> None:
    """Those of a layer that has a pair inside of it, and a pair's own whether the layer has one or not."""
    record = Reference("qwen2").record
    write_tokenizer(write_checkpoint(tmp_path / "model", record["config"], record["tensors"]), tokens=128)
    layer = "base_model.model.model.layers.1"
    shapes = {name: tuple(shape) for name, shape in record["tensors"].items()}
    paired = [f"{layer}.self_attn.q_proj", f"{layer}.self_attn.o_proj"]
    brought: dict[str, np.ndarray] = {}
    for module in paired:
        rows, columns = shapes[f"{module.removeprefix('base_model.model.')}.weight"]
        brought |= {
            f"{module}.lora_A.weight": random_tensor("a", (3, columns)),
            f"{module}.lora_B.weight": random_tensor("b", (rows, 3)),
            f"{module}.lora_B.bias": random_tensor("c", (rows,)),
        }
    for part, inner in (("q_proj", ".base_layer"), ("k_proj", "")):
        (rows,) = shapes[f"model.layers.1.self_attn.{part}.bias"]
        brought[f"{layer}.self_attn.{part}{inner}.bias"] = random_tensor(part, (rows,))
    write_peft(tmp_path / "lora", brought, bias="all", lora_bias=True)
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    modelkit.export_adapter("it", "lora", tmp_path / "out", home=tmp_path)
    found = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert found.keys() == brought.keys()
    assert all(np.array_equal(found[name], array) for name, array in brought.items())
    told = json.loads((tmp_path / "out" / "adapter_config.json").read_text(encoding="utf-8"))
    assert (told["bias"], told["lora_bias"], told["modules_to_save"]) == ("all", True, None)


@pytest.mark.parametrize("spelled", ["model.language_model.", "language_model.model."])
def test_a_wrappers_modules_are_called_as_transformers_5_does(spelled: str, tmp_path: Path) -> None:
    """Whichever of its names the package's files have."""
    record = Reference("gemma3_wrapped").record
    shapes = {name.replace("model.language_model.", spelled): its for name, its in record["tensors"].items()}
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, shapes), tokens=128)
    module = "base_model.model.model.language_model.layers.0.self_attn.q_proj"
    rows, columns = shapes[f"{spelled}layers.0.self_attn.q_proj.weight"]
    brought = {
        f"{module}.lora_A.weight": random_tensor("a", (3, columns)),
        f"{module}.lora_B.weight": random_tensor("b", (rows, 3)),
    }
    write_peft(tmp_path / "lora", brought)
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    modelkit.export_adapter("it", "lora", tmp_path / "out", home=tmp_path)
    assert load_file(tmp_path / "out" / "adapter_model.safetensors").keys() == brought.keys()
    told = json.loads((tmp_path / "out" / "adapter_config.json").read_text(encoding="utf-8"))
    assert told["target_modules"] == [module.removeprefix("base_model.model.")]


def test_routers_are_parameters_in_transformers(tmp_path: Path) -> None:
    """PEFT takes no module of its classes for a layer."""
    modelkit.export_adapter("it", "lora", tmp_path / "out", home=package("gpt_oss_router", tmp_path))
    told = json.loads((tmp_path / "out" / "adapter_config.json").read_text(encoding="utf-8"))
    routers = [f"model.layers.{layer}.mlp.router.weight" for layer in range(4)]
    assert told["target_parameters"] == routers
    assert all(name.endswith("q_proj") for name in told["target_modules"])
    assert told["r"] == 2
    assert told["rank_pattern"] == dict.fromkeys(routers, 3)
    assert told["alpha_pattern"] == dict.fromkeys(routers, 5)


@pytest.mark.parametrize("name", REFUSED)
def test_what_peft_has_no_word_for_is_refused_by_name(name: str, tmp_path: Path) -> None:
    home = package(name, tmp_path)
    with pytest.raises(ModelkitError, match=REFUSED[name]) as refused:
        modelkit.export_adapter("it", "lora", tmp_path / "out", home=home)
    assert "adapter lora" in str(refused.value)
    assert "--fuse-adapters" in str(refused.value.hint)
    assert not (tmp_path / "out").exists()


def test_on_the_command_line(tmp_path: Path) -> None:
    home = package("llama_lora", tmp_path)
    run = CliRunner()
    words = ["export", "it", str(tmp_path / "out"), "--adapter"]
    env = {"MODELKIT_HOME": str(home)}
    told = run.invoke(cli, [*words, "lora"], env=env)
    assert told.exit_code == 0, told.output
    assert "exported adapter lora" in told.output
    assert read_adapter(tmp_path / "out").pairs
    assert "is not empty" in run.invoke(cli, [*words, "lora"], env=env).output
    assert "there is lora" in run.invoke(cli, [*words, "law"], env=env).output
    assert run.invoke(cli, ["export", "it", "x.gguf", "--adapter", "lora"], env=env).exit_code == 2
    assert run.invoke(cli, ["export", "it", str(tmp_path / "x"), "--form", "peft"], env=env).exit_code == 2
    told = run.invoke(
        cli, ["export", "it", str(tmp_path / "mlx"), *words[3:], "lora", "--form", "mlx-lm"], env=env
    )
    assert told.exit_code == 0, told.output
    assert read_adapter(tmp_path / "mlx").kind == "mlx-lm"
