"""Configs in both spellings say what they said: to our own reader, and twice the same."""

from typing import Any

import pytest

from modelkit.pack.planning.spelling import both_spellings
from runtime.models import describe
from tests.support.checkpoints import legacy_config
from tests.support.parity import Reference

Config = dict[str, Any]
TEXT = {"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4}
YARN = {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "original_max_position_embeddings": 64}


def config_of(name: str) -> Config:
    return Reference(name).record["config"]


@pytest.mark.parametrize("name", Reference.names())
def test_the_same_model_is_read(name: str) -> None:
    config = config_of(name)
    assert describe(both_spellings(config)).config == describe(config).config


@pytest.mark.parametrize("name", Reference.names())
def test_what_has_both_spellings_stays(name: str) -> None:
    config = both_spellings(config_of(name))
    assert both_spellings(config) == config


@pytest.mark.parametrize("name", Reference.names())
def test_nothing_is_taken_away(name: str) -> None:
    before, after = config_of(name), both_spellings(config_of(name))
    assert before.keys() <= after.keys()
    respelled = {"layer_types", "sliding_window_pattern", "text_config"}
    assert all(after[key] == before[key] for key in before.keys() - respelled)


@pytest.mark.parametrize("name", ["llama", "qwen3_moe", "glm4_moe", "llama_yarn_rope", "cohere2"])
def test_what_is_added_is_what_older_files_have(name: str) -> None:
    """The older names alone, as in a file from before, give the same model again."""
    config = both_spellings(config_of(name))
    old = {key: value for key, value in config.items() if key not in ("rope_parameters", "dtype")}
    assert describe(old).config == describe(legacy_config(config_of(name))).config


def test_a_file_of_old_is_left_as_it_is() -> None:
    old = {
        **TEXT,
        "torch_dtype": "bfloat16",
        "rope_theta": 1e6,
        "rope_scaling": {"type": "linear", "factor": 2.0},
    }
    assert both_spellings(old) == old


def test_a_scaled_rope_is_whole_under_its_older_name() -> None:
    """transformers takes `rope_scaling` for the whole block when it is there."""
    config = both_spellings({**TEXT, "rope_parameters": YARN})
    assert config["rope_theta"] == 5e5
    assert config["rope_scaling"] == {**YARN, "type": "yarn"}


@pytest.mark.parametrize(
    "own",
    [
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_theta": 1e4},
        {"partial_rotary_factor": 0.5},
    ],
)
def test_older_names_that_say_something_else_are_left_alone(own: Config) -> None:
    config = {**TEXT, "rope_parameters": YARN, **own}
    assert both_spellings(config) == config


def test_bases_by_layer_type() -> None:
    config = both_spellings(config_of("gemma3_text"))
    ropes = config["rope_parameters"]
    assert config["rope_theta"] == ropes["full_attention"]["rope_theta"]
    assert config["rope_local_base_freq"] == ropes["sliding_attention"]["rope_theta"]
    assert config["rope_scaling"]["factor"] == ropes["full_attention"]["factor"]


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("qwen3_moe", {"num_experts": 8}),
        ("mellum", {"num_experts": 8}),
        ("exaone_moe", {"is_moe_layer": [False, True, True, True], "rope_theta": 10000.0}),
        ("gpt2", {"n_ctx": 256}),
        ("gpt_neox", {"rotary_pct": 0.5}),
        ("gemma4_text", {"global_head_dim": 32}),
        ("minimax_m2", {"rotary_dim": 16, "shared_intermediate_size": 0}),
        ("granitemoehybrid", {"layer_types": ["mamba", "attention", "mamba"]}),
        ("exaone4", {"sliding_window_pattern": "LLG"}),
        ("exaone4_full", {"rope_scaling": None, "head_dim": 16}),
        ("kimi_linear", {"num_experts_per_token": 3}),
        ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1, 1], "n_shared_experts": None}),
    ],
)
def test_fields_that_families_renamed(name: str, added: Config) -> None:
    config = both_spellings(config_of(name))
    assert {key: config[key] for key in added} == added


def test_the_text_tower_of_a_wrapper_is_spelled_too() -> None:
    config = config_of("qwen3_vl")
    text = both_spellings(config)["text_config"]
    assert text["rope_theta"] == config["text_config"]["rope_parameters"]["rope_theta"]
    assert text["tie_word_embeddings"] == config["tie_word_embeddings"]


@pytest.mark.parametrize("broken", [{"rope_parameters": "x"}, {"rope_parameters": []}, {"dtype": 3}])
def test_what_is_no_config_is_for_others_to_refuse(broken: Config) -> None:
    assert both_spellings({**TEXT, **broken}) == {**TEXT, **broken}
