"""What positions are rotated by, read from a config.

Both spellings are read: `rope_parameters` of transformers 5, `rope_theta` and `rope_scaling` of older files.
Peers are silently wrong when they miss a variant, so an unknown `rope_type` is refused, never treated as the
default one. No arrays here: `rope` applies a spec.

Sources: RoFormer (arXiv 2104.09864); position interpolation (2306.15595); YaRN (2309.00071); LongRoPE
(2402.13753); the Llama 3.1 frequency rule as written in its reference code.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from runtime.errors import UnsupportedModel
from runtime.quoting import quoted
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """How the positions of a head are rotated."""

    dims: int
    """How many elements of the head are rotated: the first ones."""
    wavelengths: tuple[float, ...]
    """Pair i turns by position / wavelengths[i] radians."""
    attention_factor: float = 1.0
    """Multiplies cos and sin (YaRN, LongRoPE)."""
    traditional: bool = False
    """Pairs are neighbours (2i, 2i+1) instead of halves (i, i + dims/2)."""
    long_wavelengths: tuple[float, ...] | None = None
    """LongRoPE: these hold in sequences of more than `long_after` tokens, for all of their tokens."""
    long_after: int = 0
    """In tokens."""


def turned_back(spec: RopeSpec) -> RopeSpec:
    """The other way than everybody's: a pair's angle falls with its position."""
    long = spec.long_wavelengths
    return replace(
        spec,
        wavelengths=tuple(-length for length in spec.wavelengths),
        long_wavelengths=None if long is None else tuple(-length for length in long),
    )


def long_after(config: object) -> int | None:
    """Sequences of this model that have more tokens than this are treated differently from their first one
    on; None when none are. config: a family's parsed config.
    """
    turns = {spec.long_after for spec in _specs(config) if spec.long_wavelengths is not None}
    if len(turns) > 1:
        raise UnsupportedModel(f"layers that go over to long factors at different lengths: {sorted(turns)}")
    return next(iter(turns), None)


def _specs(value: object) -> Iterator[RopeSpec]:
    """All that a config holds."""
    if isinstance(value, RopeSpec):
        yield value
    elif isinstance(value, tuple):
        for part in cast("tuple[object, ...]", value):
            yield from _specs(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _specs(getattr(value, field.name))


def read_rope(
    parameters: Mapping[str, Any],
    *,
    head_dim: int,
    max_positions: int,
    traditional: bool = False,
    partial: float | None = None,
) -> RopeSpec:
    """The spec for one block as `Fields.rope_parameters` gives it: every field in it was checked there.

    parameters: `rope_theta`, `rope_type` and that type's own fields. max_positions: the model's context
    length in tokens, which yarn and longrope compare with `original_max_position_embeddings`. Raises
    UnsupportedModel for a type that is not known, lacks a field or does not fit the head.
    """
    kind = str(parameters.get("rope_type", "default"))
    if kind not in _RULES and kind not in _LONGROPE:
        known = ", ".join(sorted([*_RULES, *_LONGROPE]))
        raise UnsupportedModel(f"config.json: rope_type is {quoted(kind)}, and known are {known}")
    share = float(parameters.get("partial_rotary_factor", 1.0)) if partial is None else partial
    if not 0 < share <= 1:  # a list of head_dim * share numbers is made below
        raise UnsupportedModel(f"config.json: partial_rotary_factor is {quoted(share)}, expected 0 to 1")
    dims = head_dim if kind == "proportional" else int(head_dim * share)
    if dims < 2 or dims % 2:
        raise UnsupportedModel(
            f"config.json: head_dim {head_dim} times partial_rotary_factor {share:g} makes {dims} rotated "
            "dims, expected an even number"
        )
    theta = float(parameters.get("rope_theta", 10000.0))
    base = [theta ** (i / dims) for i in range(0, dims, 2)]
    if kind in _LONGROPE:
        return _read_longrope(base, parameters, max_positions, traditional)
    wavelengths, factor = _RULES[kind](
        base, {**parameters, "rope_theta": theta, "share": share}, dims, max_positions
    )
    return RopeSpec(dims, tuple(wavelengths), factor, traditional)


Rule = tuple[list[float], float]


def _default(base: list[float], _p: Mapping[str, Any], _dims: int, _max: int) -> Rule:
    return base, 1.0


def _linear(base: list[float], p: Mapping[str, Any], _dims: int, _max: int) -> Rule:
    factor = _needed(p, "factor")
    return [w * factor for w in base], 1.0


def _llama3(base: list[float], p: Mapping[str, Any], _dims: int, max_positions: int) -> Rule:
    factor, low, high = _needed(p, "factor"), _needed(p, "low_freq_factor"), _needed(p, "high_freq_factor")
    original = float(p.get("original_max_position_embeddings") or max_positions)
    if low > high:
        raise UnsupportedModel(
            f"config.json: low_freq_factor is {low:g} and high_freq_factor {high:g}, expected no smaller one"
        )

    def scaled(wavelength: float) -> float:
        length = 2 * math.pi * wavelength
        if length < original / high or high == low == original / length:
            return wavelength
        if length > original / low:
            return wavelength * factor
        smooth = (original / length - low) / (high - low)
        return 1 / ((1 - smooth) / (wavelength * factor) + smooth / wavelength)

    return [scaled(w) for w in base], 1.0


def _yarn(base: list[float], p: Mapping[str, Any], dims: int, max_positions: int) -> Rule:
    original = float(p.get("original_max_position_embeddings") or max_positions)
    factor = float(p.get("factor") or max_positions / original)
    theta = p["rope_theta"]

    def dim_of(rotations: float) -> float:
        return dims * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dim_of(float(p.get("beta_fast") or 32)), dim_of(float(p.get("beta_slow") or 1))
    if p.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    span = high - low or 0.001  # below zero where the trained length is a few tokens, as transformers has it
    ramp = [min(max((i - low) / span, 0.0), 1.0) for i in range(dims // 2)]
    mixed = [1 / (r / (w * factor) + (1 - r) / w) for r, w in zip(ramp, base, strict=True)]
    return mixed, _yarn_attention(p, factor)


def _yarn_attention(p: Mapping[str, Any], factor: float) -> float:
    given = p.get("attention_factor")
    if given is not None:
        return float(given)
    mscale, all_dim = p.get("mscale"), p.get("mscale_all_dim")
    if mscale and all_dim:
        return yarn_scale(factor, float(mscale)) / yarn_scale(factor, float(all_dim))
    return yarn_scale(factor)


def yarn_scale(factor: float, mscale: float = 1.0) -> float:
    """The temperature that YaRN multiplies attention by: 0.1 · mscale · ln(factor) + 1."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _read_longrope(
    base: list[float], p: Mapping[str, Any], max_positions: int, traditional: bool
) -> RopeSpec:
    original = float(p.get("original_max_position_embeddings") or max_positions)
    factor = float(p.get("factor") or max_positions / original)
    attention = p.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    short, long = (_stretched(base, p, f"{kind}_factor") for kind in ("short", "long"))
    # Where no sequence is ever long, a row that is long for other layers' factors (`Step.long`) is not here.
    turns = original < max_positions
    return RopeSpec(
        2 * len(base),
        short,
        float(attention),
        traditional,
        long if turns else None,
        int(original) if turns else 0,
    )


