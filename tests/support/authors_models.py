"""Classes that came with checkpoints, with the face that makers of references ask of transformers' models,
for kinds that neither transformers nor mlx-lm has (run by hand, where torch is installed).

MODELKIT_AUTHORS names a folder with their files, each room as it was published: baichuan_rope of Baichuan-7B,
baichuan_alibi of Baichuan2-13B. Nothing of them is kept here. What they import and numbers do not need is
stood in for.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from inspect import signature
from types import ModuleType
from typing import Any, ClassVar
from unittest.mock import MagicMock

import torch
import transformers

from tests.support.mlx_models import MlxConfig

_STOOD_IN = ("add_start_docstrings", "add_start_docstrings_to_model_forward", "replace_return_docstrings")
KINDS = ("baichuan",)


class AuthorsConfig(MlxConfig):
    """The fields of a file whose class is its authors'."""

    @property
    def asked(self) -> set[str]:
        named = signature(_class(self._fields).config_class.__init__).parameters
        return {*named} - {"self", "kwargs", "tie_word_embeddings"}  # which transformers 5 ties otherwise

    def made(self) -> Any:
        return AuthorsModel(self)


class AuthorsModel:
    """Their model, with the head of Baichuan 2 where a file is one of it."""

    source: ClassVar[Mapping[str, str]] = {"authors": "Baichuan-7B, Baichuan2-13B-Chat"}

    def __init__(self, config: AuthorsConfig) -> None:
        self.config, raw = config, config.to_dict()
        model = _class(raw)
        self._model = model(model.config_class(**raw)).float().eval()
        size = raw["hidden_size"], raw["vocab_size"]
        plain = torch.nn.Linear(*size, bias=False)
        # Norms its weight at each call while it trains, and once in place else.
        self._model.lm_head = _room("baichuan_alibi").NormHead(*size) if "z_loss_weight" in raw else plain
        self._model.lm_head.train()

    def __call__(self, ids: torch.Tensor) -> Any:
        return self._model(input_ids=ids, use_cache=False, return_dict=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _class(raw: Mapping[str, Any]) -> Any:
    if "max_position_embeddings" in raw:
        return _room("baichuan_rope").BaiChuanForCausalLM
    return _room("baichuan_alibi").BaichuanForCausalLM


def _room(name: str) -> ModuleType:
    folder = os.environ["MODELKIT_AUTHORS"]
    sys.path[:0] = [] if folder in sys.path else [folder]
    for absent in ("accelerate", "xformers", f"{name}.generation_utils"):
        sys.modules.setdefault(absent, MagicMock())
    for room in (transformers, transformers.utils):
        for gone in _STOOD_IN:
            if not hasattr(room, gone):
                setattr(room, gone, lambda *_, **__: lambda made: made)
    return importlib.import_module(f"{name}.modeling_baichuan")
