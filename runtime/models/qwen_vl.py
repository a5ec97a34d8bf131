"""The text towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: Qwen2 and Qwen3 under a wrapper's names.

Their positions have three axes (M-RoPE). For text all three count alike, which is the plain rotation.
"""

from collections.abc import Mapping
from typing import Any

from runtime.config.fields import Fields
from runtime.models import llama
from runtime.models.family import Family
from runtime.models.llama import Config, build, layout
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import text_tensors
from runtime.tensors.towers import USUAL

_TEXT = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
}

# What transformers' configs take for a field that a file leaves out, where the plain model's differ.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "qwen2": {"rms_norm_eps": 1e-5},
    "qwen3": {"max_position_embeddings": 128000},
}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    kind = _TEXT[fields.choice("model_type", tuple(_TEXT))]
    block = fields.rope_parameters(theta=1e6 if kind == "qwen2" else 500000.0)
    own = {name: value for name, value in _DEFAULTS[kind].items() if not fields.has(name)}
    said = {**fields.raw, **own, "model_type": kind, "rope_parameters": block, "rope_scaling": None}
    return llama.parse(said)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=text_tensors,
    checkpoint=always(Checkpoint(towers=USUAL)),
)
