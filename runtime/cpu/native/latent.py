"""Latent attention by the kernels: products by heads, packed or not, and the whole sublayer in one node.

Both take the same way through a head's matrix, so a layer has the same bits in parts and as a whole.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.cache.lanes import LaneTraits
from runtime.cpu.native.attend import form_of
from runtime.cpu.native.pairs import adapted_matrix_of
from runtime.cpu.native.products import matrix_of
from runtime.cpu.native.sublayers import joined_to_stream, norms_of
from runtime.parts.attention import LatentAttentionParts

ByHeads = Callable[[Any, mx.array, bool], mx.array]


def by_heads(kernels: Any, otherwise: ByHeads) -> ByHeads:
    """The operation of that name."""
    node = kernels.by_heads

    def by_heads(module: Any, x: mx.array, back: bool) -> mx.array:
        fits = x.dtype == mx.float32 and x.shape[1] == module["weight"].shape[0]
        stack = matrix_of(kernels, module) if fits else None
        return otherwise(module, x, back) if stack is None else node(x, stack, back)

    return by_heads


def latent_attention_of(kernels: Any, kept: LaneTraits, by: LatentAttentionParts, stacks: Any = None) -> Any:
    """The kernels' view of a sublayer that attends to latents in such a memory; None where they have none."""
    heads = by.to_latents, by.to_values
    if len(kept.codecs) != 1 or (stacks is not None and any(stacks.get(stack) for stack in heads)):
        return None
    norms = norms_of(kernels, (by.norm, by.low_norm, by.key_norm, by.after))
    matrices = [adapted_matrix_of(kernels, module, stacks) for module in (*by.opening, by.close)]
    widen = None if by.widen is None else adapted_matrix_of(kernels, by.widen, stacks)
    of_heads = [matrix_of(kernels, stack) for stack in heads]
    if None in (norms, *matrices, *of_heads) or (widen is None) != (by.widen is None):
        return None
    attend = form_of(kernels, kept, by.heads.count, by.heads.scale, value_size=of_heads[1].width)
    if attend is None:
        return None
    assert norms is not None
    norm, low_norm, key_norm, after = norms
    *opening, close = matrices
    traditional = by.heads.rope is not None and by.heads.rope.traditional
    part = kernels.latent(
        norm, opening, low_norm, widen, key_norm, *of_heads, attend, traditional, close, after
    )
    return joined_to_stream(by, part)
