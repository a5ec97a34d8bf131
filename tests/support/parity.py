"""Running a tiny checkpoint in the ways that must agree with its reference."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.cache.build import build_memory
from runtime.cache.memory import LayerMemory
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.models import Described, describe
from runtime.nn.positions.rope_spec import long_after
from runtime.step import Inputs, Step
from tests.support.checkpoints import random_state, write_checkpoint
from tests.support.oneshot import build_one_shot

FOLDER = Path(__file__).resolve().parents[1] / "data" / "references"
SPECIAL = FOLDER.parent / "special"
ENCODERS = FOLDER.parent / "encoders"

# The largest error of 118 references over eleven sets of kernels (MLX's own products, OpenBLAS for processors
# from Prescott to Sapphire Rapids, one thread and two) is 0.3 to 1.4 times the sensitivity of each, of the
# worst conditioned network (1.4e-4) as of the best (1.7e-6).
TIMES_SENSITIVITY = 5.0
LEAST_BAR = 2e-5


@cache
def described(name: str) -> Described:
    """What the config of a reference says. Several modules ask it of all of them before their first test."""
    return describe(Reference(name).record["config"])


@dataclass(frozen=True)
class Reference:
    """One entry of tests/data/references (or another folder): a config, the shapes of its tensors, and
    transformers' answers.
    """

    name: str
    folder: Path = FOLDER

    @classmethod
    def names(cls) -> list[str]:
        return [*_names()]

    @classmethod
    def encoders(cls) -> "list[str]":
        """Of models that make embeddings: their answers are hidden states."""
        return sorted(path.stem for path in ENCODERS.glob("*.json"))

    @classmethod
    def called(cls, name: str) -> "Reference":
        """Of either kind."""
        return cls(name, ENCODERS) if (ENCODERS / f"{name}.json").is_file() else cls(name)

    @cached_property
    def record(self) -> dict[str, Any]:
        return json.loads((self.folder / f"{self.name}.json").read_text(encoding="utf-8"))

    @cached_property
    def answers(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / f"{self.name}.npz") as opened:
            return dict(opened)

    def load(self, folder: Path, config: Mapping[str, Any] | None = None) -> LoadedModel:
        """The model from its seed, float32, by way of a file."""
        config = self.record["config"] if config is None else config
        write_checkpoint(folder, config, self.record["tensors"])
        return self.reading(load_model(config, [folder / "model.safetensors"]))

    def made(self) -> LoadedModel:
        """The same without a file, in half of the time."""
        tensors = {name: mx.array(array) for name, array in random_state(self.record["tensors"]).items()}
        return self.reading(load_model(self.record["config"], tensors))

    def reading(self, model: LoadedModel) -> LoadedModel:
        """The model; one with an encoder reads the reference's source by itself where rows begin."""
        if self.source is None:
            return model
        return replace(model, network=Reading(model.network, self.source))

    @property
    def source(self) -> np.ndarray | None:
        """What the encoder has read for the reference's answers; None for a model that has none."""
        return self.answers.get("source")

    def error(self, logits: np.ndarray, columns: bool = True) -> float:
        """Largest difference from the reference, in units of the reference's standard deviation."""
        got = logits[:, self.answers["columns"]] if columns else logits
        wanted = self.answers["logits"][: len(got)]
        return float(np.abs(got - wanted).max() / self.answers["std"])


