"""Experts as checkpoints store them, one by one, fused or stacked, brought into one form.

All of it is lazy, looks at names and shapes only, and treats the three tensors of a quantized matrix alike.
"""

import re

import mlx.core as mx

from runtime.tensors.names import respelled

Weights = dict[str, mx.array]

_EXPERT = re.compile(r"(.*\.experts)\.(\d{1,5})\.(.+)")
_HALVES = re.compile(r"(.*\.)gate_up_proj(\.weight|\.scales|\.biases|\.bias|)$")


def stacked_experts(weights: Weights, experts: int) -> Weights:
    """`X.experts.3.Y` for every expert becomes one tensor `X.experts.Y` with the expert as its first axis.

    A set that is not whole, or not of one shape, stays as it is and is reported as surplus.
    """
    sets: dict[tuple[str, str], dict[int, mx.array]] = {}
    kept: Weights = {}
    for name, array in weights.items():
        found = _EXPERT.fullmatch(name)
        if found is None:
            kept[name] = array
        else:
            sets.setdefault((found[1], found[3]), {})[int(found[2])] = array
    for (stem, leaf), members in sets.items():
        same = len({(array.shape, array.dtype) for array in members.values()}) == 1
        if same and sorted(members) == list(range(experts)):
            kept[f"{stem}.{leaf}"] = mx.stack([members[i] for i in range(experts)])
        else:
            kept.update({f"{stem}.{i}.{leaf}": array for i, array in members.items()})
    return kept


def split_gate_up(weights: Weights) -> Weights:
    """A fused `gate_up_proj` [..., 2F, in] becomes gate_proj and up_proj, the first half being the gate.

    Tensors that transformers holds without `.weight` gain it.
    """
    kept: Weights = {}
    for name, array in weights.items():
        found = _HALVES.fullmatch(name)
        if found is None:
            kept[name] = array
            continue
        axis = -1 if found[2] == ".bias" else -2
        middle = array.shape[axis] // 2
        halves = mx.split(array, [middle], axis=axis)
        for part, half in zip(("gate_proj", "up_proj"), halves, strict=True):
            kept[f"{found[1]}{part}{found[2] or '.weight'}"] = half
    return kept


def switch_names(weights: Weights) -> Weights:
    """Stacked experts under MLX's name: `X.experts.up_proj[.weight]` becomes
    `X.switch_mlp.up_proj.weight`.
    """
    pattern = re.compile(r"(.*\.)experts\.((?:gate|up|down)_proj)(\..+|)")
    kept: Weights = {}
    for name, array in weights.items():
        found = pattern.fullmatch(name)
        kept[f"{found[1]}switch_mlp.{found[2]}{found[3] or '.weight'}" if found else name] = array
    return kept


def to_switch(weights: Weights, experts: int) -> Weights:
    """Every published spelling of gated experts -> `X.switch_mlp.{gate,up,down}_proj`."""
    return switch_names(split_gate_up(stacked_experts(weights, experts)))


def output_first(weights: Weights) -> Weights:
    """Fused experts stored [E, in, out] (GPT-OSS, Llama 4, Qwen3-VL-MoE) -> [E, out, in] as everywhere else.

    Only the unquantized tensors that transformers holds without `.weight` are stored so.
    """
    pattern = re.compile(r".*\.experts\.(?:gate_up|down)_proj")
    return {
        name: array.swapaxes(-1, -2) if array.ndim == 3 and pattern.fullmatch(name) else array
        for name, array in weights.items()
    }


def cut_piles(weights: Weights, experts: int, hidden: int) -> Weights:
    """Matrices of all experts, one below the other [E * F, D], F numbers inside an expert, as stacks [E, out,
    in]. Those of down_proj lie input first.
    """
    pattern = re.compile(r".*\.experts\.(?:gate|up|down)_proj")
    kept: Weights = {}
    for name, array in weights.items():
        if array.ndim == 2 and pattern.fullmatch(name):
            stack = array.reshape(experts, -1, hidden)
            array = stack.swapaxes(-1, -2) if name.endswith("down_proj") else stack
        kept[name] = array
    return kept


MODULES = ((".block_sparse_moe.", ".mlp."),)
"""What transformers 5 calls otherwise than files with these names."""
_NUMBERED = (
    *MODULES,
    (".w1.", ".gate_proj."),
    (".w3.", ".up_proj."),
    (".w2.", ".down_proj."),
)


def numbered_names(weights: Weights) -> Weights:
    """Mixtral's names, in which an expert's matrices have numbers, as the names of the others."""
    return respelled(weights, _NUMBERED)
