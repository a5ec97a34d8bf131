"""Architectures that modelkit has no file for, run by mlx-lm's model classes over our layer memory.

mlx-lm is the optional extra `lm`. It is imported only for a config that no architecture here names, and only
files of its own `models` package are: never one that a checkpoint brings or names. Its internals are used, so
one minor release is taken and no other.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Rotating
from runtime.errors import RuntimeFault, UnsupportedModel, WeightMismatch
from runtime.models.foreign.config import (
    check_fields,
    check_sizes,
    check_windows,
    context_length,
    levels,
    old_spelling,
)
from runtime.models.foreign.network import ForeignNetwork, Form
from runtime.models.foreign.probe import Found, look_at

RELEASE = "0.32"  # as the extra `lm` in pyproject.toml
INSTALL = 'pip install "modelkit-mlx[lm]"'
UNBOUNDED = 1 << 20  # a model without attention has no positions; something must stand here

# Files whose logits, in steps of any width and in batches of rows at different positions, were compared with
# mlx-lm's own run of one sequence. Others are run as well, but rows at different positions one by one.
_NAMES = """
    Klear afmoe baichuan_m1 bailing_hybrid bailing_moe bailing_moe_linear bailing_moe_v3 dbrx deepseek dots1
    ernie4_5 ernie4_5_moe exaone exaone_moe gear glm glm_moe_dsa gptj helium hunyuan internlm2 internlm3
    iquestloopcoder kimi_k25 kimi_k3 kimi_vl lfm2-vl lille-130m mellum mimo minicpm minicpm3 minimax mistral4
    nanbeige nanochat nemotron-nas openelm phi phixtral pixtral plamo plamo2 qwen rwkv7 solar_open spark2_5
    step3p5 talkie telechat3 youtu_llm
"""
CHECKED = frozenset(_NAMES.split())
WRONG = {"phi3small": "it adds a mask of booleans to its scores, so tokens see those that come later"}

_CONTINUES = ("CausalLM", "ConditionalGeneration")  # what a class name may say after "For"


@dataclass(frozen=True, slots=True)
class Config:
    """raw: JSON, as the class is to read it."""

    vocab_size: int
    hidden_size: int
    context_length: int
    form: Form
    raw: str


class Foreign:
    """An Architecture made of one of mlx-lm's model files.

    through: what runs it, for the user.
    """

    def __init__(self, module: ModuleType, release: str) -> None:
        self._module = module
        self._castable: Callable[[str], bool] = lambda _name: True
        self.through = f"mlx-lm {release} ({_kind(module)})"

    def parse(self, raw: Mapping[str, Any]) -> Config:
        """UnsupportedModel also for what the class would pass over or layer memory cannot carry."""
        check_sizes(raw)
        read = _fields_of(self._module)
        raw = old_spelling(raw, read)
        check_fields(raw, read, _who(self._module))
        text = json.dumps(raw)
        args, _ = _instance(self._module, text)
        found = _look(self._module, text)
        check_windows(raw, found.windows, _who(self._module))
        attends = any(isinstance(spec, Full | Rotating) for spec in found.form.specs)
        length = context_length([*levels(raw), args], None if attends else UNBOUNDED)
        return Config(found.vocab_size, found.hidden_size, length, found.form, text)

    def layout(self, config: Config) -> list[LayerSpec]:
        return list(config.form.specs)

    def build(self, config: Config) -> ForeignNetwork:
        _, model = _instance(self._module, config.raw)
        self._castable = getattr(model, "cast_predicate", self._castable)
        return ForeignNetwork(model, config.form)

    def adapt(self, config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """As the class itself does, and without stored rotary tables."""
        kept = {name: array for name, array in weights.items() if not name.endswith("rotary_emb.inv_freq")}
        _, model = _instance(self._module, config.raw)
        if not hasattr(model, "sanitize"):
            return kept
        try:
            return model.sanitize(kept)
        except Exception as fault:
            problem = f"{_who(self._module)} cannot take these tensors: {_said(fault)}"
            raise WeightMismatch([problem]) from fault

    def keeps_dtype(self, name: str) -> bool:
        """By the word of the instance that was built last."""
        return not self._castable(name)


@lru_cache(maxsize=16)
def _look(module: ModuleType, text: str) -> Found:
    """What the class remembers, with this config."""
    _, model = _instance(module, text)
    rows = [one.weight.shape[0] for one in model.modules() if isinstance(one, nn.Embedding)]
    try:
        found = look_at(model, ragged=_kind(module) in CHECKED)
    except RuntimeFault as fault:
        raise UnsupportedModel(f"{_who(module)} cannot run over layer memory: {fault}") from fault
    except Exception as fault:
        raise UnsupportedModel(f"{_who(module)} cannot be run: {_said(fault)}") from fault
    if rows and found.vocab_size > max(rows):
        raise UnsupportedModel(
            f"{_who(module)} gives logits for {found.vocab_size} ids and embeds {max(rows)} of them"
        )
    return found


def _instance(module: ModuleType, text: str) -> tuple[Any, Any]:
    """The class's arguments, and an instance with unevaluated weights."""
    try:
        args = module.ModelArgs.from_dict(json.loads(text))
        return args, module.Model(args)
    except Exception as fault:
        raise UnsupportedModel(f"config.json cannot be read by {_who(module)}: {_said(fault)}") from fault


