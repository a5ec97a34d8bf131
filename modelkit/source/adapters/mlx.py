"""mlx-lm's folders: adapter_config.json and adapters.safetensors.

    X.lora_a [in, r]   X.lora_b [r, out]   X.m [out] (DoRA)        a linear layer
    X.lora_a [V, r]    X.lora_b [r, D]                             a table
    X.lora_a [E, r, in]   X.lora_b [E, out, r]                     a stack of experts
    P                                                              `fine_tune_type: full`: a whole parameter

The scale is what the product is multiplied by, not alpha. Names are those of mlx-lm's classes, and where they
keep other numbers than published files do (`runtime.loading.shapes.Form`), the adapter changes theirs.
`num_layers` and `keys` say where training made pairs; the file's keys decide.
Source: mlx-lm 0.32, tuner/utils.py, lora.py, dora.py.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.json_text import is_number
from modelkit.source.adapters.peft import CONFIG
from modelkit.source.adapters.value import (
    MAX_RANK,
    AdapterSource,
    Factor,
    Pair,
    check_pair,
    refuse,
    refuse_field,
)
from modelkit.source.inventory import WeightFile
from modelkit.source.safetensors import Header, read_header
from modelkit.source.strict_json import read_json
from modelkit.source.tensor import TensorInfo
from modelkit.source.tree import Files
from runtime.quoting import quoted, shown

WEIGHTS = "adapters.safetensors"

_LEAVES = ("lora_a", "lora_b", "m")
_KINDS = ("lora", "dora", "full")


def read_mlx(files: Files, label: str) -> AdapterSource:
    """Raises SourceError and its kinds, naming what is wrong."""
    raw, where = read_json(files[CONFIG], label=f"{label}/{CONFIG}"), f"{label}/{CONFIG}"
    kind = raw.get("fine_tune_type", "lora")
    if kind not in _KINDS:
        refuse_field(where, "fine_tune_type", kind)
    header = read_header(files[WEIGHTS], label=f"{label}/{WEIGHTS}")
    file = WeightFile(WEIGHTS, files[WEIGHTS], header)
    base = raw.get("model")
    base = base if isinstance(base, str) else None
    if kind == "full":
        whole = {tensor.name: tensor for tensor in header.tensors}
        facts = {"fine_tune_type": "full"}
        return AdapterSource(label, "mlx-lm", file, files[CONFIG], (), whole, base=base, facts=facts)
    rank, scale = _parameters(raw, where)
    pairs = _pairs(header, rank, scale, dora=kind == "dora", label=f"{label}/{WEIGHTS}")
    facts = {"fine_tune_type": kind, "rank": rank, "scale": scale}
    return AdapterSource(label, "mlx-lm", file, files[CONFIG], pairs, base=base, facts=facts)


def _parameters(raw: Mapping[str, Any], where: str) -> tuple[int, float]:
    found = raw.get("lora_parameters")
    if not isinstance(found, dict):
        raise MalformedFile(f"{where}: `lora_parameters` is missing, which has rank and scale")
    rank, scale = found.get("rank"), found.get("scale")
    if "scale" not in found and "alpha" in found:
        raise UnsupportedSource(
            f"{where}: `lora_parameters` has `alpha` and no `scale`, as mlx-lm's first releases wrote it",
            hint="Write `scale` in its place: the number that the product is multiplied by (alpha / rank).",
        )
    if type(rank) is not int or not 0 < rank <= MAX_RANK:
        raise MalformedFile(f"{where}: `rank` is {quoted(rank)}; 1 to {MAX_RANK:,} was expected")
    if not is_number(scale) or not abs(scale) < 1e9:
        raise MalformedFile(f"{where}: `scale` is {quoted(scale)}; a number was expected")
    for name, value in found.items():
        if name not in ("rank", "scale", "dropout", "keys", "alpha") and value:
            refuse_field(where, f"lora_parameters.{name}", value)
    return rank, float(scale)


def _pairs(header: Header, rank: int, scale: float, *, dora: bool, label: str) -> tuple[Pair, ...]:
    modules: dict[str, dict[str, TensorInfo]] = {}
    problems: list[str] = []
    for tensor in header.tensors:
        module, _, leaf = tensor.name.rpartition(".")
        if leaf in _LEAVES and module:
            modules.setdefault(module, {})[leaf] = tensor
        else:
            problems.append(f"`{shown(tensor.name)}` is nothing that a LoRA of mlx-lm has")
    pairs: list[Pair] = []
    for module, parts in modules.items():
        short = next((leaf for leaf in ("lora_a", "lora_b") if leaf not in parts), None)
        if short is not None:
            problems.append(f"{shown(module)} has no `{short}`")
            continue
        pair = _pair(module, parts, scale)
        fault = "its shapes are none of a pair" if pair is None else _of_rows(module, parts)
        fault = fault or (check_pair(pair, rank) if pair else None)
        if fault is None and dora != ("m" in parts):
            fault = f"{shown(module)} has {'a' if 'm' in parts else 'no'} magnitude, against `fine_tune_type`"
        if fault is not None or pair is None:
            problems.append(fault or "")
        else:
            pairs.append(pair)
    refuse(label, problems)
    return tuple(pairs)


def _of_rows(module: str, parts: Mapping[str, TensorInfo]) -> str | None:
    """What is wrong with DoRA of a table: mlx-lm scales its rows, PEFT and what is computed here columns."""
    magnitude, rows, columns = (
        parts[leaf].shape if leaf in parts else () for leaf in ("m", "lora_a", "lora_b")
    )
    if magnitude and magnitude == rows[:1] != columns[-1:]:
        return f"{shown(module)} has a magnitude for each row of a table, which is not computed here"
    return None


def _pair(module: str, parts: Mapping[str, TensorInfo], scale: float) -> Pair | None:
    """Which is a table shows in the network alone: a table's A has its rows where a layer's has its inputs.

    So a pair is given as a layer's, and is the other way round where a table has its name.
    """
    a, b = parts["lora_a"], parts["lora_b"]
    if len(a.shape) != len(b.shape) or len(a.shape) not in (2, 3):
        return None
    turned = len(a.shape) == 2
    name = (f"{module}.weight",)
    return Pair(name, Factor(b, turned), Factor(a, turned), scale, parts.get("m"))
