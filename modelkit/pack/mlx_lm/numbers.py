"""What mlx-lm computes in another order or with another factor: rows are moved, numbers multiplied or raised,
so that its formula gives the model's values.
"""

import itertools
import math
from collections.abc import Callable

import mlx.core as mx

from modelkit.pack.mlx_lm.mutable_folder import PARTS, MutableFolder
from modelkit.pack.mlx_lm.names import replaced
from modelkit.pack.mlx_lm.pieces import CannotFix, Computed, joined, rows
from modelkit.pack.planning.plan_types import Output


def lifted(folder: MutableFolder) -> str:
    """Corrections of the choice, all raised alike: what is chosen stays, and no score is below the zeros that
    mlx-lm gives to experts of closed groups.
    """
    ends = "e_score_correction_bias", "gate.expert_bias"
    corrections = [name for name in folder.names() if name.endswith(ends)]
    if not corrections:
        raise CannotFix("corrections")
    for name in corrections:
        tensor = folder.tensor(name)
        folder.put(name, Computed(Output(name, "F32", tensor.shape), tensor, _above_zero))
    return "corrections of the choice of experts are raised above zero, all alike"


def _above_zero(values: mx.array) -> mx.array:
    wide = values.astype(mx.float32)
    return wide + mx.maximum(2**-6 - wide.min(), 0)


def in_pairs(folder: MutableFolder) -> str:
    """Rows that are rotated as halves, in turn: queries and keys are moved alike, so products stay."""
    sizes = ("qk_rope_head_dim", "qk_nope_head_dim", "kv_lora_rank", "num_attention_heads")
    turned, kept, rank, heads = map(folder.count, sizes)
    pairs = [place for i in range(turned // 2) for place in (i, i + turned // 2)]
    size = kept + turned
    queries = [
        head * size + row for head in range(heads) for row in (*range(kept), *(kept + p for p in pairs))
    ]
    keys = [*range(rank), *(rank + p for p in pairs)]
    for ends, order in ((("q_b_proj", "self_attn.q_proj"), queries), (("kv_a_proj_with_mqa",), keys)):
        for module in folder.modules(*ends):
            _reorder(folder, module, order)
    folder.say(rope_interleave=True)
    return "rows of queries and keys are rotated as neighbours"


def _reorder(folder: MutableFolder, module: str, order: list[int]) -> None:
    for part in PARTS:
        tensor = folder.find(module + part)
        if tensor is not None:
            height = len(order) if len(tensor.shape) == 1 else None
            if tensor.shape[0] != len(order):
                raise CannotFix(tensor.name)
            folder.put(tensor.name, rows(tensor.name, tensor, order, height))


def multipliers(folder: MutableFolder) -> str:
    """mlx-lm multiplies the other numbers into unpacked weights itself; the values' it leaves out, too."""
    if any(name.endswith(("_proj.bias", "_proj.scales")) for name in folder.names()):
        raise CannotFix("biases")
    for end, field in (("k_proj", "key_multiplier"), ("v_proj", "attention_in_multiplier")):
        factor = folder.number(field)
        for module in folder.modules(f"self_attn.{end}"):
            tensor = folder.tensor(f"{module}.weight")
            output = Output(tensor.name, tensor.dtype, tensor.shape)
            folder.put(tensor.name, Computed(output, tensor, _times(factor)))
    folder.say(key_multiplier=1.0)
    return "key_multiplier is multiplied into keys, attention_in_multiplier into values"


def _times(factor: float) -> Callable[[mx.array], mx.array]:
    return lambda values: values.astype(mx.float32) * factor


def mscale(folder: MutableFolder) -> str:
    """mlx-lm's YaRN multiplies by 0.1 * mscale * ln(factor) + 1."""
    scaling = dict(folder.block.get("rope_scaling") or {})
    factor, attention = scaling.get("factor"), scaling.pop("attention_factor", None)
    yarn = (scaling.get("rope_type") or scaling.get("type")) == "yarn"
    if not yarn or attention is None or not isinstance(factor, int | float) or factor <= 1:
        raise CannotFix("rope_scaling")
    mscale = (attention - 1) / (0.1 * math.log(factor))
    folder.say(rope_scaling={**scaling, "mscale": mscale, "mscale_all_dim": 0})
    return "attention_factor as mscale"


def scaled_by_one(folder: MutableFolder) -> str:
    """YaRN by 1 is no scaling."""
    length = folder.block.get("max_position_embeddings") or 4096
    folder.say(rope_scaling={"type": "yarn", "factor": 1.0, "original_max_position_embeddings": length})
    return "the rope is scaled by 1"


def delta_nets(folder: MutableFolder) -> str:
    _resplit(folder)
    called = {
        ".attention_layer_norm.": ".input_layernorm.",
        ".feedforward_layer_norm.": ".post_attention_layernorm.",
    }
    folder.rename(lambda name: replaced(name, called))
    return "names of norms"


def _resplit(folder: MutableFolder) -> None:
    """transformers 5 saves queries, keys and values of a delta net as equal thirds, whatever their sizes."""
    sizes = [
        folder.count(f"linear_{heads}_head_dim") * folder.count(f"linear_num_{heads}_heads")
        for heads in ("key", "key", "value")
    ]
    places = [0, *itertools.accumulate(sizes)]
    for module in folder.modules("linear_attn.q_proj", "linear_attn.q_conv1d"):
        before, _, kind = module.rpartition(".q_")
        for part in PARTS:
            names = [f"{before}.{letter}_{kind}{part}" for letter in "qkv"]
            three = [folder.find(name) for name in names]
            held = [tensor for tensor in three if tensor is not None]
            if len(held) == 3 and [tensor.shape[0] for tensor in held] != sizes:
                for name, first, last in zip(names, places, places[1:], strict=False):
                    folder.put(name, joined(name, held, first, last))
