"""Keys that a file leaves out, or says 0 for, mean what llama.cpp takes them for (by its logits, once)."""

from typing import Any

import pytest

from modelkit.errors import MalformedFile, UnsupportedSource
from tests.support.gguf_references import GgufReference, read


def _config(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """config.json of the reference's file with these keys of its architecture; None: without."""
    reference = GgufReference(name)
    prefix = reference.metadata["general.architecture"]
    metadata = {**reference.metadata, **{f"{prefix}.{key}": value for key, value in changes.items()}}
    told = {key: value for key, value in metadata.items() if value is not None}
    config = read(told, reference.shapes, reference.exported, "model.gguf").config
    return {**config, **config.get("rope_parameters", {})}


@pytest.mark.parametrize(
    ("name", "changes", "field", "meant"),
    [
        ("llama", {"rope.scaling.factor": 4.0}, "rope_type", "linear"),
        ("qwen3", {"rope.scale_linear": 4.0}, "factor", 4.0),
        ("llama", {"rope.scaling.type": "linear", "rope.scale_linear": 4.0}, "rope_type", "linear"),
        ("llama_yarn_rope", {"rope.scaling.type": None}, "rope_type", "linear"),
        ("llama", {"rope.scaling.factor": 0.0}, "rope_type", "default"),
        ("llama", {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, "rope_type", "default"),
        ("granite", {"attention.scale": None}, "attention_multiplier", 16**-0.5),
        ("granitemoe", {"attention.scale": 0.0}, "attention_multiplier", 16**-0.5),
        ("granite", {"embedding_scale": 0.0}, "embedding_multiplier", 1.0),
        ("granitemoehybrid", {"residual_scale": 0.0}, "residual_multiplier", 1.0),
        ("glm4_moe", {"expert_weights_scale": None}, "routed_scaling_factor", 1.0),
        ("deepseek_v3", {"expert_weights_scale": 0.0}, "routed_scaling_factor", 1.0),
        ("glm4_moe", {"expert_weights_norm": None}, "norm_topk_prob", False),
        ("cohere2_moe", {"expert_gating_func": None}, "expert_selection_fn", "sigmoid"),
        ("phi3_longrope", {"rope.scaling.attn_factor": None}, "attention_factor", 1.0),
        ("nemotron_h", {"attention.layer_norm_rms_epsilon": 0.25}, "layer_norm_epsilon", 0.25),
        ("ministral3", {"rope.scaling.yarn_log_multiplier": 2.0}, "mscale", 1.0),
    ],
)
def test_what_is_left_out_is_what_llama_cpp_takes(
    name: str, changes: dict[str, Any], field: str, meant: Any
) -> None:
    assert _config(name, changes).get(field) == meant


def test_windows_that_are_left_out_are_llama_cpps() -> None:
    config = _config("cohere2_moe", {"attention.sliding_window_pattern": None})
    assert [kind == "full_attention" for kind in config["layer_types"]] == [
        place % 4 == 0 for place in range(config["num_hidden_layers"])
    ]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama_llama3_rope", {"rope.scaling.factor": 4.0}),
        ("apertus", {"rope.freq_base": 0.0}),
        ("llama", {"rope.freq_base": float("nan")}),
        ("llama", {"attention.layer_norm_rms_epsilon": float("inf")}),
        ("gemma4", {"rope.dimension_count": 2}),
        ("gemma4", {"rope.dimension_count_swa": 2}),
        ("ministral3", {"rope.scaling.type": None}),
        ("llama", {"rope.scaling.type": "yarn"}),
        ("muse_glimmer", {"rope.scaling.factor": 4.0}),
        ("glm4_moe_lite", {"rope.scaling.factor": 4.0}),
    ],
)
def test_what_no_config_can_say_is_refused(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises((MalformedFile, UnsupportedSource), match=r"^model\.gguf: "):
        _config(name, changes)
