"""Architectures that modelkit has no file for, run by mlx-lm's model classes over our layer memory.

mlx-lm is the optional extra `lm`. It is imported only for a kind of `kinds`, whose answers are stored beside
transformers'; only files of its own `models` package are, never one that a checkpoint brings or names. Its
internals are used, so one minor release is taken and no other.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.errors import RuntimeFault, UnsupportedModel, WeightMismatch, shown
from runtime.models.checkpoint import always
from runtime.models.family import Family
from runtime.models.foreign.kinds import Kind
from runtime.models.foreign.network import ForeignNetwork, Form
from runtime.models.foreign.probe import Found, look_at
from runtime.models.foreign.refused import REFUSED
from runtime.models.foreign.vanished import vanished
from runtime.models.foreign.words import reason
from runtime.records import dataclass

RELEASE = "0.32"  # as the extra `lm` in pyproject.toml
INSTALL = 'pip install "mlx-lm>=0.32.2,<0.33"'
KINDS: dict[str, Kind] = {}
"""By model_type."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a config.json says that is run by one of mlx-lm's classes."""

    vocab_size: int
    hidden_size: int
    context_length: int
    """Tokens."""
    tied: bool
    """The output head is the embedding table."""
    form: Form
    """How the class's caches map on a layout."""
    values: str
    """What the class and its mends are given, as JSON."""


class Foreign:
    """A Family made of one of mlx-lm's model files.

    through: what runs it, for the user.
    """

    def __init__(self, module: ModuleType, kind: Kind, release: str) -> None:
        self._module = module
        self._kind = kind
        self._castable = _any
        self.through = f"mlx-lm {release} ({kind.file})"

    @property
    def family(self) -> Family:
        return Family(
            parse=self.parse,
            layout=self.layout,
            build=self.build,
            adapt=self.adapt,
            keeps_dtype=self.keeps_dtype,
            checkpoint=always(self._kind.checkpoint),
            through=self.through,
        )

    def parse(self, raw: Mapping[str, Any]) -> Config:
        """UnsupportedModel for whatever the class was not proven with, and what layer memory cannot carry."""
        values = self._kind.read(raw)
        text = json.dumps(values)
        found = _look(self._module, self._kind, text)
        length = int(values[self._kind.length])
        tied = bool(values["tie_word_embeddings"])
        return Config(found.vocab_size, found.hidden_size, length, tied, found.form, text)

    def layout(self, config: Config) -> list[LayerSpec]:
        return list(config.form.specs)

    def build(self, config: Config) -> ForeignNetwork:
        model = _instance(self._module, self._kind, config.values)
        self._castable = getattr(model, "cast_predicate", _any)
        return ForeignNetwork(model, config.form, _table(model, config) if config.tied else None)

    def adapt(self, config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """As the class itself does, without what carries nothing: stored rotary tables, the kind's own spare
        tensors, a head that repeats a tied embedding. WeightMismatch for any other that the class drops.
        """
        spare = ("rotary_emb.inv_freq", *self._kind.spare)
        head = ("lm_head.",) if config.tied else ()
        kept = {
            name: x for name, x in weights.items() if not name.endswith(spare) and not name.startswith(head)
        }
        model = _instance(self._module, self._kind, config.values)
        if not hasattr(model, "sanitize"):
            return kept
        who = self._kind.who
        try:
            made = model.sanitize(dict(kept))
        except Exception as fault:
            raise WeightMismatch([f"{who} cannot take these tensors: {reason(fault)}"]) from fault
        if lost := vanished(model.sanitize, kept, made):
            raise WeightMismatch([f"{name} is thrown away by {who}, and may matter" for name in lost])
        return made

    def keeps_dtype(self, name: str) -> bool:
        """By the word of the instance that was built last."""
        return not self._castable(name)


def _table(model: nn.Module, config: Config) -> str | None:
    wanted = (config.vocab_size, config.hidden_size)
    tables = ((name, one) for name, one in model.named_modules() if isinstance(one, nn.Embedding))
    return next((name for name, one in tables if one.weight.shape == wanted), None)


def _any(_name: str) -> bool:
    return True


@lru_cache(maxsize=16)
def _look(module: ModuleType, kind: Kind, values: str) -> Found:
    """What the class remembers, with this config."""
    model = _instance(module, kind, values)
    rows = [one.weight.shape[0] for one in model.modules() if isinstance(one, nn.Embedding)]
    try:
        found = look_at(model, ragged=kind.ragged)
    except RuntimeFault as fault:
        raise UnsupportedModel(f"{kind.who} cannot run over layer memory: {fault}") from fault
    except Exception as fault:
        raise UnsupportedModel(f"{kind.who} cannot run with this config.json: {reason(fault)}") from fault
    if rows and found.vocab_size > max(rows):
        raise UnsupportedModel(
            f"{kind.who} gives logits for {found.vocab_size} ids and embeds {max(rows)} of them"
        )
    return found


def _instance(module: ModuleType, kind: Kind, text: str) -> Any:
    """A mended instance with unevaluated weights."""
    values = json.loads(text)
    try:
        model = kind.mend(module.Model(module.ModelArgs.from_dict(values)), values)
    except Exception as fault:
        raise UnsupportedModel(
            f"{kind.who} cannot be built from this config.json: {reason(fault)}"
        ) from fault
    return model


def find_foreign(name: str, raw: Mapping[str, Any]) -> Family:
    """The family behind `name`, which is none of ours. Raises UnsupportedModel, saying what to do."""
    if "model_file" in raw:
        raise UnsupportedModel(f"config.json asks to run the Python file {shown(raw['model_file'])}")
    model_type = str(raw.get("model_type"))
    kind = KINDS.get(model_type)
    if kind is None:
        raise UnsupportedModel(REFUSED.get(model_type, "nothing here runs it"))
    if name not in (*kind.classes, *kind.types):
        raise UnsupportedModel(f"of {model_type} only {' and '.join(kind.classes)} can be run")
    return Foreign(_module(kind), kind, _release()).family


def installed() -> str | None:
    """The release of mlx-lm that is installed. Nothing is imported."""
    try:
        return version("mlx-lm")
    except PackageNotFoundError:
        return None


def _release() -> str:
    release = installed()
    if release is None:
        raise UnsupportedModel(f"mlx-lm has it, which an extra brings: {INSTALL}")
    if not release.startswith(f"{RELEASE}."):
        raise UnsupportedModel(
            f"mlx-lm has it, but {release} is installed and {RELEASE} is wanted: {INSTALL}"
        )
    return release


def _module(kind: Kind) -> ModuleType:
    _release()
    try:
        return import_module(f"mlx_lm.models.{kind.file}")
    except (Exception, SystemExit) as fault:
        raise UnsupportedModel(f"{kind.who} cannot be imported: {reason(fault)}") from fault
