"""PEFT's folders: adapter_config.json and adapter_model.safetensors.

Keys are `base_model.model.`, the module's path in transformers, and one of

    .lora_A.weight [r, C]   .lora_B.weight [R, r]   .lora_B.bias [R]        a linear layer
    .lora_embedding_A [r, V]   .lora_embedding_B [D, r]                     a table
    .lora_magnitude_vector[.weight] [R]                                     DoRA, new and old
    .lora_A.weight [r, C, k, ..]   .lora_B.weight [R, r, 1, ..]             a convolution
    .lora_A.weight [E · r, C]   .lora_B.weight [R, r · E]                   a parameter (`target_parameters`);
                                                                            a second one inside `.base_layer`
    .token_adapter.trainable_tokens_delta [n, D]                            rows of a table
    .weight, .bias                                                          saved whole (`modules_to_save`)
    .modules_to_save.*, .original_module.*                                  beside these, not read by PEFT: of
                                                                            biases, or where tokens were added
    .base_layer.weight                                                      the base's own, beside a pair
    .token_adapter.base_layer.weight                                        beside rows
    .lora_velora_embed                                                      of training alone (VeLoRA)

Source: peft 0.21, tuners/lora/layer.py (ParamWrapper), utils/save_and_load.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelkit.errors import UnsupportedSource
from modelkit.source.adapters.peft_config import PeftConfig, read_peft_config
from modelkit.source.adapters.value import AdapterSource, Factor, OwnRows, Pair, check_pair, refuse
from modelkit.source.inventory import WeightFile
from modelkit.source.safetensors import read_header
from modelkit.source.strict_json import read_json
from modelkit.source.tensor import TensorInfo
from modelkit.source.tree import Files
from runtime.quoting import shown

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"

PREFIX = "base_model.model."
_LEAVES = {
    ".lora_A.weight": "A",
    ".lora_B.weight": "B",
    ".lora_B.bias": "bias",
    ".lora_embedding_A": "table A",
    ".lora_embedding_B": "table B",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
}
TOKENS = ".token_adapter.trainable_tokens_delta"
_BESIDE = re.compile(r"\.(?:modules_to_save|original_module)\.(?=(?:weight|bias)$)")
_BASE = re.compile(r"(?:\.token_adapter)?\.base_layer(?=\.weight$)")
_TRAINING = ".lora_velora_embed"
_WRAPPED = re.compile(r"(?:^module\.|(?<![^.])_(?:orig_mod|(?:checkpoint|fsdp)_wrapped_module)\.)")
_NAMED = re.compile(
    r"(\.lora_(?:[AB]|embedding_[AB]|magnitude_vector)|\.trainable_tokens_delta|\.modules_to_save)"
    r"\.(?!weight$|bias$)[^.]+(?=\.weight$|\.bias$|$)"
)
_KNOWN = ("r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern")


def read_peft(files: Files, label: str) -> AdapterSource:
    """Raises SourceError and its kinds, naming what is wrong."""
    config = read_peft_config(read_json(files[CONFIG], label=f"{label}/{CONFIG}"), f"{label}/{CONFIG}")
    header = read_header(files[WEIGHTS], label=f"{label}/{WEIGHTS}")
    found = _Tensors(config, label)
    found.take(header.tensors)
    kernels = [module for module, parts in found.modules.items() if _is_kernel(parts)]
    pairs = [
        _pair(module, parts, config, found.problems)
        for module, parts in found.modules.items()
        if module not in kernels
    ]
    refuse(f"{label}/{WEIGHTS}", found.problems)
    return AdapterSource(
        label=label,
        kind="peft",
        file=WeightFile(WEIGHTS, files[WEIGHTS], header),
        config=files[CONFIG],
        pairs=tuple(pair for pair in pairs if pair is not None),
        whole=found.whole,
        rows=tuple(found.rows),
        kernels=tuple(f"{module}.weight" for module in kernels),
        saved=found.saved,
        base=config.base,
        unties=not config.ties,
        stacks_turned=config.stacks_turned,
        facts={key: config.raw[key] for key in _KNOWN if config.raw.get(key)},
        notes=_notes(config),
    )


class _Tensors:
    """The tensors of a file, by what they are for."""

    def __init__(self, config: PeftConfig, label: str) -> None:
        self._config, self._label = config, label
        self.modules: dict[str, dict[str, TensorInfo]] = {}
        """The parts of each module's pair."""
        self.whole: dict[str, TensorInfo] = {}
        self.saved: dict[str, TensorInfo] = {}
        """Layers of the base that are saved beside."""
        self.rows: list[OwnRows] = []
        self.problems: list[str] = []
        self._meanings: dict[str, TensorInfo] = {}

    def take(self, tensors: Sequence[TensorInfo]) -> None:
        known = {_bare(tensor.name) for tensor in tensors}
        for tensor in tensors:
            name = _bare(tensor.name)
            if _BESIDE.sub(".", name) not in known - {name} and not name.endswith(_TRAINING):
                self._take(name, tensor)

    def _take(self, name: str, tensor: TensorInfo) -> None:
        ending = next((leaf for leaf in _LEAVES if name.endswith(leaf)), None)
        before = self._meanings.setdefault(_meaning(name, ending), tensor)
        if before is not tensor:
            self.problems.append(f"`{shown(before.name)}` and `{shown(tensor.name)}` are for one thing")
        elif ending is not None:
            self.modules.setdefault(name.removesuffix(ending), {})[_LEAVES[ending]] = tensor
        elif name.endswith(TOKENS):
            self.rows.append(_own_rows(name.removesuffix(TOKENS), tensor, self._config, self._label))
        elif ".lora_" not in name and _BASE.search(name):
            self.saved[_BASE.sub("", name)] = tensor
        elif ".lora_" in name or ".token_adapter." in name:
            self.problems.append(f"`{shown(tensor.name)}` is nothing that a LoRA has")
        else:
            self.whole[name.replace(".base_layer.", ".")] = tensor


