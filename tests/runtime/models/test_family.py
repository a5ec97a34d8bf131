"""A family is one file: its record is all that anybody asks, and a row in the table of names finds it."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from runtime import models
from runtime.cache.layout import Full, LayerSpec
from runtime.errors import UnsupportedModel
from runtime.loading.load import load_model
from runtime.models import ARCHITECTURES, describe, llama
from runtime.models.family import Family, Head
from runtime.models.registry.names import NAMES
from runtime.models.registry.refused import REFUSED
from runtime.step import Step
from runtime.tensors.names import without_spares

CONFIG: dict[str, Any] = {
    "architectures": ["NovelForCausalLM"],
    "model_type": "novel",
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


class NovelHead(nn.Module):
    def __init__(self, config: llama.Config) -> None:
        super().__init__()
        self.fc = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def __call__(
        self, embedded: mx.array, hidden: mx.array, step: Step, caches: Sequence[Any], *, depth: int = 0
    ) -> mx.array:
        return self.fc(embedded + hidden)


def _head_layout(config: llama.Config) -> list[LayerSpec]:
    return [Full(config.kv_heads, config.head_dim)]


def _adapt(config: llama.Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    own = {name: array for name, array in weights.items() if not name.startswith("novel_head.")}
    return without_spares(config, own)


def _adapt_head(config: llama.Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    names = [name for name in weights if name.startswith("novel_head.")]
    return {name.removeprefix("novel_head."): weights[name] for name in names}


NOVEL = Family(
    parse=llama.parse,
    layout=llama.layout,
    build=llama.build,
    adapt=_adapt,
    head=Head(layout=_head_layout, build=NovelHead, adapt=_adapt_head),
)


def add(monkeypatch: pytest.MonkeyPatch, family: Family) -> None:
    """What adding a family to the project is: one file with a FAMILY, and its names."""
    module = ModuleType("runtime.models.novel")
    vars(module)["FAMILY"] = family
    monkeypatch.setitem(sys.modules, "runtime.models.novel", module)
    monkeypatch.setitem(ARCHITECTURES, "NovelForCausalLM", "novel")


def checkpoint(folder: Path) -> Path:
    network = llama.build(llama.parse(CONFIG))
    tensors: dict[str, Any] = dict(tree_flatten(network.parameters()))
    tensors["novel_head.fc.weight"] = mx.ones((16, 16))
    path = folder / "model.safetensors"
    mx.save_safetensors(str(path), {name: array.astype(mx.bfloat16) for name, array in tensors.items()})
    return path


@pytest.mark.parametrize("module", sorted(set(ARCHITECTURES.values())))
def test_every_name_leads_to_a_record(module: str) -> None:
    assert isinstance(import_module(f"runtime.models.{module}").FAMILY, Family)


def test_no_name_leads_to_two() -> None:
    listed = [name for names in NAMES.values() for name in names.split()]
    assert len(listed) == len(ARCHITECTURES)


_BECOME = {"gemma_encoder", "jina_bert_v2", "nomic_bert_moe", "t5_encoder"}
"""What others become."""


def test_every_record_has_a_name() -> None:
    families = set(ARCHITECTURES.values()) | _BECOME
    assert {name for name, text in _files().items() if "\nFAMILY = " in text} | {"multimodal"} == families


def test_a_file_that_is_no_family_is_called_after_one() -> None:
    """A part of a family lies beside it; what all of them share has a room."""
    others = {name for name, text in _files().items() if "\nFAMILY = " not in text} - {"__init__"}
    assert {name for name in others if name.rpartition("_")[0] not in ARCHITECTURES.values()} == set()


def _files() -> dict[str, str]:
    files = Path(str(models.__file__)).parent.glob("*.py")
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (CONFIG, "'NovelForCausalLM', a model of type 'novel', is not supported; docs/models.md lists"),
        (
            {"architectures": ["MixtrallForCausalLM"]},
            r"'MixtrallForCausalLM' is not supported; docs/models.md lists what is, as MixtralForCausalLM, ",
        ),
        ({"model_type": "mixtrall"}, r"'mixtrall' is not supported; .*, as mixtral, "),
        ({"architectures": ["LlamaForSequenceClassification"], "model_type": "llama"}, "only other classes"),
        ({**CONFIG, "model_type": ["llama"]}, "model_type is"),
        ({**CONFIG, "model_type": "../../evil"}, "is not supported; docs"),
        ({**CONFIG, "auto_map": {"AutoModel": "evil.Novel"}}, "code that comes with a model is never run"),
        ({**CONFIG, "model_file": "evil.py"}, "code that comes with a model is never run"),
        ({}, r"'\(none named\)' is not supported; docs/models.md lists what is, as LlamaForCausalLM"),
    ],
)
def test_what_has_no_row_is_refused_by_name(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        describe(config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"architectures": ["BioGptForCausalLM"], "model_type": "biogpt"},
            "is known and not run: its tokenizer",
        ),
        ({"model_type": "hrm_text"}, "every token of its prompt sees those behind it"),
        (
            {**CONFIG, "model_type": "llada"},
            "'NovelForCausalLM' is known and not run: it writes by diffusion",
        ),
        ({"architectures": ["PhiForCausalLM"], "model_type": "phi-msft"}, "from before transformers had Phi"),
        ({"architectures": ["Grok1ForCausalLM"], "model_type": "git"}, "neither transformers nor mlx-lm"),
        (
            {"architectures": ["Emu3ForCausalLM"], "model_type": "Emu3"},
            "its tokenizer is a program in Python",
        ),
    ],
)
def test_what_is_known_and_not_run_is_refused_with_the_reason(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        describe(config)


def test_what_is_refused_has_no_row() -> None:
    assert not REFUSED.keys() & ARCHITECTURES.keys()


def test_a_file_and_a_row_are_loaded_with_the_head(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add(monkeypatch, NOVEL)
    assert describe(CONFIG).family is NOVEL
    loaded = load_model(CONFIG, [checkpoint(tmp_path)], with_head=True)
    assert loaded.head is not None
    assert loaded.head.layout == (Full(2, 8),)
    assert loaded.head.network.fc.weight.shape == (16, 16)


def test_a_family_without_a_head_loads_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add(monkeypatch, replace(NOVEL, head=None))
    assert load_model(CONFIG, [checkpoint(tmp_path)], with_head=True).head is None
