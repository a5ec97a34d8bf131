"""The config of the text model inside a wrapper, as of a file that has nothing else."""

from collections.abc import Mapping
from typing import Any

from runtime.config.fields import Fields
from runtime.config.text import TEXT_BLOCKS, levels, text_block
from runtime.errors import UnsupportedModel
from runtime.models.multimodal.text_models import BARE, SAME, TEXTS
from runtime.models.multimodal.wrappers import Wrapper, find_wrapper
from runtime.quoting import quoted

Raw = Mapping[str, Any]
_TIED = "tie_word_embeddings"
_NOT = ("architectures", *TEXT_BLOCKS)


def alone(raw: Raw) -> dict[str, Any]:
    """The text model's own config, as of a file that has nothing else. Raises UnsupportedModel."""
    Fields(raw)  # for what it refuses
    row, name = find_wrapper(raw), text_block(raw)
    if name is None and not row.flat:
        raise UnsupportedModel(f"config.json: {raw['model_type']} has no block for its text model")
    block = {**raw, "model_type": None} if name is None else levels(raw)[-1][1]
    kind = str(block.get("model_type") or row.text)
    if kind not in TEXTS:
        raise UnsupportedModel(
            f"config.json: {name}.model_type is {quoted(kind)}, which is none of the text models that are "
            f"computed inside {raw['model_type']}; docs/models.md lists them"
        )
    own = {"model_type": SAME.get(kind, kind), _TIED: _tied(row, _around(raw).get(_TIED), block.get(_TIED))}
    known = {**block, **BARE.get(kind, {}), **own, **_RESPELLED.get(kind, _as_it_is)(block)}
    given = {key: value for key, value in known.items() if (key, value) != (_TIED, None)}
    return {key: value for key, value in {**TEXTS[kind], **given}.items() if key not in _NOT}


def _as_it_is(_: Raw) -> dict[str, Any]:
    return {}


def _one_flag(block: Raw) -> dict[str, Any]:
    """PaddleOCR's, for all biases."""
    biases = Fields(dict(block)).flag("use_bias")
    return {"attention_bias": biases, "mlp_bias": biases}


def _same_axes(block: Raw) -> dict[str, Any]:
    """Hunyuan's rotation by several axes, which count alike for text, has a name of its own."""
    found: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):
        rope = block.get(name)
        if isinstance(rope, Mapping):
            found[name] = {key: "dynamic" if word == "xdrope" else word for key, word in rope.items()}
    return found


def _by_baidu(block: Raw) -> dict[str, Any]:
    """ERNIE 4.5 VL's, in files from before transformers had it: experts for text and for images counted
    apart, and a first and a last layer that has them.
    """
    told, found = block.get("moe_num_experts"), dict[str, Any]()
    if isinstance(told, list) and told:
        if len({*map(str, told)}) > 1:
            Fields(dict(block)).refuse("moe_num_experts", "as many experts for text as for images")
        found["moe_num_experts"] = told[0]
    layers = Fields({**TEXTS["ernie4_5_vl_moe_text"], **block}).count("num_hidden_layers", high=4096)
    start, stop = (_of_both(block, name) for name in ("moe_layer_start_index", "moe_layer_end_index"))
    if block.get("mlp_layer_types") is None and start is not None:
        Fields(dict(block)).count("moe_layer_interval", 1, high=1)
        last = layers - 1 if stop in (None, -1) else stop
        sparse = (start <= i <= last for i in range(layers))
        found["mlp_layer_types"] = ["sparse" if one else "dense" for one in sparse]
    return found


def _of_both(block: Raw, name: str) -> int | None:
    """Which layers have experts for text; those for images must have them where these do."""
    told = block.get(name)
    listed = told if isinstance(told, list) else [told]
    return None if told is None else Fields({name: listed[0] if listed else None}).count(name, low=-1)


_RESPELLED = {
    "ernie4_5_vl_moe_text": _by_baidu,
    "paddleocr_vl_text": _one_flag,
    "hunyuan_vl_text": _same_axes,
}


def _around(raw: Raw) -> Raw:
    """The level whose head it is: what stands around the text model's block."""
    return levels(raw)[-2:][0][1]


def _tied(row: Wrapper, outer: Any, inner: Any) -> Any:
    if row.ties == "inner":
        return inner
    if row.ties == "never":
        return False
    if row.ties == "either" and True in (outer, inner):
        return True
    outer = row.tied if outer is None else outer
    return inner if outer is None else outer
