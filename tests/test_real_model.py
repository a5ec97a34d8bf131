"""A real trained model, from Modelfile to text, against references computed elsewhere."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> Path:
    return shared_data / "stories260k"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, stories: Path, shared_data: Path) -> Path:
    """A store with the model as it is, with its draft, and quantized."""
    root = tmp_path_factory.mktemp("stories")
    for name, lines, formats in (
        ("plain", "", {}),
        ("pair", f"DRAFT {shared_data / 'stories260k-draft'}\n", {"quantize_draft": "q4"}),
        ("small", "", {"quantize": "q8"}),
    ):
        (root / "Modelfile").write_text(f"FROM {stories}\n{lines}", encoding="utf-8")
        modelkit.create(root / "Modelfile", name=name, home=root, **formats)
    return root


@pytest.fixture(scope="module")
def references(stories: Path) -> list[dict[str, Any]]:
    return json.loads((stories / "ref_greedy.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["plain", "pair"])
def test_greedy_text_is_the_reference(name: str, home: Path, references: list[dict[str, Any]]) -> None:
    with modelkit.load(name, home=home) as model:
        for reference in references:
            got = model.generate(
                reference["prompt"], raw=True, temperature=0, num_predict=len(reference["greedy_ids"])
            )
            assert model.encode(reference["prompt"]) == reference["prompt_ids"]
            assert list(got.ids) == reference["greedy_ids"]


def test_logits_are_the_reference(home: Path, stories: Path) -> None:
    with modelkit.load("plain", home=home) as model, np.load(stories / "ref_logits.npz") as wanted:
        for number in range(8):
            ids = [int(token) for token in wanted[f"ids_{number}"].reshape(-1)]
            reference = wanted[f"logits_{number}"].reshape(-1, 512)
            got = model.logits(ids)[: len(reference)]
            assert np.abs(got - reference).max() < 1e-4 * reference.std()


def test_quantized_to_8_bits_it_says_nearly_the_same(home: Path, stories: Path) -> None:
    with modelkit.load("small", home=home) as model, np.load(stories / "ref_logits.npz") as wanted:
        ids = [int(token) for token in wanted["ids_0"].reshape(-1)]
        reference = wanted["logits_0"].reshape(-1, 512)
        got = model.logits(ids)[: len(reference)]
        assert np.abs(got - reference).max() < 0.1 * reference.std()
        assert (got.argmax(-1) == reference.argmax(-1)).mean() > 0.95
