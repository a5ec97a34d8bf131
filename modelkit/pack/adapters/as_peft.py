"""An adapter in PEFT's form, which transformers, PEFT and whoever reads those take.

Names are those of the package's own checkpoint, which are transformers', too. Ranks and scales that differ
from module to module become `rank_pattern` and `alpha_pattern`.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modelkit.pack.adapters.fused import unpacked
from modelkit.pack.adapters.given import Given, as_it_is, folder_files
from modelkit.source.adapters.peft import CONFIG, PREFIX, WEIGHTS

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.nn.low_rank import LowRank

_OWNERS = ("model.", "lm_head")


def peft_files(given: Given) -> dict[str, bytes]:
    """Raises PlanError for what PEFT's form cannot say."""
    _check(given)
    brought = given.brought
    tensors = {f"{PREFIX}{name}": array for name, array in brought.whole.items()}
    for name, pair in brought.pairs.items():
        leaves = _leaves(pair, given.kinds.get(name) == "table")
        tensors |= {f"{PREFIX}{name}.{leaf}": array for leaf, array in leaves.items()}
    return folder_files(CONFIG, _config(given), WEIGHTS, tensors)


def _check(given: Given) -> None:
    known = given.ways(unpacked(given.origin.source), unties=given.adapter.unties)
    for place, parameter in enumerate(known.parameters):
        if not parameter.startswith(_OWNERS) or not as_it_is(known.of.get(parameter), place):
            given.refuse(f"changes {parameter}, which checkpoints of this model have otherwise")
    for name, pair in given.brought.pairs.items():
        if pair.down.ndim > 2 or pair.up.ndim > 2:
            given.refuse(f"has pairs for a stack, {name}")


def _config(given: Given) -> dict[str, Any]:
    brought = given.brought
    ranks = {name: pair.down.shape[-1] for name, pair in brought.pairs.items()}
    alphas = {name: pair.scale * ranks[name] for name, pair in brought.pairs.items()}
    rank, alpha = (Counter(of.values()).most_common(1)[0][0] if of else 1 for of in (ranks, alphas))
    whole = {name.rpartition(".")[0] for name in brought.whole}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": given.adapter.base,
        "target_modules": sorted(brought.pairs),
        "r": rank,
        "lora_alpha": _number(alpha),
        "rank_pattern": {name: its for name, its in sorted(ranks.items()) if its != rank},
        "alpha_pattern": {name: _number(its) for name, its in sorted(alphas.items()) if its != alpha},
        "lora_dropout": 0.0,
        "bias": "none",
        "lora_bias": any(pair.bias is not None for pair in brought.pairs.values()),
        "use_dora": any(pair.magnitude is not None for pair in brought.pairs.values()),
        "use_rslora": False,
        "fan_in_fan_out": False,
        "modules_to_save": sorted(whole) or None,
        "inference_mode": True,
    }


def _number(value: float) -> float:
    """Whole where it is: most are, and PEFT's own are."""
    return int(value) if value == int(value) else value


def _leaves(pair: "LowRank", table: bool) -> "Mapping[str, mx.array]":
    """As PEFT calls and turns them: outputs first, of a table's two the ranks first and last."""
    if table:
        found = {"lora_embedding_A": pair.down.T, "lora_embedding_B": pair.up.T}
    else:
        found = {"lora_A.weight": pair.down.T, "lora_B.weight": pair.up.T}
    if pair.magnitude is not None:
        found["lora_magnitude_vector" if table else "lora_magnitude_vector.weight"] = pair.magnitude
    if pair.bias is not None:
        found["lora_B.bias"] = pair.bias
    return found