def _stretched(base: list[float], p: Mapping[str, Any], name: str) -> tuple[float, ...]:
    factors = p.get(name)
    if not isinstance(factors, list | tuple) or len(factors) != len(base):
        raise UnsupportedModel(
            f"config.json: longrope needs {len(base)} numbers in {name}; it is {quoted(factors)}"
        )
    return tuple(w * float(f) for w, f in zip(base, factors, strict=True))


def _proportional(base: list[float], p: Mapping[str, Any], dims: int, _max: int) -> Rule:
    # Gemma 4: exponents run over the whole head, but only the first share of the pairs turns at all.
    turning = int(p["share"] * dims // 2)
    factor = float(p.get("factor") or 1.0)
    return [w * factor if i < turning else math.inf for i, w in enumerate(base)], 1.0


_RULES = {
    "default": _default,
    "dynamic": _default,  # rescales past max_position_embeddings only, and no context here goes there
    "mrope": _default,  # three axes that all count the same for text
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "proportional": _proportional,
}
_LONGROPE = ("longrope", "su")


def _needed(p: Mapping[str, Any], name: str) -> float:
    """A field that the type cannot do without."""
    value = p.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UnsupportedModel(
            f"config.json: rope_type {quoted(p.get('rope_type'))} needs a number in {name}; "
            f"it is {quoted(value)}"
        )
    return float(value)
