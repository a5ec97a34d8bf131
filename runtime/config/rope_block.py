"""Which block of a config says how positions are rotated, and that each field of it is what it should be.

transformers 5 writes `rope_parameters`, older files `rope_theta` and `rope_scaling`. A file may have both:
then a filled `rope_scaling` takes the place of the other one, and in families whose layers rotate in two ways
it changes the block of the full layers. That is what transformers 5.23 does
(`RotaryEmbeddingConfigMixin.convert_rope_params_to_dict`), and what model cards lead people to ("add this
rope_scaling to config.json").

Every field that is known here is checked wherever it stands, also by rope types that do not use it. What is
read by nobody here (`mrope_interleaved`, `finetuned`) passes. Messages give the whole path of a field.
"""

from collections.abc import Mapping
from typing import Any, NoReturn, cast

from runtime.errors import UnsupportedModel
from runtime.quoting import quoted

_LONG = (1 << 31) - 1
# Inclusive ends. A wavelength is a power of the base times a factor: within these, nothing leaves float32.
_NUMBERS: dict[str, tuple[float, float]] = {
    "rope_theta": (2.0, 1e15),
    "partial_rotary_factor": (1e-4, 1.0),
    "factor": (1e-3, 1e6),
    "original_max_position_embeddings": (2, _LONG),
    "attention_factor": (1e-3, 1e3),
    "beta_fast": (1e-3, 1e6),
    "beta_slow": (1e-3, 1e6),
    "mscale": (0.0, 1e3),
    "mscale_all_dim": (0.0, 1e3),
    "low_freq_factor": (1e-3, 1e6),
    "high_freq_factor": (1e-3, 1e6),
    "short_mscale": (1e-3, 1e3),
    "long_mscale": (1e-3, 1e3),
    "llama_4_scaling_beta": (0.0, 1e3),
    "alpha": (1e-3, 1e6),
}
_LISTS = {"short_factor": (1e-3, 1e6), "long_factor": (1e-3, 1e6)}
_LONGEST_LIST = 1 << 12
_WITH_ORIGINAL = ("llama3", "yarn", "longrope")
LAYER_TYPES = ("full_attention", "sliding_attention")


def rope_block(raw: Mapping[str, Any], layer_type: str | None, *, theta: float) -> dict[str, Any]:
    """The fields that hold for layers of a type (None: for all layers), nulls left out.

    raw: the text model's fields. theta: the base where the file gives none; a `rope_theta` beside the blocks
    is none of sliding layers. The result always has `rope_type` and `rope_theta`. Raises UnsupportedModel.
    """
    new, old = _mapping(raw, "rope_parameters"), _mapping(raw, "rope_scaling")
    block = _only_block(raw, new, old, theta) if layer_type is None else _block_of(new, old, layer_type)
    if raw.get("rope_theta") is not None and layer_type != "sliding_attention":
        theta = number("rope_theta", raw["rope_theta"])
    merged = {"rope_type": block.pop("type", "default"), "rope_theta": theta, **block}
    for name in ("partial_rotary_factor", "original_max_position_embeddings"):
        _from_outside(raw, merged, name, alone=layer_type is None)
    return merged


def only_repeats(raw: Mapping[str, Any]) -> bool:
    """Does `rope_scaling` say nothing beyond `rope_parameters`? For families that do not look at it."""
    new, old = _mapping(raw, "rope_parameters"), checked(_mapping(raw, "rope_scaling"), "rope_scaling")
    path = "rope_parameters"
    if is_keyed(raw):
        new, path = _mapping(new, "full_attention"), f"{path}.full_attention"
    said = checked(new, path)
    kind = old.pop("type", "default")
    return {"rope_type": kind, **old}.items() <= {"rope_type": said.pop("type", "default"), **said}.items()


def is_keyed(raw: Mapping[str, Any]) -> bool:
    """Does `rope_parameters` hold a block for each type of layer?"""
    block = raw.get("rope_parameters")
    return isinstance(block, Mapping) and any(kind in block for kind in LAYER_TYPES)


