"""Fields of a config.json for a model class of somebody else: what it may be given, by name, type and range.

Such a class takes what its arguments name, converts nothing and checks nothing, and passes over the rest. So
it is never handed a config.json: every field that transformers reads for the kind is read here, with
transformers' own default where the file does not say, and only values for which the class was proven right
pass. What is left over in the file is what transformers does not read either.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from runtime.errors import UnsupportedModel, shown
from runtime.records import dataclass

Raw = Mapping[str, Any]
_HUGE = 1 << 24  # of anything that is counted: beyond it MLX cannot say a shape


def complain(name: str, value: Any, wanted: str) -> UnsupportedModel:
    return UnsupportedModel(f"config.json: {name} is {shown(value)}, expected {wanted}")


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number in [low, high]."""

    default: int | None
    low: int = 1
    high: int = _HUGE

    def read(self, name: str, value: Any, who: str) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            raise complain(name, value, f"a whole number from {self.low} to {self.high}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number above zero. Where the default is None the file must say it."""

    default: float | None

    def read(self, name: str, value: Any, who: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise complain(name, value, "a finite number above 0")
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    default: bool

    def read(self, name: str, value: Any, who: str) -> bool:
        if not isinstance(value, bool):
            raise complain(name, value, "true or false")
        return value


class Only:
    """One of the values that the class computes; the first one is transformers' default."""

    def __init__(self, *values: Any) -> None:
        self.values = values
        self.default = values[0]

    def read(self, name: str, value: Any, who: str) -> Any:
        for known in self.values:
            if value == known and isinstance(value, bool) == isinstance(known, bool):
                return known
        words = " or ".join(json.dumps(known) for known in self.values)
        raise UnsupportedModel(f"config.json: {name} is {shown(value)}, and {who} computes only {words}")


@dataclass(frozen=True, slots=True)
class Words:
    """A list of these words, one per layer; None where the file does not say."""

    allowed: tuple[str, ...]
    default: None = None

    def read(self, name: str, value: Any, who: str) -> list[str] | None:
        if value is None:
            return None
        if not isinstance(value, list) or any(word not in self.allowed for word in value):
            raise complain(name, value, f"a list of {' and '.join(self.allowed)}")
        return value


Field = Count | Number | Flag | Only | Words

# Fields that change the answer of other families, or of every family, and for which no class here does
# anything: the values that leave it as it is.
ELSEWHERE: dict[str, Only] = {
    "is_causal": Only(None, True),
    "use_bidirectional_attention": Only(None, False),
    "attn_logit_softcapping": Only(None, 0, False),
    "final_logit_softcapping": Only(None, 0, False),
    "logits_soft_cap": Only(None, 0, False),
    "logit_scale": Only(None, 1),
    "qk_layernorm": Only(None, False),
    "use_qk_norm": Only(None, False),
    "n_group": Only(None, 1),
    "topk_group": Only(None, 1),
    "num_expert_groups": Only(None, 1),
    "num_limited_groups": Only(None, 1),
}


def read_fields(
    raw: Raw, fields: Mapping[str, Field], aliases: Mapping[str, str], who: str
) -> dict[str, Any]:
    """Every field under its own name; a name with a dot is a field of a block. Raises UnsupportedModel.

    aliases: other names that transformers takes for a field.
    """
    raw = _own_names(raw, aliases)
    for name, field in ELSEWHERE.items():
        if name in raw and name not in fields:
            field.read(name, raw[name], who)
    _check_windows(raw, fields, who)
    found: dict[str, Any] = {}
    for name, field in fields.items():
        block, _, inner = name.rpartition(".")
        held = raw.get(block, {}) if block else raw
        if not isinstance(held, Mapping):
            raise complain(block, held, "a block of fields")
        found[name] = field.read(name, held.get(inner, field.default), who)
    return found


def _own_names(raw: Raw, aliases: Mapping[str, str]) -> dict[str, Any]:
    own = dict(raw)
    for other, name in aliases.items():
        if other in own and own.setdefault(name, own[other]) != own[other]:
            raise UnsupportedModel(
                f"config.json: {name} is {shown(own[name])}, and {other}, its other name, {shown(own[other])}"
            )
    return own


def _check_windows(raw: Raw, fields: Mapping[str, Field], who: str) -> None:
    """A window that no layer looks through is refused, unless the file says that it is not used."""
    window = raw.get("sliding_window")
    if window is None or "sliding_window" in fields or raw.get("use_sliding_window") is False:
        return
    raise UnsupportedModel(
        f"config.json: sliding_window is {shown(window)}, and {who} has no layer that slides"
    )
