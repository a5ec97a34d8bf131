"""Small sources: made of headers alone for the deciders, on disk with a tokenizer for the rest."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from modelkit.modelfile import Modelfile, Recipe
from modelkit.pack.build import Created, build
from modelkit.source.inventory import Inventory, WeightFile, read_inventory
from modelkit.source.safetensors import Header, Identity
from modelkit.source.tensor import BITS, TensorInfo
from modelkit.source.tree import read_directory
from modelkit.store.name import Name
from modelkit.store.store import Store

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def inventory_of() -> Callable[..., Inventory]:
    """An Inventory from names, dtypes and shapes; nothing is on disk."""

    def make(tensors: Shapes, config: Mapping[str, Any] | None = None) -> Inventory:
        path, start = Path("model.safetensors"), 0
        infos: list[TensorInfo] = []
        for name, (dtype, shape) in tensors.items():
            stop = start + math.prod(shape) * BITS[dtype] // 8
            infos.append(TensorInfo(name, dtype, shape, path, start, stop))
            start = stop
        file = WeightFile(path.name, path, Header(tuple(infos), {}, Identity(0, 0, start, 0)))
        by_name = {info.name: info for info in sorted(infos, key=lambda info: info.name)}
        return Inventory("a model", dict(config or LLAMA), None, by_name, {}, (file,), ())

    return make


@pytest.fixture
def save() -> Callable[[Path, Mapping[str, mx.array], Mapping[str, Any]], Inventory]:
    """Write arrays and a config into a folder, and take its inventory."""

    def write(folder: Path, arrays: Mapping[str, mx.array], config: Mapping[str, Any]) -> Inventory:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        mx.save_safetensors(str(folder / "model.safetensors"), dict(arrays), metadata={"format": "pt"})
        return read_inventory(read_directory(folder), str(folder))

    return write


def _llama_arrays(
    config: Mapping[str, Any], seed: int = 0, dtype: mx.Dtype = mx.bfloat16
) -> dict[str, mx.array]:
    """Random weights for a llama config."""
    rng = np.random.default_rng(seed)
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.{norm}_layernorm.weight": (hidden,) for norm in ("input", "post_attention")}
        rows = {"q": hidden, "k": kv, "v": kv, "o": hidden}
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (count, hidden) for name, count in rows.items()}
        shapes |= {f"{at}.mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = (hidden, inner)
    return {
        name: mx.array(rng.standard_normal(shape).astype(np.float32) * 0.1).astype(dtype)
        for name, shape in shapes.items()
    }


def _write_tokenizer(folder: Path, words: int) -> None:
    """A word-level tokenizer of `words` ids, the last of them special."""
    vocab = {f"w{number}": number for number in range(words - 1)}
    special = {
        "id": words - 1,
        "content": "<end>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {**vocab, "<end>": words - 1}, "unk_token": "w0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))


@pytest.fixture
def write_tokenizer() -> Callable[[Path, int], None]:
    return _write_tokenizer


@pytest.fixture
def llama(tmp_path: Path, save: Callable[..., Inventory]) -> Callable[..., Path]:
    """Write a llama of random weights, with its tokenizer, into a folder of that name."""

    def make(
        name: str, *, seed: int = 0, words: int = 32, dtype: mx.Dtype = mx.bfloat16, **changes: Any
    ) -> Path:
        config = {**LLAMA, **changes}
        save(tmp_path / name, _llama_arrays(config, seed, dtype), config)
        _write_tokenizer(tmp_path / name, words)
        return tmp_path / name

    return make


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[[str], Recipe]:
    """The recipe of a Modelfile's text; paths count from tmp_path."""
    return lambda text: Modelfile.parse(text).recipe(tmp_path)


@pytest.fixture
def make(store: Store, recipe: Callable[[str], Recipe]) -> Callable[..., Created]:
    """Create a package from a Modelfile's text."""

    def create(text: str, name: str = "story", **options: Any) -> Created:
        return build(recipe(text), Name.parse(name), store, **options)

    return create
