"""Corrections of the choice of experts count by their differences alone, however far below zero they are."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from runtime.loading.load import load_model
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, full_logits

FAMILIES = ["deepseek_v3", "dots1", "ernie4_5_moe", "exaone_moe", "glm4_moe", "minimax_m2", "solar_open"]


@pytest.mark.parametrize("by", [-3.0, 3.0])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_shift_of_all_changes_nothing(name: str, by: float, tmp_path: Path) -> None:
    reference = Reference(name)
    state = random_state(reference.record["tensors"])
    moved = {key: array + np.float32(by) for key, array in state.items() if "correction_bias" in key}
    assert moved
    path = tmp_path / "model.safetensors"
    save_file({**state, **moved}, path)
    model = load_model(reference.record["config"], [path])
    assert reference.error(full_logits(model, reference.answers["ids"])) < 1e-4
