"""What transformers answers when one field of a config is changed (tests/data/fields), and what we do.

See `make_field_references` for how the answers were made.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.errors import UnsupportedModel, WeightMismatch
from runtime.loading.load import load_model
from runtime.models import Described, describe
from runtime.step import Inputs, Step
from runtime.trunks.pruned import NEVER
from tests.support.checkpoints import random_state
from tests.support.field_changes import spelled
from tests.support.oneshot import build_one_shot
from tests.support.parity import Reference, answers_of, bar

FOLDER = Path(__file__).resolve().parents[1] / "data" / "fields"
PLACES = (31, 47)
LEAST_BAR = 1e-4


@dataclass(frozen=True)
class Case:
    """One field with another value. wanted: logits [PLACES, columns] in units of their spread; tensors: by
    which the model differs from the recorded one.
    """

    field: str
    value: Any
    config: dict[str, Any]
    wanted: np.ndarray
    tensors: Mapping[str, Any]


@dataclass(frozen=True)
class FieldAnswers:
    """All changes of one entry of tests/data/references."""

    name: str

    @classmethod
    def names(cls) -> list[str]:
        return sorted(path.stem for path in FOLDER.glob("*.json"))

    @cached_property
    def reference(self) -> Reference:
        return Reference.called(self.name)

    @cached_property
    def _record(self) -> dict[str, Any]:
        return json.loads((FOLDER / f"{self.name}.json").read_text(encoding="utf-8"))

    @cached_property
    def _answers(self) -> dict[str, np.ndarray]:
        with np.load(FOLDER / f"{self.name}.npz") as opened:
            return dict(opened)

    @cached_property
    def _bar(self) -> float:
        """More where the network moves more by its last bits (`parity.bar`)."""
        return max(LEAST_BAR, bar(self.reference)) if "sensitivity" in self.reference.record else LEAST_BAR

    def _case(self, field: str, value: Any, wanted: np.ndarray, tensors: Any) -> Case:
        path, base = tuple(field.split(".")), self.reference.record["config"]
        config = spelled(base, path, value, self._record["aliases"])
        return Case(field, value, config, wanted, tensors)

    def moving(self) -> Iterator[Case]:
        """Changes after which transformers answers otherwise."""
        for case, row in zip(self._record["moving"], self._answers["logits"], strict=True):
            yield self._case(case["field"], case["value"], row, case.get("tensors", {}))

    def still(self) -> Iterator[Case]:
        """Changes after which it answers the same."""
        for field, values in self._record["still"].items():
            for value in values:
                yield self._case(field, value, self._unchanged, {})

    def fault(self, case: Case) -> str | None:
        """What is wrong with what we do about a case; None if we refuse it by name or answer the same."""
        try:
            described = describe(case.config)
            if described.writes != self._described.writes:
                return None  # another kind of model, which has a reference of its own
            same = described.config == self._described.config and not case.tensors
            got = self._unchanged if same else self._answer(described, case)
        except UnsupportedModel as refusal:
            named = any(name in str(refusal) for name in self._names(case.field.rpartition(".")[2]))
            return None if named else f"is refused without its name: {refusal}"
        except WeightMismatch:
            return None  # said aloud, by the names of the tensors
        error = float(np.abs(got - case.wanted).max())
        if error < self._bar:
            return None
        return f"{'is read by nobody' if same else 'acts otherwise'}: {error:.1e} of the spread"

    def _names(self, name: str) -> set[str]:
        aliases: dict[str, str] = self._record["aliases"]
        return {name, aliases.get(name, name), *(other for other in aliases if aliases[other] == name)}

    @cached_property
    def _unchanged(self) -> np.ndarray:
        """Our logits for the config as it was recorded are transformers' own, by the tests of parity."""
        answers = self.reference.answers
        place = np.isin(answers["columns"], self._answers["columns"])
        return answers["logits"][list(PLACES)][:, place] / answers["std"]

    @cached_property
    def _described(self) -> Described:
        return describe(self.reference.record["config"])

    @cached_property
    def _tensors(self) -> dict[str, mx.array]:
        return _arrays(self.reference.record["tensors"])

    @cached_property
    def _answered(self) -> list[tuple[Described, Mapping[str, Any], np.ndarray]]:
        return []

    def _answer(self, described: Described, case: Case) -> np.ndarray:
        """Computed once for all spellings of one model: a fifth of all changes."""
        for known, tensors, got in self._answered:
            if known == described and tensors == case.tensors:
                return got
        got = self._run(case)
        self._answered.append((described, case.tensors, got))
        return got

    def _run(self, case: Case) -> np.ndarray:
        removed, added = case.tensors.get("removed", ()), case.tensors.get("added", {})
        tensors = {name: array for name, array in self._tensors.items() if name not in removed}
        model = self.reference.reading(load_model(case.config, tensors | _arrays(added)))
        ids = self.reference.answers["ids"]
        step = Step(starts=(0,), counts=(len(ids),), inputs=Inputs(mx.array(ids)[None]))
        memory = build_one_shot(model.described.layout, dtype=model.dtype)
        logits = answers_of(model, model.network(step, memory))
        known = logits[logits > NEVER]  # ids that are never drawn are none of transformers'
        return logits[list(PLACES)][:, self._answers["columns"]] / known.std()


def _arrays(shapes: Mapping[str, Any]) -> dict[str, mx.array]:
    """The tensors of a checkpoint, in memory: hundreds of configs have the same."""
    return {name: mx.array(tensor) for name, tensor in random_state(shapes).items()}
