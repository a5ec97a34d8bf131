"""A draft head has a file of its own wherever weights are written anew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelkit.pack.build import Created
from modelkit.pack.planning.heads import FILE, in_head
from modelkit.store.name import Name
from modelkit.store.store import Store
from runtime.loading.load import load_model
from tests.support.checkpoints import write_checkpoint
from tests.support.heads import HeadReference

Make = Callable[..., Created]


@pytest.mark.parametrize(
    ("family", "name", "expected"),
    [
        ("qwen3_5", "mtp.fc.weight", True),
        ("mimo_v2_flash", "model.mtp.layers.0.input_layernorm.weight", True),
        ("ernie4_5_moe", "model.mtp_linear_proj.0.weight", True),
        ("deepseek_v3", "model.layers.4.eh_proj.weight", True),
        ("glm4_moe", "model.language_model.layers.5.eh_proj.weight", True),
        ("hy_v3", "model.layers.4.eh_proj.weight", True),
        ("deepseek_v3", "model.layers.3.mlp.up_proj.weight", False),
        ("deepseek_v3", "vision_tower.layers.9.mlp.up_proj.weight", False),
        ("qwen3_5", "lm_head.weight", False),
        ("llama", "mtp.fc.weight", False),
        ("llama", "model.layers.4.mlp.up_proj.weight", False),
    ],
)
def test_heads_are_told_by_name(family: str, name: str, expected: bool) -> None:
    named = {"model_type": family}
    assert in_head({**named, "num_hidden_layers": 4})(name) is expected
    assert in_head({**named, "text_config": {"num_hidden_layers": 4}})(name) is expected


def test_without_a_count_of_layers_none_is_past_it() -> None:
    assert not in_head({"model_type": "deepseek_v3"})("model.layers.40.mlp.up_proj.weight")


def plain(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "eos_token_id"}


@pytest.mark.parametrize("name", ["qwen3_5", "glm4_moe"])
def test_mlx_lm_sees_the_target_alone_and_we_see_both(
    name: str, make: Make, store: Store, tmp_path: Path, write_tokenizer: Callable[[Path, int], None]
) -> None:
    reference = HeadReference(name)
    folder = write_checkpoint(
        tmp_path / "target", plain(reference.record["config"]), reference.record["tensors"]
    )
    write_tokenizer(folder, 160)
    make("FROM ./target", quantize="q8")
    files = store.resolve(Name.parse("story")).files
    assert {path for path in files if path.endswith(".safetensors")} == {"model.safetensors", FILE}
    placed = json.loads(files["model.safetensors.index.json"].read_bytes())["weight_map"]
    config = json.loads(files["config.json"].read_bytes())
    assert {place for tensor, place in placed.items() if in_head(config)(tensor)} == {FILE}
    both = load_model(config, [files["model.safetensors"], files[FILE]], with_head=True)
    assert both.head is not None
    assert load_model(config, [files["model.safetensors"]], with_head=True).head is None
