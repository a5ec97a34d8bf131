"""An adapter in PEFT's form, which transformers, PEFT and whoever reads those take.

Names are those of the package's own checkpoint, which are transformers', too. Ranks and scales that differ
from module to module become `rank_pattern` and `alpha_pattern`. PEFT has names for a head and an embedding
that are one, and keeps apart what is said of either, as a package does; rows of the embedding hold for both.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modelkit.pack.adapters.fused import unpacked
from modelkit.pack.adapters.given import HEAD_WEIGHT, Given, as_it_is, folder_files
from modelkit.source.adapters.peft import CONFIG, PREFIX, TOKENS, WEIGHTS

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.nn.low_rank import LowRank, Rows

_OWNERS = ("model.", "lm_head")


def peft_files(given: Given) -> dict[str, bytes]:
    """Raises PlanError for what PEFT's form cannot say."""
    _check(given)
    brought = given.brought
    tensors = {f"{PREFIX}{name}": array for name, array in brought.whole.items()}
    for name, pair in brought.pairs.items():
        leaves = _leaves(pair, given.kinds.get(name) == "table")
        tensors |= {f"{PREFIX}{name}.{leaf}": array for leaf, array in leaves.items()}
    for name, rows in _rows(given).items():
        tensors[f"{PREFIX}{_module(name)}{TOKENS}"] = rows.values
    return folder_files(CONFIG, _config(given), WEIGHTS, tensors)


def _check(given: Given) -> None:
    known = given.ways(unpacked(given.origin.source), apart=True)
    for place, parameter in enumerate(known.parameters):
        if not parameter.startswith(_OWNERS) or not as_it_is(known.of.get(parameter), place):
            given.refuse(f"changes {parameter}, which checkpoints of this model have otherwise")
    both = [name for name in _rows(given) if _module(name) in given.brought.pairs]
    if both:
        given.refuse(f"has a pair and rows of its own for {both[0]}")
    for name, pair in given.brought.pairs.items():
        if pair.down.ndim > 2 or pair.up.ndim > 2:
            given.refuse(f"has pairs for a stack, {name}")


def _rows(given: Given) -> "Mapping[str, Rows]":
    """By the table's parameter. Those of an embedding that is the head, too, hold for both in PEFT."""
    rows = dict(given.brought.rows)
    if given.table in rows:
        rows.pop(HEAD_WEIGHT, None)
    return rows


def _config(given: Given) -> dict[str, Any]:
    brought = given.brought
    ranks = {name: pair.down.shape[-1] for name, pair in brought.pairs.items()}
    alphas = {name: pair.scale * ranks[name] for name, pair in brought.pairs.items()}
    rank, alpha = (Counter(of.values()).most_common(1)[0][0] if of else 1 for of in (ranks, alphas))
    whole = {_module(name) for name in brought.whole}
    tokens = {_module(name): rows.ids.tolist() for name, rows in sorted(_rows(given).items())}
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
        "trainable_token_indices": tokens or None,
        "inference_mode": True,
    }


def _module(parameter: str) -> str:
    return parameter.rpartition(".")[0]


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