def _bare(key: str) -> str:
    """The name in a checkpoint. Files that were made without PEFT's wrapper lack its prefix; those of a
    running model's own state have what it was wrapped in to be trained, and the adapter's name.
    """
    key = _NAMED.sub(lambda found: found[1].removesuffix(".modules_to_save"), _WRAPPED.sub("", key))
    return key.removeprefix(PREFIX).removeprefix("base_model.")


def _meaning(name: str, ending: str | None) -> str:
    """What a key is for, however it is written."""
    if ending is not None:
        return f"{name.removesuffix(ending)} {_LEAVES[ending]}"
    return name if name.endswith(".base_layer.weight") else name.replace(".base_layer.", ".")


def _notes(config: PeftConfig) -> tuple[str, ...]:
    if not config.dora:
        return ()
    return ("DoRA: its norms are those of the base as it is stored here, packed or not",)


def _is_kernel(parts: Mapping[str, TensorInfo]) -> bool:
    """Are these the pair of a convolution, over one axis or more?"""
    a, b = (parts[name].shape if name in parts else () for name in ("A", "B"))
    return len(a) == len(b) > 2 and set(b[2:]) == {1}


def _pair(
    module: str, parts: Mapping[str, TensorInfo], config: PeftConfig, problems: list[str]
) -> Pair | None:
    """The pair of one module; what is wrong with it goes to `problems`."""
    table = "table A" in parts or "table B" in parts
    first, second = ("table A", "table B") if table else ("A", "B")
    short = next((name for name in (first, second) if name not in parts), None)
    if short is not None or (table and {"A", "B", "bias"} & parts.keys()):
        problems.append(f"{shown(module)} has no whole pair: {short or 'another beside it'} is missing")
        return None
    a, b = parts[first], parts[second]
    if len(a.shape) != 2 or len(b.shape) != 2:
        problems.append(f"A and B of {shown(module)} have shapes {list(a.shape)} and {list(b.shape)}")
        return None
    targets = () if table else _targets(module.replace(".base_layer", ""), config)
    if table:
        made = [_of_table(module, a, b, config)]
    elif targets:
        made = _of_parameters(module, a, b, targets, config, problems)
    else:
        made = [Pair((f"{module}.weight",), Factor(b), Factor(a), config.scale_of(module))]
    if not made:
        return None
    first, *others = [_checked(one, parts, config, problems) for one in made]
    return replace(first, others=tuple(others))


