"""An adapter of a package, written as PEFT has adapters: the same adapter when it is read again."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.cli.main import cli
from modelkit.errors import ModelkitError
from modelkit.pack.adapters.stored import read_stored
from modelkit.source.adapters.reading import read_adapter
from modelkit.store.store import Store
from runtime.loading.shapes import parameters
from runtime.models import describe
from tests.support.adapter_references import AdapterReference
from tests.support.checkpoints import random_state, random_tensor, write_checkpoint
from tests.support.parity import Reference
from tests.support.peft_folders import (
    computed_matrices,
    holds_input_first,
    pair_for,
    peft_tensors,
    write_peft,
)
from tests.support.published_states import longcat_by_meituan
from tests.support.tiny import write_tokenizer

SAME = [
    *("llama_lora", "llama_dora", "llama_lora_bias", "llama_patterns", "llama_rslora", "llama_untied_saved"),
    *("phi3_fused", "mlx/llama_lora", "mlx/llama_dora"),
    *("llama_tied_table", "llama_tied_tokens", "llama_tokens_apart", "gpt_oss_router", "mlx/llama_table"),
    *("codegen_fused", "dbrx_dora", "deepseek_v3_latent", "falcon_grouped", "glm4_moe_layers", "gpt2_dora"),
    *("gpt2_ensured", "gpt2_tokens_of_the_head", "gpt_oss_parameters", "gptj_table", "lfm3_gates"),
    *(
        "llama_dora_table",
        "minimax_lightning",
        "mixtral_down",
        "olmo_hybrid_joined",
        "qwen3_moe_parameters",
        "zamba_shared",
        "zamba2_shared",
    ),
    *(
        "qwen3_next_hybrid",
        "llama_tied_parameter",
        "encoders/bert_lora",
        "encoders/distilbert_dora",
        "encoders/modernbert_saved",
    ),
]
PACKED = ("llama_lora", "gpt2_dora", "mixtral_down", "qwen3_next_hybrid", "gpt_oss_parameters")
EVERY = [
    *("bailing_moe", "gemma4_moe", "granitemoehybrid_dense", "lfm2_moe", "llama4_text", "nemotron_h"),
    *("nemotron_nas", "plamo2", "rwkv7", "step3p7", "internlm2", "kimi_linear"),
]


def package(name: str, tmp_path: Path, quantize: str | None = None) -> Path:
    reference = AdapterReference(name)
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "lora")
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, quantize=quantize)
    return tmp_path


@pytest.mark.parametrize("name", SAME)
def test_it_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    home = package(name, tmp_path, "q8g32" if name in PACKED else None)
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


def test_experts_without_matrices_have_rows_in_transformers(tmp_path: Path) -> None:
    """LongCat's class has some for three of eight that only pass by, which published files leave out."""
    record = Reference("longcat_flash").record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    state = longcat_by_meituan(random_state(record["tensors"]))
    shapes = {name: array.shape for name, array in state.items()}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, shapes), tokens=128)
    brought: dict[str, np.ndarray] = {}
    stack = "model.layers.0.mlp.experts"
    for matrix in (f"{stack}.gate_up_proj", f"{stack}.down_proj"):
        left, right = pair_for(matrix, record["tensors"][matrix], 3, input_first=False)
        left, right = left.copy(), right.copy()
        left[5:], right[5:] = 0, 0
        brought |= peft_tensors(matrix, left, right)
    write_peft(tmp_path / "lora", brought, target_parameters=[f"{stack}.gate_up_proj", f"{stack}.down_proj"])
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    modelkit.export_adapter("it", "lora", tmp_path / "out", home=tmp_path)
    found = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert found.keys() == brought.keys()
    assert all(np.array_equal(found[name], array) for name, array in brought.items())


def test_routers_are_parameters_in_transformers(tmp_path: Path) -> None:
    """PEFT takes no module of its classes for a layer."""
    modelkit.export_adapter("it", "lora", tmp_path / "out", home=package("gpt_oss_router", tmp_path))
    told = json.loads((tmp_path / "out" / "adapter_config.json").read_text(encoding="utf-8"))
    routers = [f"model.layers.{layer}.mlp.router.weight" for layer in range(4)]
    assert told["target_parameters"] == routers
    assert all(name.endswith("q_proj") for name in told["target_modules"])
    for name in (*routers, *told["target_modules"]):
        rank, alpha = (told[f"{one}_pattern"].get(name) for one in ("rank", "alpha"))
        assert (rank or told["r"], alpha or told["lora_alpha"]) == ((3, 5) if name in routers else (2, 8))


