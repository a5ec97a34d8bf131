"""Reading a Hugging Face config.json with suspicion: every field by name, type and range, in both spellings.

transformers 5 writes `dtype`, `rope_parameters`; older files have `torch_dtype`, `rope_theta`,
`rope_scaling`. Where a wrapper keeps its text model's fields is for `wrapper`, what a field is called
otherwise for `spellings`, the rope block for `rope_block`.
Numbers come from a stranger's file: an absurd one must fail here in microseconds, not in an allocation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

from runtime.config.rope_block import rope_block
from runtime.config.spellings import modern_kind, one_spelling, written_as
from runtime.config.text import ROPE, levels, text_config
from runtime.errors import UnsupportedModel
from runtime.quoting import quoted

_HUGE = (1 << 31) - 1
# Products and quotients of a few numbers within these ends stay far inside float32.
_LARGE, _SMALL = 1e9, 1e-15
_TAKEN: ContextVar[dict[str, Any] | None] = ContextVar("taken", default=None)
"""While `completed` looks on: what was taken for fields that are not there."""


def _refuse_outer_rope(raw: Mapping[str, Any]) -> None:
    """What a wrapper says of rotation does not reach its text model; one that alone says it is a mistake."""
    name, block = levels(raw)[-1]
    outer = [key for key in ROPE if raw.get(key) is not None]
    if name and outer and not any(key in block for key in ROPE):
        raise UnsupportedModel(f"config.json: {outer[0]} stands beside {name} and belongs into it")


class Fields:
    """One config with checked reads. Every complaint names the field, what is there and what was expected.

    under: where the block stands in config.json, if it is not the whole of it.
    """

    def __init__(self, raw: Mapping[str, Any], *, under: str = "") -> None:
        _refuse_outer_rope(raw)
        self._written = text_config(raw)
        self.raw = one_spelling(self._written)
        self._under = f"{under}." if under else ""
        self._taken = _TAKEN.get() if "model_type" in self.raw else None  # a block is no model's config
        if self._taken is not None:
            for name, value in self.raw.items():  # a family's own, where it completes a config
                self.take(name, value)

    def has(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def name(self, name: str) -> str:
        """What the file calls this field, with the block that it stands in."""
        return f"{self._under}{written_as(self._written, name)}"

    def refuse(self, name: str, expected: str) -> NoReturn:
        """UnsupportedModel that says what the field is and what was `expected`."""
        raise UnsupportedModel(
            f"config.json: {self.name(name)} is {quoted(self.raw.get(name))}, expected {expected}"
        )

    def block(self, name: str) -> "Fields":
        """What stands in a block of it; nothing where the file has none. A block is no model's config,
        whatever it calls itself.
        """
        block = self.raw.get(name)
        if block is not None and not isinstance(block, Mapping):
            self.refuse(name, "a block of fields")
        own = {field: value for field, value in (block or {}).items() if field != "model_type"}
        return Fields(own, under=self.name(name))

    def take(self, name: str, default: Any) -> Any:
        """The field's value; where the file has none, `default` is the family's."""
        value = self.raw.get(name)
        if value is not None:
            default = value
        if self._taken is not None and default is not None:
            self._taken.setdefault(name, default)
        return default

    def count(self, name: str, default: int | None = None, *, low: int = 1, high: int = _HUGE) -> int:
        """A whole number in [low, high]."""
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(name, f"{low}" if low == high else f"a whole number from {low} to {high}")
        return value

    def number(
        self, name: str, default: float | None = None, *, low: float = -_LARGE, high: float = _LARGE
    ) -> float:
        """A number in [low, high], 0 or not so small that dividing by it leaves float32."""
        value = self.take(name, default)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not low <= value <= high or 0 < abs(value) < min(_SMALL, max(low, 0) or _SMALL):
            self.refuse(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Without the field `default`. An explicit null is false to transformers; where false is not what
        the family does by itself, a null is refused.
        """
        value = self.raw.get(name)
        if value is None and not (default and name in self.raw):
            return self.take(name, default)
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return value

    def only(self, flags: Mapping[str, bool]) -> None:
        """Refuse flags that are not as given here; without the field they are."""
        for name, value in flags.items():
            if self.flag(name, value) != value:
                self.refuse(name, f"{str(value).lower()}: nothing else is computed here")

    def choice(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """One of the allowed words; anything else would be computed wrongly, so it is refused."""
        value = self.take(name, default)
        if value not in allowed:
            raise UnsupportedModel(
                f"config.json: {self.name(name)} is {quoted(value)}, and only {', '.join(allowed)} is "
                "computed here"
            )
        return str(value)

    def words(self, name: str, length: int, allowed: tuple[str, ...]) -> tuple[str, ...] | None:
        """A list of `length` words (one per layer), or None when the field is absent. Kinds of layers may
        have their older names.
        """
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != length:
            self.refuse(name, f"a word for each of {length} layers")
        kinds = tuple(kind if kind in allowed else modern_kind(kind) for kind in value)
        if any(kind not in allowed for kind in kinds):
            self.refuse(name, f"{length} times one of {', '.join(allowed)}")
        return kinds

    def switches(
        self, name: str, length: int, default: Sequence[int] | None = None
    ) -> tuple[bool, ...] | None:
        """A list of 0 or 1 for each of `length` layers; None where there is neither that nor a default."""
        value = self.take(name, default)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length or any(one not in (0, 1) for one in value):
            self.refuse(name, f"0 or 1 for each of {length} layers")
        return tuple(one == 1 for one in value)

    def settle(self, name: str, words: tuple[str, str], firsts: Iterable[bool]) -> tuple[bool, ...]:
        """Of each layer, what the family takes where the file has no list of these words: is it the first?"""
        found = tuple(firsts)
        self.take(name, [words[not first] for first in found])
        return found

    def rope_parameters(self, layer_type: str | None = None, *, theta: float = 10000.0) -> dict[str, Any]:
        """The rope block for layers of this type (None: for all layers) in the new spelling, whichever the
        file uses; every field of it checked. theta: the base where the file gives none.
        """
        if layer_type != "sliding_attention":
            self.take("rope_theta", theta)
        return rope_block(self.raw, layer_type, theta=theta)


def completed(parse: Callable[[Mapping[str, Any]], Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's fields under every name they have, and what the family whose `parse` it is takes for
    those that the file leaves out. Raises UnsupportedModel.
    """
    taken: dict[str, Any] = {}
    token = _TAKEN.set(taken)
    try:
        parse(raw)
    finally:
        _TAKEN.reset(token)
    said = one_spelling(text_config(raw))
    return said | {name: value for name, value in taken.items() if said.get(name) is None}


def whole_heads(parameters: Mapping[str, Any], what: str = "this family") -> Mapping[str, Any]:
    """A rope block of a family whose reference rotates whole heads and does not look whether it is told to.

    Others do look; so a file that asks for less of a head has no one meaning.
    """
    share = parameters.get("partial_rotary_factor", 1.0)
    if share != 1.0:
        raise UnsupportedModel(
            f"config.json: partial_rotary_factor is {quoted(share)}, and {what} rotates whole heads"
        )
    return parameters
