"""`quality.json`: what a package keeps of how its formats were chosen and what they cost.

Written in one way and rounded, so that the same search gives the same bytes; read as a stranger's file.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from modelkit.errors import StoreError
from modelkit.json_text import is_finite
from modelkit.pack.planning.plan_types import Plan
from modelkit.pack.quality.options import KEEP
from modelkit.store.canonical import canonical
from runtime.records import dataclass

if TYPE_CHECKING:
    from runtime.quality.divergence import Divergence, Likeness

    Compared = Divergence | Likeness
    """Of predictions; of the vectors that a model makes, for one that writes nothing."""

FILE = "quality.json"
PICTURE = "quality.svg"
VERSION = 1

MUCH_KL = 0.1
LITTLE_COSINE = 0.97
LITTLE_AGREEMENT = 0.9


@dataclass(frozen=True, slots=True)
class Row:
    """One matrix."""

    name: str
    format: str
    size_bytes: int
    elements: int
    cost: float | None
    """What its format was foreseen to cost, nats per token or of the cosine; None: it was not a candidate."""


@dataclass(frozen=True, slots=True)
class Report:
    """How the formats of one model were chosen, and what they cost."""

    asked: str
    """In the words of QUANTIZE."""
    bits_per_weight: float
    size_bytes: int
    own_text: bool
    """Did the model write the calibration text itself?"""
    calibration: "Compared"
    held_out: "Compared"
    """On texts that nothing was chosen by: the model's own, of one that writes nothing other lines."""
    matrices: tuple[Row, ...]
    measured: tuple[str, ...] = ()
    """Matrices that no gradient reached, so that they were measured one by one."""
    untuned: "Compared | None" = None
    """On the held-out text, before scales and biases were tuned; None: they were not."""
    pair: Mapping[str, Any] | None = None
    """For a draft: what was expected of the pair, by format."""

    def to_json(self) -> dict[str, Any]:
        value = {
            "version": VERSION,
            "asked": self.asked,
            "bits_per_weight": round(self.bits_per_weight, 4),
            "size_bytes": self.size_bytes,
            "own_text": self.own_text,
            "calibration": self.calibration.to_json(),
            "held_out": self.held_out.to_json(),
            "untuned": self.untuned.to_json() if self.untuned else None,
            "matrices": [_row(one) for one in self.matrices],
            "measured": list(self.measured),
            "pair": dict(self.pair) if self.pair else None,
        }
        return {key: one for key, one in value.items() if one not in (None, [])}

    def to_bytes(self) -> bytes:
        return canonical(self.to_json())


def _row(one: Row) -> dict[str, Any]:
    value = {"name": one.name, "format": one.format, "size_bytes": one.size_bytes, "elements": one.elements}
    known = one.cost is not None and isfinite(one.cost)
    return {**value, "cost": float(f"{one.cost:.4g}")} if known else value


def matrices(decided: Plan, costs: Mapping[str, float]) -> tuple[Row, ...]:
    """costs: of the first tensor of each group."""
    return tuple(
        Row(tensor.name, tensor.label, tensor.nbytes, tensor.elements, costs.get(tensor.name))
        for tensor in decided.tensors
        if len(tensor.shape) > 1
    )


def notes_of(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """What the reports among a package's files, by their paths in it, say that a user should know. Of a draft
    whose format makes the pair fastest this is what was chosen: what it costs in predictions counts there.
    """
    said: list[str] = []
    for whose, path in (("", FILE), ("draft: ", f"draft/{FILE}")):
        report = json.loads(files.get(path, b"{}"))
        found = [_chosen(report["pair"])] if "pair" in report else warnings(report)
        said += [f"{whose}{'; '.join(found)} (modelkit show --quality)"] if found else []
    return tuple(said)


def _chosen(pair: Mapping[str, Any]) -> str:
    """How a draft is stored, and what that promises."""
    how = "it stays as it is" if pair["chosen"] == KEEP else f"auto chose {pair['chosen']} for it"
    if pair["speed"] <= 1:
        return f"{how}; in no format that was tried is it expected to make the target faster"
    return f"{how}, the fastest of the formats tried: {pair['speed']:.2f} times the target alone is expected"


def warnings(report: Mapping[str, Any]) -> list[str]:
    """What a user should know before relying on the model."""
    held = report.get("held_out")
    if not isinstance(held, Mapping):
        return []
    said: list[str] = []
    kl, same = held.get("kl"), held.get("same_top")
    if isinstance(kl, float | int) and kl > MUCH_KL:
        said.append(f"the predictions are {kl:.3g} nats per token from the source's: more bits would show")
    if isinstance(same, float | int) and same < LITTLE_AGREEMENT:
        said.append(f"the likeliest token is the source's in {same:.0%} of places only")
    cosine, nearest = held.get("cosine"), held.get("same_nearest")
    if isinstance(cosine, float | int) and cosine < LITTLE_COSINE:
        said.append(f"the vectors' cosine with the source's is {cosine:.3g}: more bits would show")
    if isinstance(nearest, float | int) and nearest < LITTLE_AGREEMENT:
        said.append(f"the nearest text is the source's for {nearest:.0%} of texts only")
    return said


def check_report(value: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """A report that was read, once all that is shown of it has the right types; StoreError otherwise."""
    rows = value.get("matrices")
    known = [value[key] for key in ("calibration", "held_out", "untuned") if key in value]
    pair = value.get("pair", {})
    offers = pair.get("offers", []) if isinstance(pair, Mapping) else None
    sound = (
        value.get("version") == VERSION
        and _has(value, _NUMBERS)
        and {"calibration", "held_out"} <= value.keys()
        and any(all(_has(one, kind) for one in known) for kind in (_PREDICTIONS, _VECTORS))
        and isinstance(rows, list)
        and all(_has(one, _ROW) and (one.get("cost") is None or is_finite(one["cost"])) for one in rows)
        and isinstance(offers, list)
        and all(_has(one, _OFFER) for one in offers)
    )
    if not sound:
        raise StoreError(f"{where} is not a report that this modelkit can read")
    return value


_NUMBERS = {"bits_per_weight": float, "size_bytes": int}
_PREDICTIONS = {"kl": float, "kl_p99": float, "same_top": float, "perplexity_ratio": float, "tokens": int}
_VECTORS = {"cosine": float, "cosine_least": float, "same_nearest": float, "texts": int}
_ROW = {"name": str, "format": str, "size_bytes": int, "elements": int}
_OFFER = {"format": str, "acceptance": float, "cost": float, "depth": int, "speed": float}


def _has(value: object, fields: Mapping[str, type]) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(
        isinstance(value.get(name), str) if kind is str else is_finite(value.get(name))
        for name, kind in fields.items()
    )
