"""Nothing that a config.json can hold ends in a traceback, in all memory, or in a page of text.

Every field of every family takes values it should never have. What is accepted must be buildable; what is
not is refused in a sentence.
"""

import math
import zlib
from pathlib import Path
from typing import Any

import pytest

from runtime import models
from runtime.errors import UnsupportedModel
from runtime.models import describe
from runtime.models.registry.names import module_name
from tests.support.field_answers import FieldAnswers
from tests.support.hostile_values import VALUES, names_in, places, put
from tests.support.parity import Reference

FAMILIES = Path(str(models.__file__)).parent
FIELDS_OF_DECODERS = FAMILIES.parent / "config" / "decoder.py"
LONGEST = 450
SHARE = 4  # each field takes every fourth value, others in each family


@pytest.mark.parametrize("name", FieldAnswers.names())
def test_every_field_with_values_it_should_not_have(name: str) -> None:
    """Fields that the config has, and names that the family's file speaks of."""
    base = Reference.called(name).record["config"]
    described, turn = describe(base), zlib.crc32(name.encode())
    family = FAMILIES / f"{module_name(base)}.py"
    inner = ("text_config",) if "text_config" in base else ()
    readers = (family, family.with_name(f"{family.stem}_config.py"), FIELDS_OF_DECODERS)
    named = {"rope_scaling", "is_causal"}.union(*(names_in(file) for file in readers if file.exists()))
    for path in [*places(base), *((*inner, word) for word in sorted(named))]:
        turn += 1
        for value in VALUES[turn % SHARE :: SHARE]:
            _works_or_is_refused(put(base, path, value), described.config)


def _works_or_is_refused(config: dict[str, Any], parsed: Any) -> None:
    said = ""
    try:
        described = describe(config)
        if described.config != parsed:
            described.family.build(described.config)
    except UnsupportedModel as refusal:
        said = str(refusal)
    assert len(said) <= LONGEST, said


def _rope(**fields: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **fields}}


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"rope_parameters": "default"}, "rope_parameters is 'default'"),
    ("llama", {"rope_parameters": []}, r"rope_parameters is \[\]"),
    ("llama", {"rope_parameters": 4}, "rope_parameters is 4"),
    ("llama", {"rope_scaling": ["yarn"]}, "rope_scaling is"),
    ("llama", _rope(rope_theta=True), r"rope_parameters\.rope_theta is True"),
    ("llama", _rope(rope_theta=1e-300), r"rope_parameters\.rope_theta is 1e-300"),
    ("llama", _rope(rope_theta=math.nan), r"rope_parameters\.rope_theta is nan"),
    ("llama", _rope(rope_type=3), r"rope_parameters\.rope_type is 3"),
    ("llama", {"rope_theta": [], "rope_parameters": None}, r"rope_theta is \[\]"),
    ("gpt_oss", _rope(**YARN, truncate="x"), r"rope_parameters\.truncate is 'x'"),
    ("gpt_oss", _rope(**{**YARN, "factor": []}), r"rope_parameters\.factor is \[\]"),
    ("gpt_oss", _rope(**{**YARN, "factor": False}), r"rope_parameters\.factor is False"),
    ("gpt_oss", _rope(**YARN, beta_fast=-0.5), r"rope_parameters\.beta_fast is -0\.5"),
    ("gpt_oss", _rope(**YARN, mscale="silu"), r"rope_parameters\.mscale is 'silu'"),
    ("gemma3_text", {"rope_parameters": {"full_attention": "x"}}, r"rope_parameters\.full_attention is 'x'"),
    (
        "gemma3_text",
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": "8"}}},
        r"rope_parameters\.full_attention\.factor is '8'",
    ),
    ("qwen3_5", _rope(partial_rotary_factor=1e9), r"rope_parameters\.partial_rotary_factor is 1000000000"),
    ("glm4_moe", _rope(partial_rotary_factor=1.5), r"rope_parameters\.partial_rotary_factor is 1\.5"),
    (
        "llama_yarn_rope",
        {"rope_scaling": {"type": "linear", "factor": 2.0}, "partial_rotary_factor": math.nan},
        "partial_rotary_factor is nan",
    ),
    ("phi3_window", _rope(partial_rotary_factor=math.nan), r"partial_rotary_factor is nan"),
    ("gemma4_text", {"rope_parameters": {"full_attention": {"partial_rotary_factor": -1}}}, "is -1"),
    (
        "glm4",
        {"rope_parameters": None, "partial_rotary_factor": None},
        "partial_rotary_factor is None, expected a number; without the field it is 0.5",
    ),
    ("granite", {"logits_scaling": 1e-300}, "logits_scaling is 1e-300"),
    ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
    ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq is 2, expected 1$"),
    ("granitemoehybrid", {"logits_scaling": 0}, "logits_scaling is 0"),
    ("falcon_h1", {"ssm_in_multiplier": 1e9}, "ssm_in_multiplier is 1000000000"),
    ("llama", {"model_type": 5}, "model_type is 5"),
    ("granite", {"is_causal": False}, "is_causal is False"),
    ("llama", {"is_causal": 0}, "is_causal is 0"),
    ("qwen3", {"layer_types": ["full_attention"] * 1_000_000}, "more than 131072 entries"),
    ("mixtral", {"num_experts": 3}, "num_experts is 3 and num_local_experts is 4"),
    (
        "llama",
        {"rope_parameters": {"full_attention": dict(YARN)}},
        r"rope_parameters\.full_attention is a bl",
    ),
    ("gemma3_text", {"rope_parameters": dict(YARN)}, "a block for each of full_attention and sliding"),
    (
        "olmo3",
        {"rope_parameters": None, "rope_scaling": {"type": "yarn", "factor": 4.0}},
        "rope_scaling.type",
    ),
    ("qwen3", {"rope_parameters": {"rope_theta": 1e6}, "rope_scaling": dict(YARN)}, "gives rope_theta"),
]


@pytest.mark.parametrize(("name", "change", "words"), REFUSED, ids=lambda part: str(part)[:60])
def test_refused_by_the_whole_name_of_the_field(name: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words) as refusal:
        describe({**Reference.called(name).record["config"], **change})
    assert len(str(refusal.value)) <= LONGEST


def test_a_rope_scaling_that_only_repeats_is_no_reason_to_refuse() -> None:
    config = Reference("cohere2_moe").record["config"]
    repeated = {**config["rope_parameters"], "type": "default"}
    assert describe({**config, "rope_scaling": repeated}) == describe(config)
    full = Reference("gemma4_text").record["config"]
    again = {**full, "rope_scaling": full["rope_parameters"]["full_attention"]}
    assert describe(again).config == describe(full).config


def test_a_nest_without_a_bottom() -> None:
    nest: dict[str, Any] = {}
    for _ in range(100_000):
        nest = {"rope_parameters": nest}
    with pytest.raises(UnsupportedModel, match="nested more than"):
        describe({**Reference("llama").record["config"], "rope_parameters": nest})


def test_rotation_told_by_the_wrapper_alone() -> None:
    config = Reference("mistral3").record["config"]
    inner = {key: value for key, value in config["text_config"].items() if key != "rope_parameters"}
    with pytest.raises(UnsupportedModel, match="rope_scaling stands beside text_config"):
        describe({**config, "text_config": inner, "rope_scaling": YARN})