@cache
def _names() -> tuple[str, ...]:
    """Asked by every test of some files, by its name's place."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


class Reading:
    """A network whose encoder reads one source for all rows, before the step that they begin with."""

    def __init__(self, network: Any, source: np.ndarray) -> None:
        self.plain = network
        self._source = mx.array(source)[None]

    def __call__(self, step: Step, caches: Any) -> mx.array:
        assert any(step.starts) == all(step.starts), "rows begin together here"
        if not any(step.starts):
            self.plain.encode(Inputs(mx.repeat(self._source, len(step.starts), axis=0)), step, caches)
        return self.plain(step, caches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


def bar(reference: Reference) -> float:
    """How far right answers may lie from the reference's, as `Reference.error` measures.

    Two right computations differ in the order of their sums, which is another one on every processor. How
    much that moves the answers depends on the network alone; so the record says by how much the reference's
    own answers move when its weights move by their last bit.

    LookupError for a record that does not say it.
    """
    if "sensitivity" not in reference.record:
        where = f"python -m tests.support.conditioning {reference.name}"
        raise LookupError(f"{reference.name} has no sensitivity: run {where}, where torch is installed")
    return max(LEAST_BAR, TIMES_SENSITIVITY * reference.record["sensitivity"])


def answers_of(model: LoadedModel, hidden: mx.array) -> np.ndarray:
    """float32 [T, V] of hidden states [1, T, D]: logits; of an encoder those states."""
    found = model.network.logits(hidden) if model.described.writes else hidden
    return np.array(found[0].astype(mx.float32))


def scales_head(config: Mapping[str, Any]) -> bool:
    """Is its head scaled by its own numbers when it is loaded? Then no program packs it as it is."""
    return bool(getattr(describe(config).config, "unit_head", False))


def full_logits(model: LoadedModel, ids: np.ndarray) -> np.ndarray:
    """float32 [T, V] without any layer memory: the plainest form of the network."""
    step = Step(starts=(0,), counts=(len(ids),), inputs=Inputs(mx.array(ids)[None]))
    memory = build_one_shot(model.described.layout, dtype=model.dtype)
    return answers_of(model, model.network(step, memory))


def cut_logits(model: LoadedModel, ids: np.ndarray, cuts: list[int], **memory_as: Any) -> np.ndarray:
    """The same through layer memory, in steps of these widths (the last one repeats). memory_as: of
    build_memory.
    """
    memory, out = build_memory(model.described.layout, dtype=model.dtype, **memory_as), []
    at = turn = 0
    border = long_after(model.described.config)
    long = None if border is None else (len(ids) > border,)
    while at < len(ids):
        width = min(cuts[min(turn, len(cuts) - 1)], len(ids) - at)
        inputs = Inputs(mx.array(ids[at : at + width])[None])
        step = Step(starts=(at,), counts=(width,), long=long, inputs=inputs)
        memory.prepare(step)
        hidden = model.network(step, memory)
        out.append(np.array(model.network.logits(hidden)[0].astype(mx.float32)))
        memory.commit(step, (width,))
        at, turn = at + width, turn + 1
    return np.concatenate(out)


def ragged_logits(model: LoadedModel, rows: list[np.ndarray], **memory_as: Any) -> list[np.ndarray]:
    """Several sequences of different lengths as rows of one batch: a ragged prefill, then one token each.
    memory_as: of build_memory.
    """
    memory = build_memory(model.described.layout, rows=len(rows), dtype=model.dtype, **memory_as)
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
    step = Step(starts=starts, counts=counts, inputs=Inputs(mx.array(tokens)))
    memory.prepare(step)
    logits = model.network.logits(model.network(step, memory))
    memory.commit(step, counts)
    return [np.array(logits[place, :count].astype(mx.float32)) for place, count in enumerate(counts)]


def memory_of(model: LoadedModel, ids: list[int]) -> LayerMemory:
    """What the model's layers remember of a text that is read at once."""
    memory = build_memory(model.described.layout, dtype=model.dtype)
    step = Step(starts=(0,), counts=(len(ids),), inputs=Inputs(mx.array([ids], dtype=mx.int32)))
    memory.prepare(step)
    mx.eval(model.network(step, memory))
    memory.commit(step, step.counts)
    return memory


def greedy(model: LoadedModel, prompt: np.ndarray, count: int) -> list[int]:
    """`count` likeliest tokens after `prompt`, through layer memory one token at a time."""
    memory = build_memory(model.described.layout, dtype=model.dtype)
    inputs, start, out = mx.array(prompt)[None], 0, []
    for _ in range(count):
        step = Step(starts=(start,), counts=(inputs.shape[1],), inputs=Inputs(inputs))
        memory.prepare(step)
        hidden = model.network(step, memory)
        memory.commit(step, step.counts)
        start += inputs.shape[1]
        out.append(int(mx.argmax(model.network.logits(hidden[:, -1])[0]).item()))
        inputs = mx.array([[out[-1]]])
    return out
