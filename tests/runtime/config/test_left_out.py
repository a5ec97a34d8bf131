"""What is taken for a field that a file leaves out is what transformers' class takes."""

from typing import Any

import pytest

from runtime.models.registry.described import whole_config
from tests.support.parity import Reference


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("cwm", "head_dim", 128),
        ("deepseek_v32", "max_position_embeddings", 163840),
        ("glm4_moe_lite", "q_lora_rank", 768),
        ("glm4_moe_lite", "v_head_dim", 256),
        ("glm_moe_dsa", "q_lora_rank", 2048),
        ("lfm2", "tie_word_embeddings", True),
        ("mistral3_mistral", "rms_norm_eps", 1e-6),
        ("qwen3", "head_dim", 128),
        ("seed_oss", "attention_bias", True),
    ],
)
def test_a_field_that_is_not_there(name: str, field: str, value: Any) -> None:
    config = Reference(name).record["config"]
    del config.get("text_config", config)[field]
    assert whole_config(config)[field] == value


def test_lfm2_may_say_by_another_name_that_its_head_is_tied() -> None:
    config = Reference("lfm2").record["config"] | {"tie_embedding": False}
    del config["tie_word_embeddings"]
    assert whole_config(config)["tie_word_embeddings"] is False
