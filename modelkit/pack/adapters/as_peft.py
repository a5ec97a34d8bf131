"""An adapter in PEFT's form, which transformers, PEFT and whoever reads those take.

Names are those of transformers' classes (`peft_names`), to whose matrices the numbers are taken back
(`taken_back`). Ranks and scales that differ from module to module become `rank_pattern` and `alpha_pattern`.
Stacks of experts and routers are parameters (`target_parameters`), for which PEFT has no DoRA and no bias; of
several in one module the first lie inside, in the order in which PEFT wraps them. PEFT has names for a head
and an embedding that are one, and keeps apart what is said of either, as a package does; rows of the
embedding hold for both.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from modelkit.pack.adapters.exported import HEAD_WEIGHT, ExportedAdapter, as_it_is, folder_files
from modelkit.pack.adapters.fusion_plan import unpacked
from modelkit.pack.adapters.peft_names import called, in_transformers
from modelkit.pack.adapters.shared_blocks import for_every_use
from modelkit.pack.planning.families import checkpoint_of
from modelkit.source.adapters.peft import CONFIG, PREFIX, TOKENS, WEIGHTS
from modelkit.source.tensor import TensorInfo
from runtime.config.text import text_block
from runtime.loading.shapes import is_stack, stack_layouts
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.nn.adapters.low_rank import LowRank, Rows

_ROUTERS = (".gate", ".router")
"""Ends of names of what is not a layer in transformers, but a module with a parameter."""
_OF_EXPERTS = (".gate_proj", ".up_proj", ".down_proj", ".w1", ".w2", ".w3")
"""Layers that PEFT takes for experts' of transformers 4 wherever there are experts, whatever stands before
the name. Said as parameters they are what they are.
"""
_INSIDE = ("gate_up_proj", "up_proj", "down_proj")
"""Parameters of one module, in the order in which PEFT wraps them."""
_WRITER = "0.19.1"
"""The first of PEFT's versions that takes pairs of stacks as they are written here."""


@dataclass(slots=True)
class _PeftTensors:
    """What the adapter says, by names of transformers' tensors."""

    pairs: "dict[str, LowRank]" = field(default_factory=dict)
    whole: "dict[str, mx.array]" = field(default_factory=dict)
    rows: "dict[str, Rows]" = field(default_factory=dict)
    tables: set[str] = field(default_factory=set[str])


def peft_files(exported: ExportedAdapter) -> dict[str, bytes]:
    """Raises PlanError for what PEFT's form cannot say."""
    peft = _peft_tensors(exported)
    both = sorted(peft.rows.keys() & peft.pairs.keys())
    if both:
        exported.refuse(f"has a pair and rows of its own for {_module(both[0])}")
    targets = {name: _target(name, peft, exported) for name in peft.pairs}
    for name in peft.pairs:
        pair = peft.pairs[name]
        if (pair.bias is not None or pair.magnitude is not None) and targets[name] == name:
            exported.refuse(f"has a bias or a magnitude for {name}, which is not a layer in transformers")
    tensors = {PREFIX + _place(name, peft): array for name, array in peft.whole.items()}
    for name, pair in peft.pairs.items():
        module = PREFIX + _owner(name, targets)
        tensors |= {f"{module}.{leaf}": array for leaf, array in _leaves(name, pair, peft, exported).items()}
    for name, rows in peft.rows.items():
        tensors[f"{PREFIX}{_module(name)}{TOKENS}"] = rows.values
    return folder_files(CONFIG, _config(exported, peft, targets), WEIGHTS, tensors)


def _peft_tensors(exported: ExportedAdapter) -> _PeftTensors:
    """Raises PlanError for what the checkpoint has otherwise."""
    from modelkit.pack.adapters.checkpoint_form import Untold, pair_of, shared_places, whole_of

    inventory = unpacked(exported.origin.source)
    shapes = in_transformers(inventory, writes=exported.described.writes)
    some = next(iter(inventory.tensors.values()))
    made = {name: TensorInfo(name, "F32", shape, some.path, 0, 0) for name, shape in shapes.items()}
    known = exported.ways(replace(inventory, tensors=made), apart=True)
    shared, peft, brought = shared_places(known.of), _PeftTensors(), exported.brought
    for name, way in known.of.items():
        try:
            pair = pair_of(way, shapes[name], known, brought, shared) if _is_matrix(name) else None
            whole = whole_of(way, shapes[name], known, brought)
        except Untold as untold:
            exported.refuse(f"changes {name}, which {untold}")
        peft.pairs |= {} if pair is None else {name: pair}
        peft.whole |= {} if whole is None else {name: whole}
        place = int(way.parameter.max())
        parameter = known.parameters[place]
        if parameter in known.tables:
            peft.tables.add(name)
        if parameter in brought.rows:
            if not as_it_is(way, place):
                exported.refuse(f"has rows of {name}, which transformers has otherwise")
            peft.rows[name] = brought.rows[parameter]
    if exported.table is not None:
        _add_head(exported, peft)
    peft.pairs = for_every_use(peft.pairs, exported.described)
    peft.whole = for_every_use(peft.whole, exported.described)
    return peft


def _add_head(exported: ExportedAdapter, peft: _PeftTensors) -> None:
    """What is said of a head that is the embedding, too. Rows of the embedding hold for it in PEFT, unless it
    has some for other ids.
    """
    brought, files = exported.brought, _files(exported)
    wrapped = text_block(exported.origin.source.inventory.config)
    name = called(HEAD_WEIGHT, files, files.inside if wrapped else None)
    module = HEAD_WEIGHT.removesuffix(".weight")
    peft.pairs |= {name: brought.pairs[module]} if module in brought.pairs else {}
    peft.whole |= {name: brought.whole[HEAD_WEIGHT]} if HEAD_WEIGHT in brought.whole else {}
    table, head = (brought.rows.get(one) for one in (exported.table or "", HEAD_WEIGHT))
    if head and not (table and table.ids.tolist() == head.ids.tolist()):
        peft.rows[name] = head


