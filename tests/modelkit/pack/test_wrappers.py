"""Whatever a wrapper calls the block of its text model, every reader finds the same model in it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import PlanError
from modelkit.pack.draft import check_rows
from modelkit.pack.mlx_lm.limits import limits
from modelkit.pack.mlx_lm.mutable_folder import MutableFolder
from modelkit.pack.mlx_lm.names import text_alone
from modelkit.pack.planning.config import converted_config
from modelkit.pack.planning.families import request_for
from modelkit.pack.planning.heads import in_head
from modelkit.pack.planning.spelling import both_spellings
from modelkit.source.claims import claimed_method, quantization_blocks
from modelkit.tokenizer import Tokenizer, load_tokenizer
from runtime.config.text import TEXT_BLOCKS, levels, text_config
from runtime.errors import UnsupportedModel
from runtime.models import describe
from runtime.quant import find_format
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer

Config = Mapping[str, Any]
TEXT: dict[str, Any] = {
    "model_type": "ministral3",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 8,
    "mlp_only_layers": [1],
    "eos_token_id": 7,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "FP8"},
}
WRAPPER: dict[str, Any] = {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3"}


def _row(name: str) -> Any:
    row = find_format(name)
    assert row is not None
    return row


def _tokenizer(folder: Path, tokens: int = 96) -> Tokenizer:
    folder.mkdir()
    write_tokenizer(folder, tokens=tokens)
    return load_tokenizer({path.name: path for path in folder.iterdir()})


def _embeds_too_few(config: Config, folder: Path) -> str:
    with pytest.raises(PlanError) as refused:
        check_rows(config, _tokenizer(folder, tokens=128), "it")
    return refused.value.message


def _refused(config: Config) -> str:
    (_, _), (block, inner) = levels(config)
    with pytest.raises(UnsupportedModel) as refused:
        describe({**config, block: {**inner, "is_causal": False}})
    return str(refused.value)


def _behind(config: Config, layer: int) -> bool:
    """As of a family with draft heads behind its last layer."""
    named = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
    return in_head({**config, **named})(f"model.layers.{layer}.norm.weight")


READERS: dict[str, Callable[[Config, Path], Any]] = {
    "shape": lambda config, _: [
        getattr(describe(config), n) for n in ("vocab_size", "hidden_size", "layout")
    ],
    "what it refuses": lambda config, _: _refused(config),
    "vocabulary": _embeds_too_few,
    "head": lambda config, _: [_behind(config, i) for i in range(5)],
    "facts of rows": lambda config, _: request_for(_row("q4"), config),
    "end ids": lambda config, folder: sorted(_tokenizer(folder).eos_ids(None, config)),
    "method": lambda config, _: claimed_method(config),
    "blocks": lambda config, _: [dict(block) for _, block in quantization_blocks(config)],
    "what is written": lambda config, _: text_config(converted_config(config, (), _row("f32"))),
    "older names": lambda config, _: text_config(both_spellings(config)),
    "limits": lambda config, _: limits(config, ()),
}


@pytest.mark.parametrize("block", TEXT_BLOCKS)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_finds_the_same_text_model(reader: str, block: str, tmp_path: Path) -> None:
    ask, (usual, *_) = READERS[reader], TEXT_BLOCKS
    (tmp_path / "usual").mkdir()
    (tmp_path / "this").mkdir()
    found = ask({**WRAPPER, block: TEXT}, tmp_path / "this" / "it")
    assert found == ask({**WRAPPER, usual: TEXT}, tmp_path / "usual" / "it")


@pytest.mark.parametrize("block", TEXT_BLOCKS)
def test_what_they_find_is_in_the_block(block: str, tmp_path: Path) -> None:
    config = {**WRAPPER, block: TEXT}
    assert describe(config).vocab_size == 96
    assert _behind(config, 3)
    assert not _behind(config, 2)
    assert request_for(_row("q4"), config).layers == 3
    assert 7 in _tokenizer(tmp_path / "it").eos_ids(None, config)
    assert claimed_method(config) == "fp8"
    assert "quantization_config" not in converted_config(config, (), _row("q4"))[block]


@pytest.mark.parametrize("block", TEXT_BLOCKS)
def test_a_nemotron_wrapper_checks_its_vocabulary(block: str, tmp_path: Path) -> None:
    config = {"architectures": ["NemotronH_Nano_VL_V2"], block: {**TEXT, "model_type": "nemotron_h"}}
    with pytest.raises(PlanError, match="embeds 96 ids"):
        check_rows(config, _tokenizer(tmp_path / "it", tokens=128), "it")


def test_of_two_blocks_the_first_name_counts_everywhere() -> None:
    other = {**TEXT, "vocab_size": 12, "num_hidden_layers": 1, "quantization_config": {"quant_method": "awq"}}
    config = {**WRAPPER, TEXT_BLOCKS[1]: other, TEXT_BLOCKS[0]: TEXT}
    assert [name for name, _ in levels(config)] == ["", TEXT_BLOCKS[0]]
    assert describe(config).vocab_size == text_config(config)["vocab_size"] == 96
    assert claimed_method(config) == "fp8"


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_what_is_no_block_is_no_text_model(value: object) -> None:
    config = {**TEXT, "text_config": value}
    assert [name for name, _ in levels(config)] == [""]
    assert text_config(config)["vocab_size"] == 96


def test_a_block_around_the_text_models_is_read_and_written_too(tmp_path: Path) -> None:
    """As Qwen's omni models have it."""
    thinker = {"text_config": TEXT, "dtype": "bfloat16", "quantization_config": {"quant_method": "awq"}}
    config = {"model_type": "qwen3_omni_moe", "thinker_config": thinker, "talker_config": {"text_config": {}}}
    assert [name for name, _ in levels(config)] == ["", "thinker_config", "thinker_config.text_config"]
    assert text_config(config)["vocab_size"] == 96
    assert 7 in _tokenizer(tmp_path / "it").eos_ids(None, config)
    assert claimed_method(config) == "awq"
    written = converted_config(config, (), _row("f32"))
    for _, level in levels(written)[1:]:
        assert (level["dtype"], "quantization_config" in level) == ("float32", False)
    assert both_spellings(config)["thinker_config"]["text_config"]["torch_dtype"] == "bfloat16"


def test_a_block_around_nothing_is_no_level() -> None:
    assert [name for name, _ in levels({"thinker_config": {"vision_config": {}}})] == [""]


def test_a_text_model_by_itself_has_the_older_names_of_its_own_family() -> None:
    """Inside a wrapper its block may have a name of the wrapper's, for which there are none."""
    record = Reference("qwen3_moe").record["config"]
    block = {**record, "model_type": "qwen3_omni_moe_text"}
    block.pop("num_experts", None)
    folder = MutableFolder({"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": block}}, {})
    assert text_alone(folder) == "as qwen3_moe alone"
    assert folder.config["num_experts"] == record["num_local_experts"]
