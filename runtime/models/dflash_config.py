"""What a block draft's config.json says (DFlash), in the spellings of those who publish them.

Fields of the drafting itself stand in `dflash_config` or beside everything else; the rest is a Qwen 3
config. What a file says of the head (`output_multiplier`, `final_logit_softcapping`) describes the target's,
which is used as it is. Anything else in `dflash_config` belongs to a kin that is not computed here (DFlash 2,
Domino, drafts with an embedding for masks) and is refused.
Source: z-lab/dflash `model.py`; vLLM `qwen3_dflash.py` for how sliding and causal layers are told.
"""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.laguna import gates, layer_rope
from runtime.models.registry.names import architecture_name
from runtime.quoting import quoted, shown
from runtime.records import dataclass

LARGEST_BLOCK = 1 << 10
_SLIDING = "sliding_attention"
_KNOWN = (
    "mask_token_id",
    "target_layer_ids",
    "num_target_layers",
    "target_hidden_size",
    "block_size",
    "causal",
    "causal_head",
    "use_swa",
    "swa_window_size",
    "input_embedding_scale",
    "output_multiplier",
    "final_logit_softcapping",
)


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """Of a block draft. `vocab_size` is 0: embedding and head are the target's."""

    block: int
    """Tokens of a block, the last known one first."""
    mask_token: int
    """Id that stands where a token is yet to be drafted."""
    target_layers: tuple[int, ...]
    """Indices of the target's layers whose states are read."""
    causal: tuple[bool, ...]
    """Of each layer: tokens of a block see only those before them in it."""
    bias: bool = False
    """Of the attention's projections."""
    embed_scale: float = 1.0
    """The target's embeddings are multiplied by it."""
    gates: int = 0
    """Numbers per token that scale the answer of attention; 0: none."""
    norms_context: bool = False
    """What is read is normed per target layer and again per layer of the draft (Laguna)."""
    of_layers: int | None = None
    """Layers of the target; None: the file does not say."""
    of_vocab: int | None = None
    """Ids of the target's vocabulary; None: the file does not say."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = _fields(raw)
    shape = read_shape(fields)
    shape["vocab_size"] = 0
    layers = layer_count(fields)
    of_laguna = architecture_name(raw) == "DFlashLagunaForCausalLM"
    windows, causal = read_reach(fields, layers)
    if of_laguna:
        kinds = ["full_attention" if window is None else _SLIDING for window in windows]
        ropes = tuple(layer_rope(fields, shape, kind) for kind in kinds)
    else:
        turned_in_pairs = fields.flag("rope_interleaved")
        ropes = (one_rope(fields, shape, theta=1e6, traditional=turned_in_pairs),) * layers
    reach = min((window for window in windows if window is not None), default=LARGEST_BLOCK)
    target_hidden = fields.count("target_hidden_size", shape["hidden_size"])
    if target_hidden != shape["hidden_size"]:
        raise UnsupportedModel(
            f"config.json: target_hidden_size is {target_hidden} and hidden_size {shape['hidden_size']}; "
            f"a block draft shares its target's embedding, so they must agree"
        )
    return Config(
        **shape,
        windows=windows,
        ropes=ropes,
        block=fields.count("block_size", 16, low=2, high=min(reach, LARGEST_BLOCK)),
        mask_token=fields.count("mask_token_id", low=0),
        target_layers=_target_layers(fields, layers),
        causal=causal,
        bias=fields.flag("attention_bias"),
        embed_scale=fields.number("input_embedding_scale", 1.0),
        gates=gates(fields, shape) if of_laguna else 0,
        norms_context=of_laguna,
        of_layers=fields.count("num_target_layers") if fields.has("num_target_layers") else None,
        of_vocab=fields.count("draft_vocab_size") if fields.has("draft_vocab_size") else None,
    )


def _fields(raw: Mapping[str, Any]) -> Fields:
    """The file's fields, those of `dflash_config` in front; UnsupportedModel for what is not known here."""
    own = raw.get("dflash_config") or {}
    if not isinstance(own, Mapping):
        raise UnsupportedModel(f"config.json: dflash_config should be an object; it is {quoted(own)}")
    for name, value in own.items():
        if name not in _KNOWN and value not in (None, False, 0):
            raise UnsupportedModel(
                f"config.json: dflash_config.{shown(name)} is {quoted(value)}, which is not computed here"
            )
    return Fields({**raw, **own, "vocab_size": 1, "tie_word_embeddings": True})


def read_reach(fields: Fields, layers: int) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Windows of all layers, and which of them are causal inside a block.

    Without a word about causality, layers that `layer_types` lets slide are causal and others are not;
    `use_swa` lets all layers slide and changes nothing about causality.
    """
    kinds = fields.words("layer_types", layers, ("full_attention", _SLIDING))
    listed = [kind == _SLIDING for kind in kinds or ()]
    slides = listed if any(listed) else [fields.flag("use_swa")] * layers
    window = None
    if any(slides):
        window = fields.count("swa_window_size" if fields.has("swa_window_size") else "sliding_window", low=2)
    stated = [name for name in ("is_causal", "causal", "causal_head") if fields.has(name)]
    causal = [fields.flag(stated[0])] * layers if stated else listed if any(listed) else [False] * layers
    return tuple(window if slide else None for slide in slides), tuple(causal)


def _target_layers(fields: Fields, layers: int) -> tuple[int, ...]:
    if fields.has("target_layer_ids"):
        return listed_targets(fields, None)
    return _spread(fields.count("num_target_layers", low=4), layers)


def _spread(of_layers: int, layers: int) -> tuple[int, ...]:
    """The layers that the first drafts were trained on, whose files do not list them."""
    if layers == 1:
        return (of_layers // 2,)
    return tuple(round(1 + i * (of_layers - 4) / (layers - 1)) for i in range(layers))


def listed_targets(fields: Fields, default: list[int] | None) -> tuple[int, ...]:
    listed: Any = fields.raw.get("target_layer_ids") or default
    good = isinstance(listed, list) and 0 < len(listed) <= 256
    if not good or any(type(i) is not int or not 0 <= i < 4096 for i in listed):
        raise UnsupportedModel(
            f"config.json: target_layer_ids should list layers of the target; it is {quoted(listed)}"
        )
    return tuple(listed)