def _files(exported: ExportedAdapter) -> Checkpoint:
    return checkpoint_of(exported.origin.source.inventory.config)


def _is_matrix(name: str) -> bool:
    return name.endswith(".weight") or is_stack(name) or name.rpartition(".")[2] in _INSIDE


def _place(name: str, peft: _PeftTensors) -> str:
    """Where a whole parameter lies: a module that has a pair holds its own inside."""
    module, _, leaf = name.rpartition(".")
    return f"{module}.base_layer.{leaf}" if f"{module}.weight" in peft.pairs else name


def _target(name: str, peft: _PeftTensors, exported: ExportedAdapter) -> str:
    """What PEFT is to wrap for a pair: a layer, or a parameter."""
    module, _, leaf = name.rpartition(".")
    if leaf != "weight" or peft.pairs[name].down.ndim > 2:
        return name
    plain = all(pair.bias is None and pair.magnitude is None for pair in peft.pairs.values())
    mixed = "experts" in exported.kinds.values() and not _files(exported).singles
    return name if plain and module.endswith((*_ROUTERS, *(_OF_EXPERTS if mixed else ()))) else module


def _owner(name: str, targets: Mapping[str, str]) -> str:
    """The module that the pair's tensors lie in: of several parameters of one, the last is outside."""
    module, _, leaf = name.rpartition(".")
    if leaf == "weight":
        return module
    outside = [one for one in _INSIDE[_INSIDE.index(leaf) + 1 :] if f"{module}.{one}" in targets]
    return module + ".base_layer" * len(outside)


def _config(exported: ExportedAdapter, peft: _PeftTensors, targets: Mapping[str, str]) -> dict[str, Any]:
    pairs = {targets[name]: pair for name, pair in peft.pairs.items()}
    ranks = {name: pair.up.shape[-2] for name, pair in pairs.items()}
    alphas = {name: pair.scale * ranks[name] for name, pair in pairs.items()}
    rank, alpha = (Counter(of.values()).most_common(1)[0][0] if of else 1 for of in (ranks, alphas))
    own = {_module(name) for name in peft.pairs}
    whole = {_module(name) for name in peft.whole if name.endswith(".weight")} - own
    biases = {_module(name) for name in peft.whole if name.endswith(".bias")} - whole
    return {
        "peft_type": "LORA",
        "peft_version": _WRITER,
        "task_type": "CAUSAL_LM" if exported.described.writes else "FEATURE_EXTRACTION",
        "base_model_name_or_path": exported.adapter.base,
        "target_modules": sorted(name for name in pairs if name not in peft.pairs),
        "target_parameters": sorted(name for name in pairs if name in peft.pairs) or None,
        "r": rank,
        "lora_alpha": _number(alpha),
        "rank_pattern": {name: its for name, its in sorted(ranks.items()) if its != rank},
        "alpha_pattern": {name: _number(its) for name, its in sorted(alphas.items()) if its != alpha},
        "lora_dropout": 0.0,
        "bias": "none" if not biases else "lora_only" if biases <= own else "all",
        "lora_bias": any(pair.bias is not None for pair in peft.pairs.values()),
        "use_dora": any(pair.magnitude is not None for pair in peft.pairs.values()),
        "use_rslora": False,
        "fan_in_fan_out": False,
        "modules_to_save": sorted(whole) or None,
        "trainable_token_indices": {_module(n): its.ids.tolist() for n, its in sorted(peft.rows.items())}
        or None,
        "inference_mode": True,
    }


def _module(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _number(value: float) -> float:
    """Whole where it is: most are, and PEFT's own are."""
    return int(value) if value == int(value) else value


def _leaves(
    name: str, pair: "LowRank", peft: _PeftTensors, exported: ExportedAdapter
) -> "Mapping[str, mx.array]":
    """As PEFT calls and turns them: outputs first, of a table's two the ranks first and last."""
    if name in peft.tables:
        found = {"lora_embedding_A": pair.down.T, "lora_embedding_B": pair.up.T}
        last = {"lora_magnitude_vector": pair.magnitude}
    elif pair.down.ndim > 2:
        return _of_stack(name, pair, exported)
    else:
        found = {"lora_A.weight": pair.down.T, "lora_B.weight": pair.up.T}
        last = {"lora_magnitude_vector.weight": pair.magnitude, "lora_B.bias": pair.bias}
    return found | {leaf: array for leaf, array in last.items() if array is not None}


def _of_stack(name: str, pair: "LowRank", exported: ExportedAdapter) -> "Mapping[str, mx.array]":
    """PEFT takes a stack's third axis for its input, but of modules that say otherwise, as GPT-OSS's does and
    Llama 4's does not.
    """
    down, up = pair.down, pair.up
    experts, width, rank = down.shape
    held = stack_layouts(exported.described, name, (experts, up.shape[-1], width)) if is_stack(name) else ()
    if held == (True,) and not _files(exported).alternate:
        down, up = up.swapaxes(-1, -2), down.swapaxes(-1, -2)
    return {
        "lora_A.weight": down.swapaxes(-1, -2).reshape(experts * rank, -1),
        "lora_B.weight": up.transpose(2, 1, 0).reshape(-1, rank * experts),
    }
