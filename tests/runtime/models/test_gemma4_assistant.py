"""The Gemma 4 assistant drafts from its target's memory what transformers' drafts."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import save_file

from runtime.cache.build import build_memory
from runtime.cache.layout import Stateless
from runtime.cache.memory import LayerMemory
from runtime.errors import UnsupportedModel
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.models import describe
from runtime.step import Inputs, Step
from tests.support.checkpoints import random_state

DATA = Path(__file__).resolve().parents[2] / "data" / "special"
RECORD: dict[str, Any] = json.loads((DATA / "gemma4_assistant.json").read_text(encoding="utf-8"))


def load(name: str, folder: Path) -> LoadedModel:
    shapes = {key: tuple(shape) for key, shape in RECORD[name]["tensors"].items()}
    state = random_state(shapes)
    if "masked_embedding.token_ordering" in state:
        state["masked_embedding.token_ordering"] = np.random.default_rng(3).permutation(160).astype(np.int64)
    save_file(state, folder / f"{name}.safetensors")
    kind = "Gemma4ForCausalLM" if name == "target" else "Gemma4AssistantForCausalLM"
    return load_model({**RECORD[name]["config"], "architectures": [kind]}, [folder / f"{name}.safetensors"])


def read(target: LoadedModel, ids: np.ndarray) -> tuple[LayerMemory, mx.array]:
    """The target's memory after `ids`, and its hidden state at the last of them [1, 1, D]."""
    memory = build_memory(target.described.layout)
    step = Step(starts=(0,), counts=(len(ids),), inputs=Inputs(mx.array(ids)[None]))
    memory.prepare(step)
    hidden = target.network(step, memory)
    memory.commit(step, step.counts)
    return memory, hidden[:, -1:]


@pytest.mark.parametrize("name", ["plain", "clustered"])
@pytest.mark.parametrize("length", [9, 40], ids=["within the window", "beyond it"])
def test_drafted_logits(name: str, length: int, tmp_path: Path) -> None:
    with np.load(DATA / "gemma4_assistant.npz") as opened:
        ids, wanted = opened["ids"], opened[f"{name}_{length}"]
    target, draft = load("target", tmp_path), load(name, tmp_path)
    memory, hidden = read(target, ids[:length])
    last = {window is not None: i for i, window in enumerate(_windows(target)) if _owns(target, i)}
    caches = [memory[last[slides]] for slides in draft.described.config.slides]
    step, token = Step(starts=(length - 1,), counts=(1,)), int(ids[length])
    for row in wanted:
        embedded = target.network.model.embed_tokens(mx.array([[token]])) * 64**0.5
        out = draft.network(step.again(Inputs(embeddings=embedded)), caches, hidden)
        logits, hidden = np.array(draft.network.logits(out)[0, 0]), draft.network.feedback(out)
        scored = np.isfinite(logits)
        assert np.abs(logits - row)[scored].max() < 1e-4 * row.std()
        assert int(logits.argmax()) == int(row.argmax())
        token = int(row.argmax())


def _windows(model: LoadedModel) -> list[int | None]:
    return [layer.window for layer in model.described.config.layers]


def _owns(model: LoadedModel, i: int) -> bool:
    return model.described.config.layers[i].donor is None


def test_remembers_nothing_itself() -> None:
    described = describe({**RECORD["plain"]["config"], "architectures": ["Gemma4AssistantForCausalLM"]})
    assert described.layout == (Stateless(), Stateless(), Stateless())


def test_clusters_must_divide_the_vocabulary() -> None:
    config = {**RECORD["clustered"]["config"], "num_centroids": 7}
    with pytest.raises(UnsupportedModel, match="num_centroids"):
        describe({**config, "architectures": ["Gemma4AssistantForCausalLM"]})
