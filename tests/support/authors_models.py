"""Classes that came with checkpoints, with the face that makers of references ask of transformers' models,
for kinds that neither transformers nor mlx-lm has (run by hand, where torch is installed).

MODELKIT_AUTHORS names a folder with their files, each room as it was published: baichuan_rope of Baichuan-7B,
baichuan_alibi of Baichuan2-13B, ouro of Ouro-1.4B. Nothing of them is kept here. What they import and numbers
do not need is stood in for, and what transformers 5 calls otherwise, called so.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from inspect import signature
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
import transformers
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tests.support.mlx_models import MlxConfig

_STOOD_IN = ("add_start_docstrings", "add_start_docstrings_to_model_forward", "replace_return_docstrings")
KINDS = ("baichuan", "ouro")


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

    def __init__(self, config: AuthorsConfig) -> None:
        self.config, raw = config, config.to_dict()
        model = _class(raw)
        kind = raw["model_type"]
        names = {"baichuan": "Baichuan-7B, Baichuan2-13B-Chat", "ouro": "Ouro-1.4B"}
        self.source: Mapping[str, str] = {"authors": names[kind]}
        self._model = model(model.config_class(**raw)).float().eval()
        if kind == "baichuan":
            self._model.lm_head = _head_of_baichuan(raw)
        elif raw["early_exit_threshold"] == 1:  # which sums of probabilities reach by rounding or not
            self._model.early_exit_threshold = None

    def __call__(self, ids: torch.Tensor) -> Any:
        return self._model(input_ids=ids, use_cache=False, return_dict=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _head_of_baichuan(raw: Mapping[str, Any]) -> Any:
    size = raw["hidden_size"], raw["vocab_size"]
    plain = torch.nn.Linear(*size, bias=False)
    # Norms its weight at each call while it trains, and once in place else.
    return (_room("baichuan_alibi").NormHead(*size) if "z_loss_weight" in raw else plain).train()


def _class(raw: Mapping[str, Any]) -> Any:
    if raw["model_type"] == "ouro":
        return _ouro().OuroForCausalLM
    if "max_position_embeddings" in raw:
        return _room("baichuan_rope").BaiChuanForCausalLM
    return _room("baichuan_alibi").BaichuanForCausalLM


def _ouro() -> Any:
    """With the tables of transformers' Llama, whose copy its own are, and masks by their newer names."""
    room: Any = _room("ouro", "modeling_ouro")

    def masked(make: Any) -> Any:
        return lambda config, input_embeds, attention_mask, past_key_values, position_ids, **_: make(
            config, input_embeds, attention_mask, past_key_values, position_ids=position_ids
        )

    room.OuroRotaryEmbedding = LlamaRotaryEmbedding
    room.create_causal_mask = masked(create_causal_mask)
    room.create_sliding_window_causal_mask = masked(create_sliding_window_causal_mask)
    room.OuroForCausalLM._tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    return room


def _room(name: str, module: str = "modeling_baichuan") -> ModuleType:
    folder = os.environ["MODELKIT_AUTHORS"]
    sys.path[:0] = [] if folder in sys.path else [folder]
    for absent in ("accelerate", "xformers", f"{name}.generation_utils"):
        sys.modules.setdefault(absent, MagicMock())
    for room in (transformers, transformers.utils):
        for gone in _STOOD_IN:
            if not hasattr(room, gone):
                setattr(room, gone, lambda *_, **__: lambda made: made)
    return importlib.import_module(f"{name}.{module}")
