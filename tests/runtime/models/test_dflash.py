"""Block drafts compute what their definition says, and refuse what they would compute wrongly."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.errors import UnsupportedModel
from runtime.loading.forecast import check_weights
from runtime.models import describe
from runtime.step import Inputs, Step
from runtime.trunks.taps import Taps, taps_of
from tests.support.checkpoints import random_state
from tests.support.dflash import block_config, block_shapes, block_states, load_block_draft
from tests.support.parity import Reference, described

MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9}
LAGUNA = {"architectures": ["DFlashLagunaForCausalLM"]}
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "biased": {"attention_bias": True},
    "causal": {"causal": True},
    "mixed": MIXED,
    "both ways in a window": {**MIXED, "causal": False},
    "window beside": {"use_swa": True, "swa_window_size": 7, "sliding_window": None},
    "laguna": {**LAGUNA, **MIXED, "gating": "per-head", "causal": True},
    "laguna by number": {**LAGUNA, "gating": "per-element"},
}
TOKENS, BLOCK = 21, 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_what_the_definition_says(kind: str, tmp_path: Path) -> None:
    """In rows of different length, what they read cut into steps of any width."""
    config = block_config(**KINDS[kind])
    draft = load_block_draft(tmp_path, config)
    state = {name: x.astype(np.float64) for name, x in random_state(block_shapes(config)).items()}
    rng = np.random.default_rng(2)
    states = rng.standard_normal((2, TOKENS, 192)).astype(np.float32)
    embedded = rng.standard_normal((2, BLOCK, 64)).astype(np.float32)
    memory, at = build_memory(draft.described.layout, rows=2, slack=6), (0, 0)
    for counts in ((3, 1), (1, 1), (13, 2), (4, 3)):
        part = np.zeros((2, max(counts), 192), np.float32)
        for row, (start, count) in enumerate(zip(at, counts, strict=True)):
            part[row, :count] = states[row, start : start + count]
        step = Step(at, counts, inputs=Inputs(embeddings=mx.array(part)))
        memory.prepare(step)
        draft.network.read(step, memory)
        memory.commit(step, counts)
        at = at[0] + counts[0], at[1] + counts[1]
    inputs = Inputs(embeddings=mx.array(embedded))
    draft.network(Step(at, (BLOCK, BLOCK), inputs=inputs), memory)  # leaves no trace
    got = draft.network(Step(at, (BLOCK, BLOCK), inputs=inputs), memory)
    for row, length in enumerate(at):
        wanted = block_states(config, state, states[row, :length], embedded[row])
        assert np.abs(np.array(got[row]) - wanted).max() < 1e-4 * wanted.std()


def test_a_fused_file_and_one_under_a_prefix_pass_the_check_of_create() -> None:
    for config in (block_config(), block_config(**LAGUNA)):
        shapes = block_shapes(config)
        for prefix in ("", "model."):
            stored = {prefix + name: ("F32", shape) for name, shape in shapes.items()}
            assert check_weights(config, stored) == []


def test_first_files_do_not_list_the_layers_that_they_read() -> None:
    config = block_config(num_hidden_layers=5, num_target_layers=36)
    del config["dflash_config"]["target_layer_ids"]
    assert describe(config).config.target_layers == (1, 9, 17, 25, 33)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mask_token_id": None}, "mask_token_id is None"),
        ({"target_layer_ids": ["last"]}, "target_layer_ids should list layers"),
        ({"block_size": 10, **MIXED}, "block_size is 10, expected a whole number from 2 to 9"),
        ({"target_hidden_size": 32}, "target_hidden_size is 32 and hidden_size 64"),
        ({**LAGUNA, "gating": "disabled"}, "gating is 'disabled'"),
        ({"layer_types": ["sliding_attention"] * 2}, "sliding_window is None"),
        ({"is_causal": "no"}, "is_causal is 'no'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_be_computed_wrongly_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModel, match=said):
        describe(block_config(**changes))


def test_kin_that_compute_more_are_refused() -> None:
    config = block_config()
    config["dflash_config"]["selector_rank"] = 256
    with pytest.raises(UnsupportedModel, match=r"dflash_config\.selector_rank is 256"):
        describe(config)


def tappable(name: str) -> bool:
    return taps_of(described(name).family.build(described(name).config)) is not None


@pytest.mark.parametrize("name", [name for name in Reference.names() if tappable(name)])
def test_what_is_tapped_behind_the_last_layer_is_normed_as_the_answer_is(name: str) -> None:
    reference = Reference(name)
    model = reference.made()
    assert isinstance(model.network.model, Taps)
    trunk: Any = model.network.model
    last = len(trunk[trunk.in_turn]) - 1
    ids = mx.array(reference.answers["ids"][:6])[None]
    untapped, step = model.network(*fresh(model, ids)), fresh(model, ids)
    trunk.tap((0, last))
    hidden = model.network(*step)
    tapped = trunk.tapped(step[0], (0, last))
    width = model.described.hidden_size
    assert tapped.shape == (1, 6, 2 * width)
    assert mx.array_equal(tapped[..., width:], hidden)
    assert mx.array_equal(untapped, hidden)


def fresh(model: Any, ids: mx.array) -> tuple[Step, Any]:
    step, memory = Step((0,), (6,), inputs=Inputs(ids)), build_memory(model.described.layout)
    memory.prepare(step)
    return step, memory
