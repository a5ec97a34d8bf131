"""Packages of BitNet's files: kept byte by byte, run as transformers runs them, and never rounded again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from modelkit.errors import ModelkitError
from tests.runtime.models.test_bitnet import FORMS, config_of, loaded, state_of
from tests.support.code_folders import IDS, apart, create, logits, write
from tests.support.parity import full_logits
from tests.support.peft_folders import pair_for, peft_tensors, write_peft


def folder_of(root: Path, form: str, **more: Any) -> Path:
    return write(root / "ternary", {**config_of(form), "eos_token_id": None, **more}, state_of(form))


@pytest.mark.parametrize("form", FORMS)
def test_a_package_answers_as_its_files(tmp_path: Path, form: str) -> None:
    folder = folder_of(tmp_path, form)
    create(folder)
    wanted = full_logits(loaded(tmp_path, form), np.array(IDS))
    assert apart(logits(folder), wanted) < 5e-6
    with modelkit.load(str(folder)) as model:
        assert apart(model.logits(IDS), wanted) < 5e-6


def test_ternary_weights_take_no_format_and_no_adapter(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "times")
    with pytest.raises(ModelkitError, match="quantized already"):
        create(folder, quantize="q4")
    name = "model.layers.0.mlp.up_proj.weight"
    pair = pair_for(name, state_of("trained")[name].shape, 3, input_first=False)
    write_peft(tmp_path / "lora", peft_tensors(name, *pair))
    (tmp_path / "ternary.modelfile").write_text("FROM ./ternary\nADAPTER ./lora\n", encoding="utf-8")
    with pytest.raises(ModelkitError, match="BitNet's projections"):
        create(folder)
