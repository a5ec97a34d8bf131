"""Fields of a config.json that a model class of somebody else might pass over in silence.

Such a class takes from the config what its arguments name and ignores the rest. Most of the rest does not
matter, but a rope that is not scaled or a window that is not looked through gives wrong text without any
error. Here such fields are either put where the class looks for them, or the config is refused.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from runtime.errors import UnsupportedModel

Raw = Mapping[str, Any]

_NESTED = ("text_config", "llm_config", "language_config")
_HUGE = 1 << 31
# Counts of modules that a constructor makes one by one, by how the field's name ends.
_COUNTED = {"layers": 4096, "n_layer": 4096, "loops": 4096, "experts": 1 << 16}
_ROPE_TYPES = ("rope_type", "type")
_WINDOWS = ("sliding_window", "sliding_window_size", "attention_window_size")
_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_seq_length",
    "max_sequence_length",
    "max_context_length",
    "seq_length",
    "sequence_len",
    "n_ctx",
    "block_size",
)


def check_sizes(raw: Raw) -> None:
    """Raise UnsupportedModel for numbers that could only come from a broken or hostile file."""
    for name, value in _numbers(raw):
        limit = next((most for end, most in _COUNTED.items() if name.endswith(end)), _HUGE)
        if isinstance(value, int) and not -limit <= value <= limit:
            raise UnsupportedModel(f"config.json: {name} is {value!r:.40}, more than {limit}")


def _numbers(raw: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            yield from _numbers(value, str(key))
    elif isinstance(raw, list):
        for value in raw:
            yield from _numbers(value, name)
    else:
        yield name, raw


def old_spelling(raw: Raw, read: Collection[str]) -> dict[str, Any]:
    """The config with `rope_parameters` taken apart into the fields that came before it, where a class knows
    only those. read: the fields that the class names anywhere.
    """
    spelled = {key: old_spelling(raw[key], read) for key in _NESTED if isinstance(raw.get(key), Mapping)}
    rope = raw.get("rope_parameters")
    if isinstance(rope, Mapping) and "rope_parameters" not in read and not _keyed(rope):
        spelled |= {
            name: rope[name]
            for name in ("rope_theta", "partial_rotary_factor")
            if name in rope and name not in raw
        }
        if raw.get("rope_scaling") is None and _rope_type(rope) != "default":
            spelled["rope_scaling"] = {**rope, "type": _rope_type(rope)}
    return {**raw, **spelled}


def check_fields(raw: Raw, read: Collection[str], who: str) -> None:
    """Raise UnsupportedModel for a field that changes what is computed and that `who` does not read."""
    for level in _levels(raw):
        for name in level.keys() - set(read):
            if name in _NEUTRAL and not _NEUTRAL[name](level[name]):
                raise UnsupportedModel(
                    f"config.json: {name} is {level[name]!r:.120}, which {who} does not look at"
                )


def check_windows(raw: Raw, windows: Collection[int], who: str) -> None:
    """Raise UnsupportedModel where the config asks for sliding windows and no layer of `who` has one."""
    for level in _levels(raw):
        for name in _WINDOWS:
            window = level.get(name)
            if type(window) is int and 0 < window < context_length([level], window + 1) and not windows:
                if level.get("use_sliding_window") is False or _all_full(level):
                    continue
                raise UnsupportedModel(f"config.json: {name} is {window}, and {who} has no layer that slides")


def context_length(levels: "list[Any]", default: int | None) -> int:
    """How long sequences may be, from the first level that says so: a mapping, or an object with attributes.

    UnsupportedModel where none does and there is no default.
    """
    for level in levels:
        for name in _LENGTHS:
            value = level.get(name) if isinstance(level, Mapping) else getattr(level, name, None)
            if type(value) is int and value > 0:
                return value
    if default is None:
        raise UnsupportedModel(
            "config.json does not say how long sequences may be; add max_position_embeddings to it"
        )
    return default


def levels(raw: Raw) -> list[Raw]:
    """The config and the text model's own part of it."""
    return list(_levels(raw))


def _levels(raw: Raw) -> Iterator[Raw]:
    yield raw
    for key in _NESTED:
        if isinstance(raw.get(key), Mapping):
            yield raw[key]


def _keyed(rope: Raw) -> bool:
    """Does it hold a block for each type of layer?"""
    return any(isinstance(value, Mapping) for value in rope.values())


def _rope_type(rope: Any) -> str:
    if not isinstance(rope, Mapping):
        return "default"
    return str(next((rope[name] for name in _ROPE_TYPES if rope.get(name)), "default"))


def _all_full(level: Raw) -> bool:
    kinds = level.get("layer_types")
    return isinstance(kinds, list) and all(kind == "full_attention" for kind in kinds)


def _unset(value: Any) -> bool:
    return value is None or value is False or value == 0


# Fields that change what is computed, and the values of which it is true that they change nothing.
_NEUTRAL = {
    "rope_scaling": lambda value: value is None or _rope_type(value) == "default",
    "rope_parameters": lambda value: not isinstance(value, Mapping) or not _keyed(value),
    "rope_theta": lambda value: value is None or value == 10000,
    "partial_rotary_factor": lambda value: value is None or value == 1,
    "attn_logit_softcapping": _unset,
    "final_logit_softcapping": _unset,
    "logits_soft_cap": _unset,
    "logit_scale": lambda value: value is None or value == 1,
}
