"""Every family goes the whole way: Modelfile, package in q8, load, text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from tests.support.checkpoints import write_checkpoint
from tests.support.kinds import variants_later
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer

# 8 bits cost a random network about this much of the spread of its logits, on average over tokens and ids;
# one whose experts are chosen otherwise may lose more.
TOLERANCE = 0.25


@pytest.mark.parametrize("name", variants_later(Reference.names()))
def test_from_modelfile_to_text(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    config = _without_eos(reference.record["config"])
    folder = write_checkpoint(tmp_path / "model", config, reference.record["tensors"])
    write_tokenizer(folder, tokens=128)
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", quantize="q8", home=tmp_path)
    with modelkit.load("it", home=tmp_path) as model:
        ids = [int(token) for token in reference.answers["ids"]]
        source = [] if reference.source is None else [int(token) for token in reference.source]
        got = model.logits(ids, source=source)[:, reference.answers["columns"]]
        difference = np.abs(got - reference.answers["logits"]).mean() / reference.answers["std"]
        assert difference < TOLERANCE
        answer = model.generate(ids[:8], num_predict=6, seed=1)
        assert len(answer.ids) == 6
        assert answer.reason == "length"


def _without_eos(config: dict[str, Any]) -> dict[str, Any]:
    """Some tiny configs keep their family's real end ids, which a vocabulary of 160 does not have. Tables of
    n-grams go by the end of a text.
    """
    spare = () if config.get("ple_layer_ids") else ("eos_token_id",)
    kept = {key: value for key, value in config.items() if key not in spare}
    return {key: _without_eos(value) if isinstance(value, dict) else value for key, value in kept.items()}
