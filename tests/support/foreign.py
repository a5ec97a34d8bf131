"""A model file in the manner of mlx-lm's, with full attention and a window, and caches of mlx-lm's names.

`Model` called without caches computes everything from the tokens alone: the reference for every way of
running it through layer memory.
"""

from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.models import Described
from runtime.models.foreign import Foreign
from runtime.models.foreign.fields import Count, Number, Only, Words
from runtime.models.foreign.kinds import Kind

CONFIG: dict[str, Any] = {
    "architectures": ["NovelForCausalLM"],
    "model_type": "novel",
    "vocab_size": 40,
    "hidden_size": 16,
    "layer_types": ["full", "sliding", "sliding"],
    "span": 5,
    "max_position_embeddings": 256,
}


class KVCache:
    pass


class RotatingKVCache:
    keep = 0

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size


class StrangeCache:
    pass


@dataclass
class ModelArgs:
    vocab_size: int
    hidden_size: int
    layer_types: list[str]
    span: int
    max_position_embeddings: int = 64

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> "ModelArgs":
        return cls(**{field.name: raw[field.name] for field in fields(cls) if field.name in raw})


class Attention(nn.Module):
    def __init__(self, args: ModelArgs, window: int | None) -> None:
        super().__init__()
        self.qkv = nn.Linear(args.hidden_size, 3 * args.hidden_size, bias=False)
        self.window = window

    def __call__(self, x: mx.array, cache: Any) -> mx.array:
        rows, width, size = x.shape
        heads = self.qkv(x).reshape(rows, width, 3, 2, size // 2).transpose(2, 0, 3, 1, 4)
        offset = 0 if cache is None else cache.offset
        queries = mx.fast.rope(heads[0], size // 2, traditional=False, base=100.0, scale=1.0, offset=offset)
        keys = mx.fast.rope(heads[1], size // 2, traditional=False, base=100.0, scale=1.0, offset=offset)
        values = heads[2]
        if cache is None:
            places = mx.arange(width)
            mask = places <= places[:, None]
            mask = mask if self.window is None else mask & (places > places[:, None] - self.window)
        else:
            mask = cache.make_mask(width, window_size=self.window, return_array=self.window is None)
            keys, values = cache.update_and_fetch(keys, values)
        out = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0, mask=mask)
        return out.transpose(0, 2, 1, 3).reshape(rows, width, size)


class Trunk(nn.Module):
    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(args.vocab_size, args.hidden_size)
        self.layers = [Attention(args, args.span if kind == "sliding" else None) for kind in args.layer_types]
        self.norm = nn.RMSNorm(args.hidden_size)

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        x = self.embed_tokens(tokens)
        for layer, own in zip(self.layers, cache or [None] * len(self.layers), strict=True):
            x = x + layer(x, own)
        return self.norm(x)


class Model(nn.Module):
    """Tied, and with a scale between trunk and head."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.args = args
        self.model = Trunk(args)

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        return self.model.embed_tokens.as_linear(self.model(inputs, cache) * 3.0)

    @property
    def layers(self) -> list[Any]:
        return self.model.layers

    def make_cache(self) -> list[Any]:
        return [
            RotatingKVCache(self.args.span) if kind == "sliding" else KVCache()
            for kind in self.args.layer_types
        ]

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        return {name.removeprefix("wrapped."): array for name, array in weights.items()}


KIND = Kind(
    "novel",
    ("novel",),
    ("NovelForCausalLM",),
    {
        "vocab_size": Count(40),
        "hidden_size": Count(16),
        "layer_types": Words(("full", "sliding")),
        "span": Count(5),
        "max_position_embeddings": Count(64),
        "tie_word_embeddings": Only(True),
        "hidden_act": Only("silu", None),
        "block.rate": Number(1.0),
    },
    spare=(".mask",),
)


def novel(model: type[nn.Module] = Model, **of_the_kind: Any) -> Foreign:
    """The architecture of a file that holds `model`; `of_the_kind` changes KIND."""
    module = ModuleType("mlx_lm.models.novel")
    module.Model, module.ModelArgs = model, ModelArgs
    return Foreign(module, replace(KIND, **of_the_kind), "0.32.2")


def describe_novel(architecture: Foreign, **changes: Any) -> Described:
    """`changes` go into the config."""
    config = architecture.parse({**CONFIG, **changes})
    return Described("NovelForCausalLM", architecture.family, config, tuple(architecture.layout(config)))