@pytest.mark.parametrize("quantize", [None, "q8g32"])
@pytest.mark.parametrize("name", EVERY)
def test_every_matrix_goes_back_to_where_transformers_has_it(
    name: str, quantize: str | None, tmp_path: Path
) -> None:
    """Under the very keys, whether the package has the files' names or MLX's, and all products the same."""
    reference = Reference(name).record
    described, shapes = describe(reference["config"]), reference["tensors"]
    brought: dict[str, np.ndarray] = {}
    taken = computed_matrices(described, {n: tuple(shape) for n, shape in shapes.items()})
    for matrix, shape in taken.items():
        left, right = pair_for(matrix, shape, 3, input_first=holds_input_first(described, matrix))
        brought |= peft_tensors(matrix, left, right)
    config = {key: value for key, value in reference["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, shapes), tokens=128)
    stacks = [matrix for matrix in taken if matrix.endswith("_proj")]
    write_peft(tmp_path / "lora", brought, target_parameters=stacks or None)
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, quantize=quantize)
    modelkit.export_adapter("it", "lora", tmp_path / "out", home=tmp_path)
    found = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert found.keys() == brought.keys()
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./out\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="again", home=tmp_path, quantize=quantize)
    before, after = (
        read_stored(Store(tmp_path).resolve(one).files, one)[folder].load().pairs
        for one, folder in (("it", "lora"), ("again", "out"))
    )
    assert before.keys() == after.keys()
    for module, pair in before.items():
        other = after[module]
        np.testing.assert_allclose(
            np.array(pair.down @ pair.up) * pair.scale,
            np.array(other.down @ other.up) * other.scale,
            atol=1e-5,
            err_msg=module,
        )


def test_layers_that_are_called_like_experts_are_parameters(tmp_path: Path) -> None:
    """PEFT takes `gate_proj` of a shared expert or of a dense layer for the stack's, and drops its pair."""
    record = Reference("glm4_moe").record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, record["tensors"]), tokens=128)
    named = [f"model.layers.{place}" for place in ("0.self_attn.q_proj", "1.mlp.shared_experts.gate_proj")]
    brought: dict[str, np.ndarray] = {}
    for name in named:
        shape = tuple(record["tensors"][f"{name}.weight"])
        left, right = pair_for(name, shape, 3, input_first=False)
        brought |= peft_tensors(f"{name}.weight", left, right)
    write_peft(tmp_path / "lora", brought, target_modules=named)
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    modelkit.export_adapter("it", "lora", tmp_path / "out", home=tmp_path)
    told = json.loads((tmp_path / "out" / "adapter_config.json").read_text(encoding="utf-8"))
    assert told["target_modules"] == named[:1]
    assert told["target_parameters"] == [f"{named[1]}.weight"]


def test_experts_whose_module_peft_cannot_wrap_are_refused_by_name(tmp_path: Path) -> None:
    record = Reference("dbrx").record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, record["tensors"]), tokens=128)
    module, inside = "transformer.blocks.0.ffn.switch_mlp.up_proj", "model.layers.0.mlp.switch_mlp.up_proj"
    experts, rows, columns = parameters(describe(config))[f"{inside}.weight"]
    (tmp_path / "lora").mkdir()
    said = {"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 1.0}}
    (tmp_path / "lora" / "adapter_config.json").write_text(json.dumps(said), encoding="utf-8")
    pair = {
        f"{module}.lora_a": random_tensor("a", (experts, 2, columns)),
        f"{module}.lora_b": random_tensor("b", (experts, rows, 2)),
    }
    save_file(pair, tmp_path / "lora" / "adapters.safetensors")
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    with pytest.raises(ModelkitError, match=f"adapter lora: .*{inside}") as refused:
        modelkit.export_adapter("it", "lora", tmp_path / "out", home=tmp_path)
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
    refused = run.invoke(cli, ["export", "it", "x.gguf", "--adapter", "lora"], env=env)
    assert (refused.exit_code, "name one in place of the .gguf file" in refused.stderr) == (2, True)
    assert run.invoke(cli, ["export", "it", str(tmp_path / "x"), "--form", "peft"], env=env).exit_code == 2
    told = run.invoke(
        cli, ["export", "it", str(tmp_path / "mlx"), *words[3:], "lora", "--form", "mlx-lm"], env=env
    )
    assert told.exit_code == 0, told.output
    assert read_adapter(tmp_path / "mlx").kind == "mlx-lm"
