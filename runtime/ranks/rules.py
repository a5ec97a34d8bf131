"""Which rule splits a sublayer."""

from collections.abc import Callable
from typing import Any

from runtime.cache.layout import Chunked, Encoder, Full, LayerSpec, Recurrent, Rotating
from runtime.nn.attention.block_choice import ChoosingAttention
from runtime.nn.attention.compressed import CompressedAttention
from runtime.nn.attention.mla import LatentAttention
from runtime.nn.recurrent.delta_net import GatedDeltaNet
from runtime.nn.recurrent.kimi_delta import KimiDelta, LingDelta, WideDelta
from runtime.nn.recurrent.lightning import LightningAttention, TurnedLightning
from runtime.nn.recurrent.mamba1 import Mamba1
from runtime.nn.recurrent.mamba2 import Mamba2
from runtime.nn.recurrent.mlstm import MLSTM
from runtime.nn.recurrent.rg_lru import RecurrentBlock
from runtime.nn.residual.sublayer import defined_together
from runtime.ranks.compressed_attention import split_compressed
from runtime.ranks.convolved_attention import split_convolved_attention, split_filtered
from runtime.ranks.experts import split_asked
from runtime.ranks.mamba1 import split_mamba1, split_selective_heads
from runtime.ranks.pieces import Shard
from runtime.ranks.recurrences import (
    split_convolved,
    split_delta,
    split_kimi,
    split_lightning,
    split_mamba2,
    split_mlstm,
    split_rg_lru,
)
from runtime.ranks.rwkv import split_fold, split_mixed_mlp
from runtime.ranks.splits import (
    DENSE,
    EXPERTS,
    Split,
    split_attention,
    split_choosing,
    split_latent,
    split_mlp,
    split_sparse,
)

Rule = Callable[[Any, LayerSpec | None, Shard], Split]
Found = tuple[tuple[type, ...], Rule]
"""The kinds of memory that a sublayer may have, and its rule."""

ATTENTION, ENCODED, RECURRENT, NOTHING = (Full, Rotating, Chunked), (Encoder,), (Recurrent,), ()

RULES: dict[type, Found] = {
    CompressedAttention: (RECURRENT, split_compressed),
    GatedDeltaNet: (RECURRENT, split_delta),
    **dict.fromkeys((KimiDelta, LingDelta, WideDelta), (RECURRENT, split_kimi)),
    **dict.fromkeys((LightningAttention, TurnedLightning), (RECURRENT, split_lightning)),
    RecurrentBlock: (RECURRENT, split_rg_lru),
    MLSTM: (RECURRENT, split_mlstm),
    Mamba1: (RECURRENT, split_mamba1),
    Mamba2: (RECURRENT, split_mamba2),
    **dict.fromkeys((*EXPERTS, *DENSE), (NOTHING, split_mlp)),
}
"""By the class of a sublayer: what others made of it is not known."""


def rule_for(module: Any) -> Found | None:
    """Attention of any class that says what it is with fewer heads (`of_heads`), also where all memories of
    its layer are its own (`memories` is None) or where it `crosses` over to what an encoder has read or
    `joins` that with its own tokens, and any latent one; any mixture that says beside its call what
    it `adds` up, or whom it `asks_whole`; and what says beside its call that each number between its matrices
    is made of its own rows alone, and of sums over all if it has a `total`: a feed-forward part (`by_inner`),
    a gated convolution (`by_channel`); and what says beside its call that it `mixes` a token with the one
    before it, or what of it `reads_all` channels.
    """
    if isinstance(module, ChoosingAttention):
        return ATTENTION, split_choosing
    if getattr(module, "memories", 1) is None:
        return (*ATTENTION, Recurrent), split_convolved_attention
    if hasattr(module, "of_heads") and "conv" in module:
        return (*ATTENTION, Recurrent), split_filtered
    if hasattr(module, "of_heads"):
        if getattr(module, "joins", False):
            return (*ATTENTION, *ENCODED), split_attention
        return ENCODED if getattr(module, "crosses", False) else ATTENTION, split_attention
    if isinstance(module, LatentAttention):
        return ATTENTION, split_latent
    if defined_together(type(module), "__call__", "adds") and module.adds:
        return NOTHING, split_sparse
    if defined_together(type(module), "__call__", "asks_whole"):
        return NOTHING, split_asked
    if defined_together(type(module), "__call__", "by_inner"):
        return NOTHING, split_mlp
    if defined_together(type(module), "__call__", "by_channel"):
        return RECURRENT, split_convolved
    if defined_together(type(module), "__call__", "reads_all"):
        return RECURRENT, split_selective_heads
    if defined_together(type(module), "__call__", "mixes"):
        return RECURRENT, split_fold if module.mixes == "heads" else split_mixed_mlp
    return RULES.get(type(module))
