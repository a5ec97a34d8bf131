"""An adapter of a package -> a folder in PEFT's form, which transformers, PEFT and whoever reads those take.

A package has pairs by the modules of our network. They are given out where the package's own checkpoint has
the module's matrix under the module's name, row by row as it is: there the name is transformers', too. What
was cut, joined, permuted or stacked on the way is refused by name; so are parts that PEFT has no word for.
Ranks and scales that differ from module to module become `rank_pattern` and `alpha_pattern`.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from modelkit.errors import ModelkitError, PlanError
from modelkit.pack.adapters.fused import unpacked
from modelkit.pack.adapters.fusing import Way, ways
from modelkit.pack.adapters.place import kinds_of
from modelkit.pack.adapters.stored import StoredAdapter
from modelkit.pack.sources import Origin, open_package
from modelkit.source.adapters.peft import CONFIG, PREFIX, WEIGHTS
from modelkit.store.package import Package
from runtime.models import Described, describe

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.nn.low_rank import LowRank, LowRanks

_OWNERS = ("model.", "lm_head")
_HINT = "`create --fuse-adapters` makes it part of the weights, which export takes along."


def adapter_files(package: Package, name: str) -> dict[str, bytes]:
    """The files of the adapter's folder, by name. Raises PlanError for what PEFT's form cannot say."""
    origin = open_package(package)
    adapter = origin.adapters.get(name)
    if adapter is None:
        have = ", ".join(origin.adapters) or "none"
        raise ModelkitError(f"{package.name} has no adapter {name!r:.80}; there is {have}")
    brought = adapter.load()
    _check(origin, adapter, brought)
    tables = {one for one, kind in kinds_of(_described(origin)).items() if kind == "table"}
    config = _config(adapter, brought)
    return {CONFIG: json.dumps(config, indent=2).encode() + b"\n", WEIGHTS: _weights(brought, tables)}


def _described(origin: Origin) -> Described:
    return describe(origin.source.inventory.config)


def _check(origin: Origin, adapter: StoredAdapter, brought: "LowRanks") -> None:
    if brought.rows:
        raise PlanError(f"adapter {adapter.name} has rows of {next(iter(brought.rows))} alone", hint=_HINT)
    for what, having in (
        ("a magnitude", [pair.magnitude is not None for pair in brought.pairs.values()]),
        ("a bias", [pair.bias is not None for pair in brought.pairs.values()]),
    ):
        if any(having) and not all(having):
            raise PlanError(f"some pairs of adapter {adapter.name} have {what}, and some none", hint=_HINT)
    try:
        known = ways(_described(origin), unpacked(origin.source), adapter.parameters, unties=adapter.unties)
    except PlanError as error:
        raise PlanError(f"adapter {adapter.name}: {error.message}", hint=_HINT) from error
    for place, parameter in enumerate(known.parameters):
        if not parameter.startswith(_OWNERS) or not _as_it_is(known.of.get(parameter), place):
            raise PlanError(
                f"adapter {adapter.name} changes {parameter}, which checkpoints of this model have otherwise",
                hint=_HINT,
            )
    stacks = [name for name, pair in brought.pairs.items() if pair.down.ndim > 2 or pair.up.ndim > 2]
    if stacks:
        raise PlanError(f"adapter {adapter.name} has pairs for a stack, {stacks[0]}", hint=_HINT)


def _as_it_is(way: Way | None, place: int) -> bool:
    """Are these the parameter's rows, all of them in order, with their own numbers?"""
    return (
        way is not None
        and bool((way.parameter == place).all())
        and bool((way.row == np.arange(way.row.size)).all())
        and bool((way.times == 1).all())
        and bool((way.plus == 0).all())
    )


def _config(adapter: StoredAdapter, brought: "LowRanks") -> dict[str, Any]:
    ranks = {name: pair.down.shape[-1] for name, pair in brought.pairs.items()}
    alphas = {name: pair.scale * ranks[name] for name, pair in brought.pairs.items()}
    rank, alpha = (Counter(of.values()).most_common(1)[0][0] if of else 1 for of in (ranks, alphas))
    whole = {name.rpartition(".")[0] for name in brought.whole}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": adapter.base,
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


def _weights(brought: "LowRanks", tables: set[str]) -> bytes:
    tensors = {f"{PREFIX}{name}": array for name, array in brought.whole.items()}
    for name, pair in brought.pairs.items():
        tensors |= {f"{PREFIX}{name}.{leaf}": array for leaf, array in _leaves(pair, name in tables).items()}
    return _safetensors(tensors)


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


def _safetensors(tensors: "Mapping[str, mx.array]") -> bytes:
    """In the order of names: the same adapter gives the same bytes."""
    import mlx.core as mx

    words = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16"}
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    at = 0
    for name, array in sorted(tensors.items()):
        lying = mx.contiguous(array)
        parts.append(np.asarray(lying.reshape(-1).view(mx.uint8)).tobytes())
        stop = at + lying.nbytes
        entries[name] = {"dtype": words[array.dtype], "shape": list(array.shape), "data_offsets": [at, stop]}
        at = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)
