"""Heads of latent attention: files join what each makes keys and values of, networks have them apart.

Letters as in `runtime.nn.attention.mla`: N content of a key, V a value, R the latent.
"""

import mlx.core as mx

from runtime.nn.attention.mla import LatentShape
from runtime.tensors.experts import Weights
from runtime.weights.packing import stored_packing, unpacked


def split_latent_heads(weights: Weights, shape: LatentShape) -> Weights:
    """Stored `kv_b_proj`, each head's rows for keys before those for values, -> `k_b_proj` and `v_b_proj`.

    Rows move whole, so packed matrices are split alike. MLX splits too, into `embed_q` [H, R, N], which is
    turned, and `unembed_out` [H, V, R].
    """
    split: Weights = {}
    for name, array in weights.items():
        stem, found, leaf = name.rpartition(".kv_b_proj.")
        if found and array.ndim == 2 and array.shape[0] == shape.heads * (shape.content + shape.value):
            rows = array.reshape(shape.heads, shape.content + shape.value, array.shape[1])
            split[f"{stem}.k_b_proj.{leaf}"] = mx.contiguous(rows[:, : shape.content])
            split[f"{stem}.v_b_proj.{leaf}"] = mx.contiguous(rows[:, shape.content :])
        elif name.endswith(".embed_q.weight"):
            split[name.replace(".embed_q.", ".k_b_proj.")] = _transposed(weights, name, shape)
        elif ".embed_q." not in name:
            split[name.replace(".unembed_out.", ".v_b_proj.")] = array
    return split


def _transposed(weights: Weights, name: str, shape: LatentShape) -> mx.array:
    """embed_q with its last two axes swapped. Packed along the axis that moves, it has to be unpacked."""
    array, stem = weights[name], name.removesuffix("weight")
    scales, biases = weights.get(f"{stem}scales"), weights.get(f"{stem}biases")
    packing = None if scales is None else stored_packing(shape.content, array, scales, biases)
    if scales is not None and packing is not None:
        array = unpacked(array, scales, biases, packing, mx.float32)
    return array.swapaxes(-1, -2)
