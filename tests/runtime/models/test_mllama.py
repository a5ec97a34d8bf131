"""Llama 3.2 Vision: text sees an image from the step that brought it on, and rows without one are as if there
was none.
"""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cache.memory import LayerMemory
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.step import Inputs, Step
from tests.support.checkpoints import write_checkpoint

DATA = Path(__file__).resolve().parents[2] / "data" / "special"
SEEN_FROM = 9


@pytest.fixture(scope="module")
def wanted() -> dict[str, np.ndarray]:
    with np.load(DATA / "mllama.npz") as opened:
        return dict(opened)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    record: dict[str, Any] = json.loads((DATA / "mllama.json").read_text(encoding="utf-8"))
    folder = write_checkpoint(tmp_path_factory.mktemp("mllama"), record["config"], record["tensors"])
    return load_model(record["config"], [folder / "model.safetensors"])


def take(
    model: LoadedModel,
    memory: LayerMemory,
    tokens: np.ndarray,
    start: int,
    *,
    row: int = 0,
    features: np.ndarray | None = None,
    commit: bool = True,
) -> np.ndarray:
    """One step of one row: its logits [L, V]."""
    step = Step((start,), (len(tokens),), first=row, inputs=Inputs(mx.array(tokens)[None]))
    memory.prepare(step)
    if features is not None:
        model.network.encode(mx.array(features), step, memory)
    logits = model.network.logits(model.network(step, memory))
    if commit:
        memory.commit(step, step.counts)
    return np.array(logits[0])


def close(got: np.ndarray, wanted: np.ndarray) -> bool:
    return float(np.abs(got - wanted).max()) < 1e-4 * float(wanted.std())


def test_text_alone(model: LoadedModel, wanted: dict[str, np.ndarray]) -> None:
    memory = build_memory(model.described.layout)
    parts = [take(model, memory, wanted["ids"][i : i + 6], i) for i in range(0, 24, 6)]
    assert close(np.concatenate(parts), wanted["text_logits"])


def test_text_with_an_image(model: LoadedModel, wanted: dict[str, np.ndarray]) -> None:
    ids, memory = wanted["ids"], build_memory(model.described.layout)
    before = take(model, memory, ids[:SEEN_FROM], 0)
    first = take(model, memory, ids[SEEN_FROM:15], SEEN_FROM, features=wanted["features"])
    rest = [take(model, memory, ids[i : i + 1], i) for i in range(15, 24)]
    assert close(np.concatenate([before, first, *rest]), wanted["logits"])


def test_an_abandoned_step_brings_no_image(model: LoadedModel, wanted: dict[str, np.ndarray]) -> None:
    ids, memory = wanted["ids"], build_memory(model.described.layout)
    take(model, memory, ids[:9], 0)
    take(model, memory, ids[9:], 9, features=wanted["features"], commit=False)
    assert close(take(model, memory, ids[9:], 9), wanted["text_logits"][9:])


def test_rows_with_and_without(model: LoadedModel, wanted: dict[str, np.ndarray]) -> None:
    ids, memory = wanted["ids"], build_memory(model.described.layout, rows=2)
    for row, features in ((0, wanted["features"]), (1, None)):
        take(model, memory, ids[:9], 0, row=row)
        take(model, memory, ids[9:20], 9, row=row, features=features)
    step = Step((20, 20), (4, 4), inputs=Inputs(mx.array(np.stack([ids[20:]] * 2))))
    memory.prepare(step)
    logits = model.network.logits(model.network(step, memory))
    assert close(np.array(logits[0]), wanted["logits"][20:])
    assert close(np.array(logits[1]), wanted["text_logits"][20:])
