"""Every reference that has a row in the table: exported under whatever names its checkpoint has, and computed
the same by what an import makes of the file; or refused for what llama.cpp or GGUF cannot do.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import modelkit
from modelkit.errors import UnsupportedSource
from modelkit.pack.gguf.export import Planned
from modelkit.source.gguf.architectures import unplaced
from modelkit.source.gguf.file import read_gguf
from modelkit.store.store import Store
from runtime.config.text import text_config
from runtime.loading.load import load_model
from runtime.loading.shapes import parameters
from runtime.models import describe
from tests.runtime.models.test_published_forms import FORMS
from tests.support.checkpoints import random_state
from tests.support.gguf_round import exported, file_numbers, values
from tests.support.parity import Reference, bar, full_logits
from tests.support.tiny import write_tokenizer

REFUSED = {
    **dict.fromkeys(("baichuan", "baichuan2", "baichuan_alibi", "baichuan2_alibi"), "it has [34] layers"),
    "ling2_5": "no place in a GGUF file of a bailingmoe3 model",
    "ling2_5_ranked": "no place in a GGUF file of a bailingmoe3 model",
    "bailing_hybrid_ranked": "kda_safe_gate is False",
    "arcee_biases": "hidden_act is 'gelu'",
    "arctic_dense": "moe_layer_frequency is 2",
    "codeshell_tied": "scale_attn_weights is False",
    "grove_moe_dense": "attention_bias is True",
    "rwkv6_whole": "head_size_divisor is 4",
    "smallthinker": "sliding_window_size is not 4096",
    "cohere2": "layer_types are not",
    "cohere2_moe_sigmoid": "shared experts are not averaged",
    "dbrx_plain": "the activation of experts is gelu",
    "deepseek_biases": "the rotation is scaled",
    "deepseek_v4": "a vector of 7 tokens",
    "deepseek_v4_plain": "a vector of 3 tokens",
    "deepseek_v3": "mscale and mscale_all_dim differ",
    "deepseek_v3_halves": "halves of a head are rotated",
    "bitnet": "hidden_act is 'relu2'",
    "bitnet_biases": "the rotation is scaled",
    "ernie4_5_moe_biases": "moe_norm_min is 0.5",
    "exaone_moe": "the rotation is scaled",
    "exaone_moe_listed": "dense layers behind mixtures",
    "falcon_40b": "bias is True",
    "falcon_rw": "one sublayer stands behind the other",
    "falcon_rw_parallel": "alibi is True",
    "falcon_h1_norm": "no place in a GGUF file of a falcon-h1",
    "falcon_h1_norm_first": "the norm comes before the gate",
    "falcon_mamba": "96 wide, not twice 64",
    "gemma2": "query_pre_attn_scalar is not",
    "gemma3_text": "layer_types are not",
    "gemma3_wrapped": "layer_types are not",
    "gemma3n": "for 150 tokens of 160",
    "gpt_bigcode_heads": "multi_query is False",
    "glm": "4 heads of 32 do not share 64",
    "gpt2_inverse_layers": "scale_attn_by_inverse_layer_idx is True",
    "gpt_oss": "swiglu_limit is 1.5",
    "gpt_oss_truncated": "layer_types are not",
    "glm_moe_dsa_shared": "mscale and mscale_all_dim differ",
    "granite_swa": "layer_rope_theta has",
    "granitemoe_swa": "layer_rope_theta has",
    "granitemoehybrid_dense": "a hybrid with rotation",
    "hunyuan_moe": "moe_topk differs from layer to layer",
    "afmoe": "layer_types are not",
    "internlm2_biases": "bias is True",
    "laguna": "layer_types are not",
    "openelm_plain": "share_input_output_layers is False",
    "nemotron_nas": "layer 2 has attention and no MLP",
    "laguna_by_number": "layer_types are not",
    "lfm2_moe": "routed_scaling_factor is 1.5",
    "lfm2_moe_plain": "norm_topk_prob is False",
    "llama4": "attention_chunk_size is 12",
    "llama4_text": "attention_chunk_size is 12",
    "mellum": "another base",
    "mamba": "96 wide, not twice 64",
    "mamba2_bounded": "time_step_limit",
    "mamba_biases": "96 wide, not twice 64",
    "muse_glimmer_layers": "layer_rope_theta",
    "olmoe": "clip_qkv is 1.5",
    "olmoe_normalized": "norm_topk_prob is True",
    "phi_norms": "no place in a GGUF file of a phi2",
    "phimoe": "router_jitter_noise is 0.4",
    "qwen3_moe": r"mlp_only_layers is \[1\]",
    "qwen3_moe_window": "decoder_sparse_step is 2",
    "qwen3_next": "norm_topk_prob is False",
    "qwen3_next_mixed": "decoder_sparse_step is 2",
    "sarvam_moe": "attention_bias is True",
    "smollm3": "no_rope_layers",
    "smollm3_window": "no_rope_layers",
    "kimi_k3_tied": "two small matrices",
    "kimi_linear_ranked": "dense layers behind mixtures|not normalized",
    "minimax": "factors of their own",
    "hy_v4_listed": "the rotation is scaled",
    "minimax_window": "hidden_act is 'gelu'",
    "spark2_5_biases": "attention_bias is True",
    "minimax_m3_local": "with indexers are not the same",
    "minimax_m3_wrapped": "with indexers are not the same",
    "minicpm3": "scale_emb is 3",
    "minicpm3_biases": "scale_depth is 1.73",
    "mistral4_halves": "halves of a head are rotated",
    "mpt_clipped": "softmax_scale is a number",
    "mt5": "relative_attention_max_distance is 20",
    "t5": "relative_attention_max_distance is 20",
    "youtu": "mscale and mscale_all_dim differ",
    "youtu_halves": "halves of a head are rotated",
    "umt5": "relative_attention_max_distance is 20",
    "qwen4_exp": "2 layers have a table",
    "step3p7": "attention_bias is True",
}
"""References that GGUF cannot say, or that llama.cpp does not compute: what the sentence has to name."""

_FACTORS = {
    f"{part}_{of}_factor": 1.0 for part in ("full_attn", "linear_attn", "mlp") for of in ("alpha", "beta")
}
State = Mapping[str, np.ndarray]
FURTHER = "will see further back"
"""Noted of models with a window that GGUF cannot say: an import has none."""


def has_row(name: str) -> bool:
    try:
        unplaced(text_config(Reference(name).record["config"]), {}, name)
    except UnsupportedSource:
        return False
    return True


NAMES = [name for name in Reference.names() if has_row(name)]


def exported_from(reference: Reference, state: State, folder: Path) -> Planned:
    """A package of these tensors, as folder/it.gguf."""
    (folder / "model").mkdir()
    config = without_ids(reference.record["config"])
    (folder / "model/config.json").write_text(json.dumps(config), encoding="utf-8")
    arrays = {name: mx.array(array) for name, array in state.items()}
    mx.save_safetensors(str(folder / "model/model.safetensors"), arrays, {"format": "pt"})
    write_tokenizer(folder / "model", tokens=128)
    modelkit.create(modelkit.Modelfile.parse(f"FROM {folder / 'model'}"), name="it", home=folder / "home")
    with Store(folder / "home").hold("it") as package:
        return exported(package, folder / "it.gguf")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_computed_the_same_or_refused_for_a_reason(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    state = random_state(reference.record["tensors"])
    if name in REFUSED:
        with pytest.raises(UnsupportedSource, match=REFUSED[name]):
            exported_from(reference, state, tmp_path)
        return
    notes = exported_from(reference, state, tmp_path).notes
    numbers, imported = file_numbers(tmp_path / "it.gguf")
    constants = {
        key: np.array(told, np.float32).reshape(shape) for key, (shape, told) in imported.constants.items()
    }
    arrays = {key: mx.array(array) for key, array in {**numbers, **constants}.items()}
    model = reference.reading(load_model({**imported.config, "dtype": "float32"}, arrays))
    error = reference.error(full_logits(model, reference.answers["ids"]))
    assert (error <= bar(reference)) != any(FURTHER in note for note in notes), (error, notes)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("bamba", {"layers_block_type": ["attention", "mamba", "mamba"]}),
        ("cohere2_moe", {}),
        ("gemma4_text", {"num_kv_shared_layers": 0, "per_layer_config": None}),
        ("granitemoehybrid", {}),
        ("granitemoehybrid", {"layers_block_type": ["mamba", "attention", "mamba"]}),
        ("lfm2", {}),
        ("lfm2", {"full_attn_idxs": [1]}),
        ("mimo_v2_flash", {}),
        ("minimax", _FACTORS),
        ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1, 0]}),
    ],
)
def test_kinds_of_layers_are_the_familys_where_config_json_lists_none(
    name: str, listed: Mapping[str, Any], tmp_path: Path
) -> None:
    reference = Reference(name)
    gone = ("layer_types", "attn_layer_indices")
    config = {key: value for key, value in reference.record["config"].items() if key not in gone} | dict(
        listed
    )
    described = describe(config)
    reference.record["config"] = config
    exported_from(reference, random_state(parameters(described)), tmp_path)
    _, imported = file_numbers(tmp_path / "it.gguf")
    assert describe(imported.config).layout == described.layout


def same_logits(reference: Reference, state: State, folder: Path) -> bool:
    """Does what is read of the file answer as the checkpoint, to the bit?"""
    numbers, imported = file_numbers(folder / "it.gguf")
    found, wanted = (
        full_logits(load_model(one, {key: mx.array(array) for key, array in its.items()}), np.arange(3, 40))
        for one, its in ((imported.config, numbers), (reference.record["config"], state))
    )
    return np.array_equal(found, wanted)


@pytest.mark.parametrize("published", [False, True])
def test_sarvam_is_written_as_ling(published: bool, tmp_path: Path) -> None:
    reference = Reference("sarvam_moe")
    state = random_state(reference.record["tensors"])
    state = {name: array for name, array in state.items() if not name.endswith("_proj.bias")}
    _, refield, respell = FORMS["Sarvam 30B"]
    config = {**reference.record["config"], "attention_bias": False}
    reference.record["config"] = refield(config) if published else config
    stored = respell(state) if published else state
    exported_from(reference, stored, tmp_path)
    assert file_numbers(tmp_path / "it.gguf")[1].config["model_type"] == "bailing_moe"
    assert same_logits(reference, stored, tmp_path)


def test_the_first_files_of_minimax_are_written(tmp_path: Path) -> None:
    reference = Reference("minimax")
    _, refield, respell = FORMS["MiniMax M1"]
    reference.record["config"] = refield(reference.record["config"] | _FACTORS)
    state = respell(random_state(reference.record["tensors"]))
    exported_from(reference, state, tmp_path)
    assert same_logits(reference, state, tmp_path)


def test_the_first_bitnets_come_back(tmp_path: Path) -> None:
    """Later ones have another activation, which llama.cpp's files of the name do not say."""
    reference = Reference("bitnet")
    reference.record["config"] |= {"hidden_act": "silu", "tie_word_embeddings": True}
    state = random_state(reference.record["tensors"])
    del state["lm_head.weight"]
    exported_from(reference, state, tmp_path)
    assert same_logits(reference, state, tmp_path)


