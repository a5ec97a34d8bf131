"""What `export` says about mlx-lm is what was found: nothing missing, nothing said in vain."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from modelkit.pack.mlx_lm.limits import UNKNOWN, limits, sentences
from runtime.models import ARCHITECTURES
from tests.support.export_table import OUTCOMES, PAGE, measure, page, reasons
from tests.support.parity import Reference

FOUND: dict[str, dict[str, Any]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
NAMES = [name for name in Reference.names() if name in FOUND]


def test_every_family_was_tried() -> None:
    families = {Reference(name).record["config"]["model_type"] for name in Reference.names()}
    assert families == {Reference(name).record["config"]["model_type"] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_reason_is_said_where_mlx_lm_is_not_right_and_nowhere_else(name: str) -> None:
    said = reasons(name, FOUND[name])
    if FOUND[name]["outcome"] == "right":
        assert all(row.risk for row in said)
    else:
        assert said


def test_the_page_is_what_was_found() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(FOUND), "run python -m tests.support.export_table"


def test_a_sentence_names_the_family_and_the_reason() -> None:
    config = {"model_type": "olmoe", "clip_qkv": 8.0}
    (text,) = sentences(config, limits(config, ()))
    assert text == "mlx-lm 0.32.2 does not compute this olmoe as it is: it leaves out clip_qkv"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"sliding_window": None}, False),
        ({"sliding_window": 4096}, False),  # as long as the context
        ({"layer_types": ["full_attention"] * 4}, False),
        ({"layer_types": ["full_attention", "sliding_attention"]}, True),
    ],
)
def test_a_window_counts_where_text_can_pass_it(change: dict[str, Any], expected: bool) -> None:
    config = {"model_type": "mistral", "sliding_window": 512, "max_position_embeddings": 4096, **change}
    assert bool(limits(config, ())) is expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama", "hidden_act": "silu"}, False),
        ({"model_type": "llama", "hidden_act": "gelu"}, True),
        ({"model_type": "nemotron", "hidden_act": "silu"}, False),  # its class looks
        ({"model_type": "seed_oss", "tie_word_embeddings": True}, False),
        ({"model_type": "seed_oss", "tie_word_embeddings": True, "quantization": {}}, True),
        ({"model_type": "gpt_oss", "quantization": {}}, False),
    ],
)
def test_what_no_reference_has(config: dict[str, Any], expected: bool) -> None:
    assert bool(limits(config, ())) is expected


@pytest.mark.parametrize("kind", ["cohere2", "gemma", "gemma2", "gemma3n", "lfm2"])
def test_a_head_of_its_own_has_no_place_in_some_classes(kind: str) -> None:
    assert limits({"model_type": kind}, ["lm_head.weight"])
    assert not limits({"model_type": kind}, ["model.embed_tokens.weight"])


def test_one_packed_matrix_of_shared_experts_is_enough() -> None:
    """Others may be too narrow for the format."""
    assert limits({"model_type": "kimi_linear"}, ["layers.1.block_sparse_moe.shared_experts.up_proj.scales"])


def test_a_wrapper_is_judged_by_its_text_tower_too() -> None:
    text = {"model_type": "ministral3", "sliding_window": 512}
    assert limits({"model_type": "mistral3", "text_config": text}, ())


@pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")
@pytest.mark.filterwarnings("ignore")
def test_types_that_mlx_lm_has_not() -> None:
    import mlx_lm.models  # pyright: ignore
    from mlx_lm.utils import MODEL_REMAPPING  # pyright: ignore

    files = {file.stem for place in mlx_lm.models.__path__ for file in Path(place).glob("*.py")}
    types = {name for name in ARCHITECTURES if name[0].islower() and name != "xLSTMForCausalLM"}
    types |= {"PanguEmbedded", "Yi"}
    assert {name for name in types if MODEL_REMAPPING.get(name, name) not in files} == UNKNOWN


@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("mlx_lm", "torch", "transformers")),
    reason="mlx-lm, torch or transformers are not installed",
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gemma3_text", "glm4", "llama_yarn_rope", "qwen3_moe", "starcoder2"])
def test_the_outcome_is_as_stored(name: str, tmp_path: Path) -> None:
    assert measure(name, tmp_path)["outcome"] == FOUND[name]["outcome"]
