"""An adapter in PEFT's form, which transformers, PEFT and whoever reads those take.

Names are those of the package's own checkpoint, which are transformers', too. Ranks and scales that differ
from module to module become `rank_pattern` and `alpha_pattern`. PEFT has names for a head and an embedding
that are one, and keeps apart what is said of either, as a package does; rows of the embedding hold for both.
Of a model in a wrapper names are those of transformers 5, whichever its files have.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modelkit.pack.adapters.fused import unpacked
from modelkit.pack.adapters.given import HEAD_WEIGHT, Given, as_it_is, folder_files
from modelkit.pack.families import checkpoint_of
from modelkit.source.adapters.peft import CONFIG, PREFIX, TOKENS, WEIGHTS
from runtime.models.towers import unwrapped
from runtime.models.wrapper import text_block

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.nn.low_rank import LowRank, Rows

_ROUTERS = (".gate", ".router")
"""Ends of names of what is no layer in transformers, but a module with a parameter."""
_OWNERS = ("model.", "lm_head", "language_model.")


def peft_files(given: Given) -> dict[str, bytes]:
    """Raises PlanError for what PEFT's form cannot say."""
    _check(given)
    called, brought = _names(given), given.brought
    tensors = {f"{PREFIX}{_place(name, given, called)}": array for name, array in brought.whole.items()}
    for name, pair in brought.pairs.items():
        module = _module(called[f"{name}.weight"])
        leaves = _leaves(pair, given.kinds.get(name) == "table")
        tensors |= {f"{PREFIX}{module}.{leaf}": array for leaf, array in leaves.items()}
    for name, rows in _rows(given).items():
        tensors[f"{PREFIX}{_module(called[name])}{TOKENS}"] = rows.values
    return folder_files(CONFIG, _config(given, called), WEIGHTS, tensors)


def _place(name: str, given: Given, called: Mapping[str, str]) -> str:
    """Where a whole parameter lies: a module that has a pair holds its own inside."""
    module, _, leaf = called[name].rpartition(".")
    return f"{module}.base_layer.{leaf}" if _module(name) in given.brought.pairs else called[name]


def _check(given: Given) -> None:
    both = [name for name in _rows(given) if _module(name) in given.brought.pairs]
    if both:
        given.refuse(f"has a pair and rows of its own for {both[0]}")
    for name, pair in given.brought.pairs.items():
        if pair.down.ndim > 2 or pair.up.ndim > 2:
            given.refuse(f"has pairs for a stack, {name}")


def _names(given: Given) -> dict[str, str]:
    """What transformers calls the parameters that the adapter changes."""
    inventory = unpacked(given.origin.source)
    known = given.ways(inventory, apart=True)
    stored = {int(way.parameter.flat[0]): name for name, way in known.of.items()}
    config = inventory.config
    inside = checkpoint_of(config).inside if text_block(config) else None
    found = {HEAD_WEIGHT: f"{inside[1] if inside else ''}{HEAD_WEIGHT}"}
    for place, parameter in enumerate(known.parameters):
        name = stored.get(place, "")
        if not name.startswith(_OWNERS) or not as_it_is(known.of.get(name), place):
            given.refuse(f"changes {parameter}, which checkpoints of this model have otherwise")
        found[parameter] = _called(name, inside)
        if found[parameter] != parameter and inside is None:
            given.refuse(f"changes {parameter}, which checkpoints of this model have otherwise")
    return found


def _called(name: str, inside: tuple[str, str] | None) -> str:
    if inside is None:
        return name
    bare = unwrapped(name)
    return inside[bare == HEAD_WEIGHT] + bare


def _rows(given: Given) -> "Mapping[str, Rows]":
    """By the table's parameter. Those of an embedding that is the head, too, hold for both in PEFT, unless
    the head has some for other ids.
    """
    rows = dict(given.brought.rows)
    table, head = (rows.get(name) for name in (given.table or "", HEAD_WEIGHT))
    if table and head and table.ids.tolist() == head.ids.tolist():
        del rows[HEAD_WEIGHT]
    return rows


def _config(given: Given, called: Mapping[str, str]) -> dict[str, Any]:
    brought = given.brought
    pairs = {_target(_module(called[f"{name}.weight"]), given): pair for name, pair in brought.pairs.items()}
    ranks = {name: pair.down.shape[-1] for name, pair in pairs.items()}
    alphas = {name: pair.scale * ranks[name] for name, pair in pairs.items()}
    rank, alpha = (Counter(of.values()).most_common(1)[0][0] if of else 1 for of in (ranks, alphas))
    saved = {_module(name) for name in brought.whole if name.endswith(".weight")} - brought.pairs.keys()
    whole = {_module(called[f"{name}.weight"]) for name in saved}
    biases = {_module(name) for name in brought.whole if name.endswith(".bias")} - saved
    paired = biases <= brought.pairs.keys()
    tokens = {_module(called[name]): rows.ids.tolist() for name, rows in sorted(_rows(given).items())}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": given.adapter.base,
        "target_modules": sorted(name for name in pairs if not name.endswith(".weight")),
        "target_parameters": sorted(name for name in pairs if name.endswith(".weight")) or None,
        "r": rank,
        "lora_alpha": _number(alpha),
        "rank_pattern": {name: its for name, its in sorted(ranks.items()) if its != rank},
        "alpha_pattern": {name: _number(its) for name, its in sorted(alphas.items()) if its != alpha},
        "lora_dropout": 0.0,
        "bias": "none" if not biases else "lora_only" if paired else "all",
        "lora_bias": any(pair.bias is not None for pair in brought.pairs.values()),
        "use_dora": any(pair.magnitude is not None for pair in brought.pairs.values()),
        "use_rslora": False,
        "fan_in_fan_out": False,
        "modules_to_save": sorted(whole) or None,
        "trainable_token_indices": tokens or None,
        "inference_mode": True,
    }


def _target(module: str, given: Given) -> str:
    """What PEFT is told of a pair: a layer, or a parameter, for which it has no DoRA and no bias."""
    every = given.brought.pairs.values()
    plain = all(pair.bias is None and pair.magnitude is None for pair in every)
    return f"{module}.weight" if plain and module.endswith(_ROUTERS) else module


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