def _only_block(
    raw: Mapping[str, Any], new: Mapping[str, Any], old: Mapping[str, Any], theta: float
) -> dict[str, Any]:
    """Where the block that wins lacks what the other one says, transformers falls back to a default of its
    own. Nobody who wrote such a file meant that, so it is refused.
    """
    replaced = checked(new, "rope_parameters")
    if not old:
        return replaced
    block = checked(old, "rope_scaling")
    for name, default in (("rope_theta", theta), ("partial_rotary_factor", 1.0)):
        falls_to = default if raw.get(name) is None else raw[name]
        if name in replaced and name not in block and replaced[name] != falls_to:
            raise UnsupportedModel(
                f"config.json: rope_scaling takes the place of rope_parameters, and only that one gives "
                f"{name} ({quoted(replaced[name])}); write all of it into rope_parameters"
            )
    return block


def _block_of(new: Mapping[str, Any], old: Mapping[str, Any], layer_type: str) -> dict[str, Any]:
    if new and not any(kind in new for kind in LAYER_TYPES):
        raise UnsupportedModel(
            f"config.json: rope_parameters is {quoted(dict(new))}, and layers of this family rotate in two "
            f"ways: it should hold a block for each of {' and '.join(LAYER_TYPES)}"
        )
    path = f"rope_parameters.{layer_type}"
    block = one_of_several(_mapping(new, layer_type, path), path)
    changed = checked(old, "rope_scaling")
    if changed.get("type", "default") != "default":  # which transformers passes over here, and only here
        _refuse("rope_scaling.type", changed["type"], "rope_type as the name of this field")
    return {**block, **changed} if layer_type == "full_attention" else block


def one_of_several(block: Mapping[str, Any], path: str) -> dict[str, Any]:
    """`checked`, of a block for layers of one type: transformers looks for `truncate` beside it alone."""
    own = checked(block, path)
    if own.get("truncate") is False:
        raise UnsupportedModel(f"config.json: {path}.truncate is false, which counts for no layer type")
    return own


def _from_outside(raw: Mapping[str, Any], block: dict[str, Any], name: str, *, alone: bool) -> None:
    """A field that files also have beside the block. The trained length beside it counts for more."""
    value = raw.get(name)
    if value is None:
        return
    stronger = name == "original_max_position_embeddings"
    if stronger and not (alone and block["rope_type"] in _WITH_ORIGINAL):
        return
    if stronger or name not in block:
        block[name] = number(name, value)


def checked(block: Mapping[str, Any], path: str) -> dict[str, Any]:
    """A block without nulls, each known field of it right. Raises UnsupportedModel."""
    out: dict[str, Any] = {}
    for name, value in block.items():
        where = f"{path}.{name}"
        if value is None and name != "truncate":
            continue
        if isinstance(value, Mapping):
            raise UnsupportedModel(
                f"config.json: {where:.80} is a block, and layers of this family all rotate alike"
            )
        out[str(name)] = _field(str(name), value, where)
    if "rope_type" in out:
        out.pop("type", None)
    return out


def _field(name: str, value: Any, where: str) -> Any:
    if name in _NUMBERS:
        return number(name, value, where)
    if name in _LISTS:
        if not isinstance(value, list | tuple) or not 0 < len(value) <= _LONGEST_LIST:
            _refuse(where, value, "a list of numbers")
        return tuple(_within(_LISTS[name], item, f"{where}[{i}]") for i, item in enumerate(value))
    if name in ("rope_type", "type") and not isinstance(value, str):
        _refuse(where, value, "a word")
    if name == "truncate":
        value = bool(value) if value is None else value  # a null is false to transformers
        if not isinstance(value, bool):
            _refuse(where, value, "true or false")
    return value


def number(name: str, value: Any, where: str | None = None) -> float:
    """A field of a rope block, wherever it stands. Raises UnsupportedModel."""
    return _within(_NUMBERS[name], value, where or name)


def _within(ends: tuple[float, float], value: Any, where: str) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not ends[0] <= value <= ends[1]:
        _refuse(where, value, f"a number from {ends[0]:g} to {ends[1]:g}")
    return value


def _mapping(raw: Mapping[str, Any], name: str, path: str | None = None) -> Mapping[str, Any]:
    value = raw.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        _refuse(path or name, value, "an object")
    return cast("Mapping[str, Any]", value)


def _refuse(where: str, value: Any, expected: str) -> NoReturn:
    raise UnsupportedModel(f"config.json: {where} is {quoted(value)}, expected {expected}")
