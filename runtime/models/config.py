"""Reading a Hugging Face config.json with suspicion: every field by name, type and range, in both spellings.

transformers 5 writes `dtype`, `rope_parameters`; older files have `torch_dtype`, `rope_theta`,
`rope_scaling`. Multimodal checkpoints keep the text tower's fields under `text_config` (or `llm_config`,
`language_config`). Numbers come from a stranger's file: an absurd one must fail here in microseconds, not in
an allocation.
"""

import math
from collections.abc import Mapping
from typing import Any

from runtime.errors import UnsupportedModel

_NESTED = ("text_config", "llm_config", "language_config")
_HUGE = 1 << 31


def text_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The text tower's own fields; what the wrapper says (dtype, quantization) fills the gaps.

    Whether the head is tied is the wrapper's word where it has one: the head is the wrapper's, and the text
    block often holds no more than a default.
    """
    for name in _NESTED:
        inner = raw.get(name)
        if isinstance(inner, Mapping):
            outer = {key: value for key, value in raw.items() if key not in _NESTED}
            tied = {key: outer[key] for key in ("tie_word_embeddings",) if outer.get(key) is not None}
            return {**outer, **inner, **tied}
    return dict(raw)


class Fields:
    """One config with checked reads. Every complaint names the field, what is there and what was expected."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = text_config(raw)

    def has(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def count(self, name: str, default: int | None = None, *, low: int = 1, high: int = _HUGE) -> int:
        """A whole number in [low, high]."""
        value = self.raw.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise UnsupportedModel(
                f"config.json: {name} is {value!r}, expected a whole number from {low} to {high}"
            )
        return value

    def number(self, name: str, default: float | None = None, *, low: float = -math.inf) -> float:
        """A finite number, at least `low`."""
        value: Any = self.raw.get(name)
        value = default if value is None else value
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or value < low:
            raise UnsupportedModel(
                f"config.json: {name} is {value!r}, expected a finite number of at least {low}"
            )
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise UnsupportedModel(f"config.json: {name} is {value!r}, expected true or false")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """One of the allowed words; anything else would be computed wrongly, so it is refused."""
        value = self.raw.get(name)
        value = default if value is None else value
        if value not in allowed:
            raise UnsupportedModel(
                f"config.json: {name} is {value!r}, and only {', '.join(allowed)} is computed here"
            )
        return str(value)

    def words(self, name: str, length: int, allowed: tuple[str, ...]) -> tuple[str, ...] | None:
        """A list of `length` words (one per layer), or None when the field is absent."""
        value = self.raw.get(name)
        if value is None:
            return None
        if (
            not isinstance(value, list | tuple)
            or len(value) != length
            or any(v not in allowed for v in value)
        ):
            raise UnsupportedModel(
                f"config.json: {name} should list {length} layers, each one of "
                f"{', '.join(allowed)}; it is {value!r:.200}"
            )
        return tuple(value)

    def rope_parameters(self, layer_type: str | None = None, *, theta: float = 10000.0) -> dict[str, Any]:
        """The rope block in the new spelling, whichever the file uses. `layer_type` picks from a keyed
        block.
        """
        block = self.raw.get("rope_parameters")
        if (
            isinstance(block, Mapping)
            and layer_type is not None
            and isinstance(block.get(layer_type), Mapping)
        ):
            block = block[layer_type]
        if not isinstance(block, Mapping):
            block = self._legacy_rope()
        merged = {"rope_theta": self.raw.get("rope_theta") or theta, **_finite(block)}
        if "partial_rotary_factor" not in merged and self.has("partial_rotary_factor"):
            merged["partial_rotary_factor"] = self.raw["partial_rotary_factor"]
        return merged

    def _legacy_rope(self) -> dict[str, Any]:
        scaling = self.raw.get("rope_scaling")
        if not isinstance(scaling, Mapping):
            return {}
        block = dict(scaling)
        if "rope_type" not in block and "type" in block:
            block["rope_type"] = block.pop("type")
        return block


def whole_heads(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """A rope block of a family whose reference rotates whole heads and does not look whether it is told to.

    Others do look; so a file that asks for less of a head has no one meaning.
    """
    share = parameters.get("partial_rotary_factor", 1.0)
    if share != 1.0:
        raise UnsupportedModel(
            f"config.json: partial_rotary_factor is {share!r:.40}, and this family rotates whole heads"
        )
    return parameters


def _finite(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if value is not None}