def _checked(pair: Pair, parts: Mapping[str, TensorInfo], config: PeftConfig, problems: list[str]) -> Pair:
    """With magnitude and bias."""
    made = replace(pair, magnitude=parts.get("magnitude"), bias=parts.get("bias"))
    fault = check_pair(made, config.rank_of(_key(made.names[0].removesuffix(".weight"), config)))
    if fault is None and (made.magnitude is not None) != (config.dora and not made.left.experts):
        name = shown(made.names[0].removesuffix(".weight"))
        fault = f"{name} has {'a' if made.magnitude else 'no'} magnitude, against `use_dora`"
    if fault is not None:
        problems.append(fault)
    return made


def _of_table(module: str, a: TensorInfo, b: TensorInfo, config: PeftConfig) -> Pair:
    return Pair(
        (f"{module}.weight",),
        Factor(a, turned=True),
        Factor(b, turned=True),
        config.scale_of(module),
        table=True,
    )


def _of_parameters(
    module: str,
    a: TensorInfo,
    b: TensorInfo,
    names: tuple[str, ...],
    config: PeftConfig,
    problems: list[str],
) -> list[Pair]:
    """The pairs that they may be, of a matrix or of stacks of experts: by each one's own rank."""
    made: list[Pair] = []
    for name in names:
        rank, scale = config.rank_of(name), config.scale_of(name)
        alone = a.shape[0] == b.shape[1] == rank
        if alone:
            made.append(Pair((name,), Factor(b), Factor(a), scale, parameter=True))
        if a.shape[0] == b.shape[1] and not a.shape[0] % rank and not (alone and name.endswith(".weight")):
            experts = a.shape[0] // rank
            left, right = Factor(b, experts=experts, rank_last=True), Factor(a, experts=experts)
            made.append(Pair((name,), left, right, scale, either_way=True))
    if not made:
        problems.append(
            f"A and B of {shown(module)} have shapes {list(a.shape)} and {list(b.shape)}, not pairs "
            f"of rank {config.rank_of(names[0])} for a number of experts"
        )
    return made


def _targets(owner: str, config: PeftConfig) -> tuple[str, ...]:
    """The parameters of this module that are targets.

    A target may be a parameter's name alone (`down_proj`), as PEFT itself writes it of a mixture whose
    experts were named as layers. Layers of that name are none of it; what owns stacks is called `experts`.
    """
    found: list[str] = []
    for target in config.targets:
        module, _, leaf = target.rpartition(".")
        fits = owner == module or owner.endswith(f".{module}" if module else "experts")
        if fits:
            found.append(f"{owner}.{leaf}")
    return tuple(found)


def _key(module: str, config: PeftConfig) -> str:
    """What patterns of ranks and alphas are asked for: a parameter's name where that is the target."""
    weight = f"{module}.weight"
    return weight if any(f".{weight}".endswith(f".{target}") for target in config.targets) else module


def _own_rows(module: str, values: TensorInfo, config: PeftConfig, label: str) -> OwnRows:
    fits = [ids for name, ids in config.tokens.items() if not name or f".{module}".endswith(f".{name}")]
    if len(fits) != 1:
        raise UnsupportedSource(
            f"{label}: `trainable_token_indices` does not say which ids the rows of {shown(module)} are for"
        )
    if len(values.shape) != 2 or values.shape[0] != len(fits[0]):
        raise UnsupportedSource(
            f"{label}: {shown(module)} has own rows {list(values.shape)} for {len(fits[0]):,} ids"
        )
    return OwnRows(f"{module}.weight", fits[0], values)
