"""What a class of mlx-lm is given of a config.json, and which fields and values stop it."""

from dataclasses import replace
from typing import Any

import pytest

from runtime.errors import UnsupportedModel
from runtime.models.foreign import KINDS
from runtime.models.foreign.fields import Count
from runtime.models.foreign.kinds import LAYERS
from runtime.models.foreign.rope import Ropes, read_rope
from tests.support.foreign import CONFIG, KIND

YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
SCALED = Ropes(types=("default", "linear", "yarn", "longrope"))


def _read(**fields: Any) -> dict[str, Any]:
    return KIND.read({**CONFIG, **fields})


def test_a_class_is_given_its_own_fields_alone_and_defaults_where_the_file_is_silent() -> None:
    values = _read(novel_flag=True, num_experts=4)
    assert values["block.rate"] == 1.0
    assert not {"novel_flag", "num_experts", "architectures"} & values.keys()


@pytest.mark.parametrize(
    "field",
    [
        {"vocab_size": 0},
        {"vocab_size": True},
        {"vocab_size": 1 << 40},
        {"vocab_size": "40"},
        {"vocab_size": None},
        {"span": 2.5},
        {"layer_types": ["full", "strange"]},
        {"layer_types": "full"},
        {"tie_word_embeddings": False},
        {"tie_word_embeddings": 1},
        {"hidden_act": "gelu"},
        {"block": {"rate": 0}},
        {"block": {"rate": float("nan")}},
        {"block": {"rate": True}},
        {"block": 3},
        {"is_causal": False},
        {"use_bidirectional_attention": True},
        {"final_logit_softcapping": 30.0},
        {"logit_scale": 2.0},
        {"n_group": 4},
        {"sliding_window": 8},
    ],
    ids=str,
)
def test_a_value_that_was_not_proven_is_refused_by_name(field: dict[str, Any]) -> None:
    (name,) = field
    with pytest.raises(UnsupportedModel, match=f"config.json: {name}"):
        _read(**field)


@pytest.mark.parametrize(
    "field",
    [
        {"is_causal": True},
        {"logit_scale": 1.0},
        {"n_group": 1},
        {"final_logit_softcapping": None},
        {"sliding_window": None},
        {"sliding_window": 8, "use_sliding_window": False},
        {"hidden_act": None},
    ],
    ids=str,
)
def test_a_value_that_changes_nothing_passes(field: dict[str, Any]) -> None:
    _read(**field)


def test_modules_are_counted_before_they_are_made() -> None:
    for kind in KINDS.values():
        (layers,) = kind.fields.keys() & {"num_hidden_layers", "n_layers", "n_layer"}
        field = kind.fields[layers]
        assert isinstance(field, Count)
        assert field.high <= LAYERS


def test_names_that_say_the_same_may_not_disagree() -> None:
    kind = replace(KIND, aliases={"d_model": "hidden_size"})
    bare = {name: value for name, value in CONFIG.items() if name != "hidden_size"}
    assert kind.read({**bare, "d_model": 32})["hidden_size"] == 32
    with pytest.raises(UnsupportedModel, match="hidden_size is 16, and d_model, its other name, 32"):
        kind.read({**CONFIG, "d_model": 32})


@pytest.mark.parametrize(
    "config",
    [
        {"rope_parameters": {**YARN, "rope_theta": 500.0}},
        {"rope_scaling": {**YARN, "rope_type": None, "type": "yarn"}, "rope_theta": 500.0},
        {"rope_scaling": YARN, "rope_theta": 500.0},
        {"rope_scaling": YARN, "rope_parameters": {**YARN, "rope_theta": 500.0}},
    ],
)
def test_both_spellings_are_one_block(config: dict[str, Any]) -> None:
    assert read_rope(config, SCALED, "it") == {**YARN, "rope_theta": 500.0}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "rope_scaling": YARN},
            "rope_scaling stands",
        ),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
        ({"rope_scaling": {"type": ["yarn"]}}, "rope_type is"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is None"),
        (
            {"rope_scaling": {**YARN, "original_max_position_embeddings": None}},
            "original_max_position_embeddings",
        ),
        ({"rope_scaling": {**YARN, "mscale": 1.0}}, "mscale is 1.0 in the block of a yarn rope"),
        ({"rope_scaling": {**YARN, "factor": "silu"}}, "factor is 'silu'"),
        ({"rope_scaling": {**YARN, "beta_fast": -0.5}}, "beta_fast is -0.5"),
        ({"rope_parameters": "yarn"}, "rope_parameters is 'yarn'"),
        ({"rope_theta": []}, "rope_theta is"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, and it turns whole heads"),
        ({"rope_scaling": {"type": "longrope", "long_factor": [1.0]}}, "short_factor is None"),
    ],
)
def test_a_rope_that_was_not_proven_is_refused_by_name(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        read_rope(config, SCALED, "it")


@pytest.mark.parametrize("share", [0, 1.5, 1e9, float("nan"), "half"])
def test_a_share_of_a_head_is_one(share: Any) -> None:
    with pytest.raises(UnsupportedModel, match="partial_rotary_factor"):
        read_rope({"partial_rotary_factor": share}, Ropes(share=0.5), "it")