def test_buffers_that_old_checkpoints_have_stay_behind(tmp_path: Path) -> None:
    """A package of floats has the files as they are."""
    reference = Reference("llama")
    spare = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    exported_from(reference, random_state(reference.record["tensors"]) | spare, tmp_path)
    assert not any("inv_freq" in name for name in file_numbers(tmp_path / "it.gguf")[0])


@pytest.mark.parametrize("name", ["t5_v1_1", "kimi_linear", "mistral4_wrapped", "stablelm_parallel"])
def test_a_package_of_the_file_answers_as_the_first(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    exported_from(reference, random_state(reference.record["tensors"]), tmp_path)
    recipe = modelkit.Modelfile.parse(f"FROM {tmp_path / 'it.gguf'}")
    modelkit.create(recipe, name="again", home=tmp_path / "home")
    ids = [int(one) for one in reference.answers["ids"]]
    source = [] if reference.source is None else [int(one) for one in reference.source]
    found: list[np.ndarray] = []
    for one in ("it", "again"):
        with modelkit.load(one, home=tmp_path / "home") as model:
            found.append(np.array(model.logits(ids, source=source)))
    assert np.abs(found[0] - found[1]).max() < 1e-5 * found[0].std()


def one_by_one(reference: Reference) -> State:
    """The checkpoint with each expert in tensors of its own."""
    found: dict[str, np.ndarray] = {}
    for name, array in random_state(reference.record["tensors"]).items():
        home, _, leaf = name.rpartition(".")
        if not home.endswith(".experts"):
            found[name] = array
            continue
        halves = {"gate_up_proj": ("gate_proj", "up_proj")}.get(leaf, (leaf,))
        for place, one in enumerate(array):
            parts = zip(halves, np.split(one, len(halves)), strict=True)
            found |= {f"{home}.{place}.{part}.weight": np.ascontiguousarray(rows) for part, rows in parts}
    return found


def as_in_the_network(reference: Reference) -> State:
    """What the runtime calls its own tensors, in its own form."""
    arrays = {name: mx.array(one) for name, one in random_state(reference.record["tensors"]).items()}
    model = load_model(without_ids(reference.record["config"]), arrays)
    flat: Any = tree_flatten(model.network.parameters())
    return {name: np.array(array) for name, array in flat}


@pytest.mark.parametrize(
    ("spelling", "name"),
    [(one_by_one, name) for name in ("mixtral", "minimax_m2", "ernie4_5_moe", "nemotron_h", "qwen2_moe")]
    + [(as_in_the_network, name) for name in ("phi", "lfm2", "bamba", "gemma4_moe", "mimo_v2_flash")],
)
def test_other_spellings_of_one_checkpoint_give_the_same_file(
    spelling: Callable[[Reference], State], name: str, tmp_path: Path
) -> None:
    reference = Reference(name)
    states = {"published": random_state(reference.record["tensors"]), "other": spelling(reference)}
    assert states["published"].keys() != states["other"].keys()
    files = []
    for key, state in states.items():
        (tmp_path / key).mkdir()
        exported_from(reference, state, tmp_path / key)
        files.append(read_gguf(tmp_path / key / "it.gguf"))
    published, other = files
    assert published.tensors.keys() == other.tensors.keys()
    for one in published.tensors:
        np.testing.assert_array_equal(values(published, one), values(other, one), err_msg=one)


def without_ids(config: Mapping[str, Any]) -> dict[str, Any]:
    """Ids of tokens are those of a larger vocabulary. Tables of n-grams go by the end of a text."""
    needed = ("eos_token_id",) if config.get("ple_layer_ids") else ()
    return {
        key: without_ids(one) if isinstance(one, dict) else one
        for key, one in config.items()
        if key in needed or not key.endswith("_token_id")
    }
