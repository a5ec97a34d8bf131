"""Names of tensors in checkpoints -> those used here, which transformers writes for a text model.

`model.embed_tokens`, `model.layers.N`, `model.norm`, `lm_head`. What a family alone calls otherwise is for
its `adapt`; towers for other media are left out before that (`unused`).
"""

import re
from collections.abc import Iterable

import mlx.core as mx

from runtime.config.decoder import DecoderConfig
from runtime.tensors.checkpoint import TRUNK
from runtime.tensors.towers import text_name


def text_tower(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The tensors of a multimodal checkpoint's text model, named as in a text-only one.

    Wrappers are named `language_model.model.` (transformers 4, MLX) or `model.language_model.` (since 4.52).
    """
    return {text_name(name): array for name, array in weights.items()}


def renamed(name: str, prefixes: Iterable[str], rules: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """Without the first of these prefixes that it has, and with what each rule finds replaced, in order."""
    name = name.removeprefix(next((one for one in prefixes if name.startswith(one)), ""))
    for pattern, new in rules:
        name = pattern.sub(new, name)
    return name


def spelled(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    """With the first of each pair replaced by the second, in order: a part that begins with a dot, or the
    beginning of the name.
    """
    for theirs, ours in pairs:
        if theirs.startswith("."):
            name = name.replace(theirs, ours)
        elif name.startswith(theirs):
            name = ours + name.removeprefix(theirs)
    return name


def respelled(
    weights: dict[str, mx.array], pairs: Iterable[tuple[str, str]], trunk: str = ""
) -> dict[str, mx.array]:
    """With the first of each pair replaced by the second, in order. trunk: what stands before all names but
    the head's, and is put there first where a file of the trunk alone leaves it out.
    """
    pairs, out = tuple(pairs), dict[str, mx.array]()
    for name, array in weights.items():
        name = name if name.startswith((trunk, "lm_head.")) else trunk + name
        for theirs, ours in pairs:
            name = name.replace(theirs, ours)
        out[name] = array
    return out


def without_spares(config: DecoderConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Without a head that repeats a tied embedding. What a file of the trunk alone has no prefix for, as
    embeddings are published and AutoModel saves it, gets one.
    """
    spare_head = ("lm_head.",) if config.tied else ()
    return {
        TRUNK + name if name.startswith(_BARE) else name: array
        for name, array in weights.items()
        if not name.startswith(spare_head)
    }


def text_tensors(config: DecoderConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The same of a text model that may stand in a wrapper."""
    return without_spares(config, text_tower(weights))


_BARE = "embed_tokens.", "layers.", "norm."

GPT_TRUNK = (
    ("transformer.h.", "model.layers."),
    ("transformer.wte.", "model.embed_tokens."),
    ("transformer.wpe.", "model.embed_positions."),
    ("transformer.ln_f.", "model.norm."),
    (".ln_1.", ".input_layernorm."),
    (".ln_2.", ".post_attention_layernorm."),
)
"""GPT-2's names, which many had after it, for what stands around sublayers."""
GPT_NAMES = (
    *GPT_TRUNK,
    (".attn.c_attn.", ".self_attn.qkv_proj."),
    (".attn.c_proj.", ".self_attn.o_proj."),
    (".mlp.c_fc.", ".mlp.up_proj."),
    (".mlp.c_proj.", ".mlp.down_proj."),
)
"""And for these, too."""
