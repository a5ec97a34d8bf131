"""Which rule splits a sublayer."""

from collections.abc import Callable
from typing import Any

from runtime.cache.layout import Chunked, Full, LayerSpec, Recurrent, Rotating
from runtime.nn.delta_net import GatedDeltaNet
from runtime.nn.kimi_delta import KimiDelta
from runtime.nn.mamba2 import Mamba2
from runtime.nn.mla import LatentAttention
from runtime.nn.mlp import MLP, FusedGatedMLP, GatedMLP
from runtime.nn.moe import Experts
from runtime.nn.sparse import GatedSharedMoE, SharedMoE, SoftmaxMoE
from runtime.ranks.pieces import Shard
from runtime.ranks.recurrences import split_delta, split_kimi, split_mamba2
from runtime.ranks.splits import Split, split_attention, split_latent, split_mlp, split_sparse

Rule = Callable[[Any, LayerSpec | None, Shard], Split]
Found = tuple[tuple[type, ...], Rule]
"""The kinds of memory that a sublayer may have, and its rule."""

ATTENTION, RECURRENT, NOTHING = (Full, Rotating, Chunked), (Recurrent,), ()

RULES: dict[type, Found] = {
    GatedDeltaNet: (RECURRENT, split_delta),
    KimiDelta: (RECURRENT, split_kimi),
    Mamba2: (RECURRENT, split_mamba2),
    GatedSharedMoE: (NOTHING, split_sparse),
    SoftmaxMoE: (NOTHING, split_sparse),
    SharedMoE: (NOTHING, split_sparse),
    Experts: (NOTHING, split_mlp),
    GatedMLP: (NOTHING, split_mlp),
    FusedGatedMLP: (NOTHING, split_mlp),
    MLP: (NOTHING, split_mlp),
}
"""By the class of a sublayer: what others made of it is not known."""


def rule_for(module: Any) -> Found | None:
    """Attention of any class that says what it is with fewer heads (`of_heads`), and any latent one."""
    if hasattr(module, "of_heads"):
        return ATTENTION, split_attention
    if isinstance(module, LatentAttention):
        return ATTENTION, split_latent
    return RULES.get(type(module))
