"""Running a tiny checkpoint in the ways that must agree with its reference."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.cache.build import build_memory, build_one_shot
from runtime.loaded import LoadedModel, load_model
from runtime.step import Step
from tests.support.checkpoints import write_checkpoint

BAR = 1e-4
"""Largest distance in standard deviations of the reference's logits, in float32; near 1e-5 is measured."""

FOLDER = Path(__file__).resolve().parents[1] / "data" / "references"


@dataclass(frozen=True)
class Reference:
    """One entry of tests/data/references: a config, the shapes of its tensors, and transformers' answers."""

    name: str

    @classmethod
    def names(cls) -> list[str]:
        return sorted(path.stem for path in FOLDER.glob("*.json"))

    @cached_property
    def record(self) -> dict[str, Any]:
        return json.loads((FOLDER / f"{self.name}.json").read_text(encoding="utf-8"))

    @cached_property
    def answers(self) -> dict[str, np.ndarray]:
        with np.load(FOLDER / f"{self.name}.npz") as opened:
            return dict(opened)

    def load(self, folder: Path, config: Mapping[str, Any] | None = None) -> LoadedModel:
        """The model from its seed, float32."""
        config = self.record["config"] if config is None else config
        write_checkpoint(folder, config, self.record["tensors"])
        return load_model(config, [folder / "model.safetensors"])

    def error(self, logits: np.ndarray, columns: bool = True) -> float:
        """Largest difference from the reference, in units of the reference's standard deviation."""
        got = logits[:, self.answers["columns"]] if columns else logits
        wanted = self.answers["logits"][: len(got)]
        return float(np.abs(got - wanted).max() / self.answers["std"])


def full_logits(model: LoadedModel, ids: np.ndarray) -> np.ndarray:
    """float32 [T, V] without any layer memory: the plainest form of the network."""
    step = Step(starts=(0,), counts=(len(ids),))
    memory = build_one_shot(model.described.layout, dtype=model.dtype)
    hidden = model.network(mx.array(ids)[None], step, memory)
    return np.array(model.network.logits(hidden)[0].astype(mx.float32))


def cut_logits(model: LoadedModel, ids: np.ndarray, cuts: list[int]) -> np.ndarray:
    """The same through layer memory, in steps of these widths (the last one repeats)."""
    memory, out, at, turn = build_memory(model.described.layout, dtype=model.dtype), [], 0, 0
    while at < len(ids):
        width = min(cuts[min(turn, len(cuts) - 1)], len(ids) - at)
        step = Step(starts=(at,), counts=(width,))
        memory.prepare(step)
        hidden = model.network(mx.array(ids[at : at + width])[None], step, memory)
        out.append(np.array(model.network.logits(hidden)[0].astype(mx.float32)))
        memory.commit(step, (width,))
        at, turn = at + width, turn + 1
    return np.concatenate(out)


def ragged_logits(model: LoadedModel, rows: list[np.ndarray]) -> list[np.ndarray]:
    """Several sequences of different lengths as rows of one batch: a ragged prefill, then one token each."""
    memory = build_memory(model.described.layout, rows=len(rows), dtype=model.dtype)
    counts = tuple(len(row) - 4 for row in rows)
    padded = np.zeros((len(rows), max(counts)), np.int32)
    for place, (row, count) in enumerate(zip(rows, counts, strict=True)):
        padded[place, :count] = row[:count]
    out = _batch_step(model, memory, padded, (0,) * len(rows), counts)
    for turn in range(4):
        starts = tuple(count + turn for count in counts)
        tokens = np.array([[row[start]] for row, start in zip(rows, starts, strict=True)])
        more = _batch_step(model, memory, tokens, starts, (1,) * len(rows))
        out = [np.concatenate(pair) for pair in zip(out, more, strict=True)]
    return out


def _batch_step(
    model: LoadedModel, memory: Any, tokens: np.ndarray, starts: tuple[int, ...], counts: tuple[int, ...]
) -> list[np.ndarray]:
    step = Step(starts=starts, counts=counts)
    memory.prepare(step)
    logits = model.network.logits(model.network(mx.array(tokens), step, memory))
    memory.commit(step, counts)
    return [np.array(logits[place, :count].astype(mx.float32)) for place, count in enumerate(counts)]


def greedy(model: LoadedModel, prompt: np.ndarray, count: int) -> list[int]:
    """`count` likeliest tokens after `prompt`, through layer memory one token at a time."""
    memory = build_memory(model.described.layout, dtype=model.dtype)
    inputs, start, out = mx.array(prompt)[None], 0, []
    for _ in range(count):
        step = Step(starts=(start,), counts=(inputs.shape[1],))
        memory.prepare(step)
        hidden = model.network(inputs, step, memory)
        memory.commit(step, step.counts)
        start += inputs.shape[1]
        out.append(int(mx.argmax(model.network.logits(hidden[:, -1])[0]).item()))
        inputs = mx.array([[out[-1]]])
    return out