def _kind(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def _who(module: ModuleType) -> str:
    return f"mlx-lm's {_kind(module)}"


def find_foreign(name: str, raw: Mapping[str, Any]) -> Foreign:
    """The architecture behind `name`, which is none of ours. Raises UnsupportedModel, saying what to do."""
    if "model_file" in raw:
        raise UnsupportedModel(f"config.json asks to run the Python file {raw['model_file']!r:.120}")
    task = name.rpartition("For")[2] if "For" in name else _CONTINUES[0]
    if task not in _CONTINUES:
        raise UnsupportedModel(f"{name} is for {task}; what continues text can be run")
    release = installed()
    if release is None:
        raise UnsupportedModel(f"mlx-lm may have it, which an extra brings: {INSTALL}")
    if not release.startswith(f"{RELEASE}."):
        raise UnsupportedModel(
            f"mlx-lm may have it, but {release} is installed and {RELEASE} is wanted: {INSTALL}"
        )
    module = _module(str(raw.get("model_type")), name)
    if module is None:
        raise UnsupportedModel(f"mlx-lm {release} has no model_type {raw.get('model_type')!r:.80} either")
    return Foreign(module, release)


def installed() -> str | None:
    """The release of mlx-lm that is installed. Nothing is imported."""
    try:
        return version("mlx-lm")
    except PackageNotFoundError:
        return None


def _module(model_type: str, name: str) -> ModuleType | None:
    """The file of mlx-lm for a model type; its own aliases count."""
    utils = import_module("mlx_lm.utils")
    by_class = getattr(utils, "MODEL_ARCHITECTURE_REMAPPING", {})
    kind = by_class.get((model_type, name)) or utils.MODEL_REMAPPING.get(model_type, model_type)
    package = import_module("mlx_lm.models")
    if kind not in {file.name for file in iter_modules(package.__path__)}:
        return None
    if kind in WRONG:
        raise UnsupportedModel(f"mlx-lm's {kind} gives wrong text: {WRONG[kind]}")
    try:
        module = import_module(f"mlx_lm.models.{kind}")
    except (Exception, SystemExit) as fault:
        raise UnsupportedModel(f"mlx-lm's {kind} cannot be imported: {_said(fault)}") from fault
    return module if hasattr(module, "Model") and hasattr(module, "ModelArgs") else None


def _fields_of(module: ModuleType) -> frozenset[str]:
    """Every field that a config class of the module names, or one of another model file that it uses."""
    values = list(vars(module).values())
    values += [
        value
        for used in values
        if isinstance(used, ModuleType) and used.__name__.startswith("mlx_lm.models.")
        for value in vars(used).values()
    ]
    return frozenset(
        field.name
        for value in values
        if isinstance(value, type) and is_dataclass(value)
        for field in fields(value)
    )


def _said(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}"[:240]
