"""Qwen4, experimental: Qwen3.5's layers on several residual streams, attention that looks at chosen blocks of
the past alone, and tables of n-grams in front of some layers.

No sublayer has a norm of its own: what it reads is mixed of the streams, and its answer comes to each of them
by a share (`mixed_streams`). Each layer has three memories: a delta net's states, a table's last ids and what
its convolution has read; or attention's keys and values, and the indexer's keys. All norms but the delta
net's are stored as weight - 1.

Source: transformers modeling_qwen4_exp.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Recurrent, State, Stateless
from runtime.cache.protocol import AttentionCache, Caches, StepCache, by_layout
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import RATES, Family
from runtime.models.qwen3_5 import ROWS, adapted
from runtime.models.qwen3_5_config import Config as Qwen35Config
from runtime.models.qwen3_5_config import read_delta, read_experts, read_recurrent
from runtime.nn.attention.attend import attention, merge_heads
from runtime.nn.attention.block_indexer import BlockShape, MeanIndexer
from runtime.nn.attention.gated_attention import GatedAttention
from runtime.nn.attention.self_attention import Projected
from runtime.nn.feed_forward.moe import GatedSharedMoE
from runtime.nn.feed_forward.ngram import NgramLayer
from runtime.nn.feed_forward.ngram_hash import MOST_HEADS, Ngrams
from runtime.nn.linear import embed
from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.recurrent.delta_net import GatedDeltaNet
from runtime.nn.residual.stream_mixer import LowRankConnection, StreamMixer, joined
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import head_norms
from runtime.trunks.headed import Headed, untied_head

MEMORIES = 3
"""Of each layer."""
Memories = tuple[StepCache, StepCache, StepCache]


@dataclass(frozen=True, slots=True)
class Config(Qwen35Config):
    index: BlockShape | None
    """None: no layer attends."""
    streams: int
    rank: int
    """Of the gates under which streams are mixed."""
    tables: tuple[Ngrams | None, ...]
    """Of each layer."""
    table_size: int
    """Elements of what a table's heads find together."""
    table_taps: int
    """Of the convolution behind a table."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("qwen4_exp", "qwen4_exp_text"))
    layers, expert = layer_count(fields, 40), read_experts(fields, 512, 10)
    shape = read_shape(
        Fields({**fields.raw, "intermediate_size": expert.inner}),
        vocab_size=248320,
        hidden_size=2048,
        num_attention_heads=16,
        num_key_value_heads=2,
        head_dim=256,
        max_position_embeddings=32768,
    )
    fields.choice("hidden_act", ("silu",), "silu")
    recurrent = read_recurrent(fields, layers, ("indexed_attention", "full_attention"))
    rope = one_rope(fields, shape, partial=1.0)
    index = None if all(recurrent) else _index(fields)
    if index is not None and rope.dims > index.size:
        fields.refuse("indexer_head_dim", f"at least the {rope.dims} elements that are rotated")
    opens = fields.choice("output_gate_type", ("silu", "sigmoid"), "silu")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        bias=fields.flag("attention_bias"),
        delta=replace(read_delta(fields, shape["norm_eps"]), opens=opens),
        recurrent=recurrent,
        sparse=(True,) * layers,
        expert=expert,
        head_layers=0,
        index=index,
        streams=fields.count("hc_count", 4, low=2, high=64),
        rank=fields.count("hc_lowrank", 320, high=1 << 20),
        tables=_tables(fields, recurrent, shape["vocab_size"]),
        table_size=fields.count("ple_embed_dim", shape["hidden_size"], high=1 << 20),
        table_taps=fields.count("ple_conv_kernel_size", 4, low=2, high=64),
    )


def _index(fields: Fields) -> BlockShape:
    if fields.count("indexer_kv_heads") != 1:
        fields.refuse("indexer_kv_heads", "1")
    block, budget = fields.count("indexer_compress_ratio"), fields.count("indexer_budget")
    if budget % block:
        fields.refuse("indexer_budget", f"a multiple of indexer_compress_ratio, {block}")
    return BlockShape(
        heads=fields.count("indexer_n_heads", high=4096),
        size=fields.count("indexer_head_dim", high=4096),
        block=block,
        best=budget // block,
    )


def _tables(fields: Fields, recurrent: tuple[bool, ...], vocab: int) -> tuple[Ngrams | None, ...]:
    listed = fields.raw.get("ple_layer_ids") or []
    known = range(1, len(recurrent) + 1)
    if not isinstance(listed, list) or any(type(i) is not int or i not in known for i in listed):
        fields.refuse("ple_layer_ids", f"a list of layers from 1 to {len(recurrent)}")
    places = sorted(set(listed))
    if not places:
        return (None,) * len(recurrent)
    if not all(recurrent[place - 1] for place in places):
        fields.refuse("ple_layer_ids", "layers of linear_attention alone")
    first = Ngrams(
        longest=fields.count("ngram_size", 3, low=2, high=64),
        each=fields.count("heads_per_ngram", 8, high=256),
        place=0,
        vocab=vocab,
        least=fields.count("ngram_vocab_size_base", 20_000_000, high=1 << 30),
        padded_to=fields.count("make_ngram_vocab_size_divisible_by", 128, high=1 << 20),
        seed=fields.count("seed", 1234, low=0, high=1 << 62),
        end=_end_of_text(fields),
    )
    if first.heads * len(places) > MOST_HEADS:
        fields.refuse("heads_per_ngram", f"at most {MOST_HEADS} heads of all tables and lengths together")
    if fields.count("ple_embed_dim", fields.count("hidden_size", 2048), high=1 << 20) % first.heads:
        fields.refuse("ple_embed_dim", f"a multiple of the {first.heads} heads of n-grams")
    return tuple(
        replace(first, place=places.index(i)) if i in places else None for i in range(1, len(recurrent) + 1)
    )


def _end_of_text(fields: Fields) -> int:
    """Of several the first, as in transformers."""
    ends = fields.raw.get("eos_token_id")
    end = ends[0] if isinstance(ends, list) and ends else ends
    if type(end) is not int or end < 0:
        raise UnsupportedModel(
            "config.json: eos_token_id is not an id, and tables of n-grams begin anew behind an end of text"
        )
    return end


def layout(config: Config) -> list[LayerSpec]:
    specs: list[LayerSpec] = []
    for recurrent, table in zip(config.recurrent, config.tables, strict=True):
        if recurrent:
            specs.append(config.delta.memory)
            specs += (Stateless(), Stateless()) if table is None else _of_table(config, table)
        else:
            assert config.index is not None
            specs += Full(config.kv_heads, config.head_dim), Full(1, config.index.size, value_dim=0)
            specs.append(Stateless())
    return specs


def _of_table(config: Config, table: Ngrams) -> tuple[Recurrent, Recurrent]:
    read = (config.table_taps - 1) * table.longest, config.streams * config.hidden_size
    return table.memory, Recurrent({"conv": State(read)})


class Attention(GatedAttention):
    """Over what an indexer chooses."""

    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__(config, rope, head_norms(config), bias=config.bias)
        assert config.index is not None
        self.indexer = MeanIndexer(config.index, config.hidden_size, rope, config.norm_eps)
        self._parts_hold = False

    def heard(
        self, step: Step, cache: "AttentionCache | Sequence[AttentionCache]", heads: Projected, x: mx.array
    ) -> mx.array:
        """cache: its own, and the indexer's."""
        memory, index = cast("Sequence[AttentionCache]", cache)
        queries, keys, values = heads
        queries, keys = self.place(queries, keys, step)
        seen, values, mask = memory.append(step, keys, values)
        assert values is not None
        mask = self.indexer.narrowed(x, step, index, mask)
        out = attention(queries, seen, values, mask, scale=self._scale)
        return out.reshape(*x.shape[:2], -1) if step.width == 1 else merge_heads(out)


class Block(Module):
    def __init__(self, config: Config, rope: Rope, place: int) -> None:
        super().__init__()
        hidden, spec, table = config.hidden_size, config.expert, config.tables[place]
        assert spec is not None
        sizes = config.streams, hidden, config.rank, config.norm_eps
        if config.recurrent[place]:
            self.linear_attn = GatedDeltaNet(hidden, config.delta)
        else:
            self.self_attn = Attention(config, rope)
        self.mlp = GatedSharedMoE(
            hidden, spec.inner, spec.experts, spec.chosen, shared=spec.shared, normalize=spec.normalize
        )
        if table is not None:
            of_table = config.table_size, config.streams, hidden, config.table_taps, config.norm_eps
            self.ple = NgramLayer(table, *of_table)
        self.attn_hyper_connection = LowRankConnection(*sizes)
        self.mlp_hyper_connection = LowRankConnection(*sizes)

    def __call__(self, x: mx.array, step: Step, caches: Memories) -> mx.array:
        """x: the streams."""
        if "ple" in self:
            x = x + self.ple(x, step, caches[1:])
        read, shares = self.attn_hyper_connection.open(x, step)
        if "linear_attn" in self:
            answer = self.linear_attn(read, step, caches[0])
        else:
            both: Any = caches[:2]
            answer = self.self_attn(read, step, both)
        x = joined(x, answer, shares)
        read, shares = self.mlp_hyper_connection.open(x, step)
        return joined(x, self.mlp(read, step), shares)


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        spec = config.ropes[0]
        assert spec is not None
        rope = Rope(spec)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config, rope, place) for place in range(config.layers)]
        sizes = config.streams, config.hidden_size, config.rank, config.norm_eps
        self.hyper_connection_mixer = StreamMixer(*sizes)
        self._streams = config.streams

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        step.refuse_positions("an indexer of this network turns means of keys by their tokens' indices")
        memories = by_layout(caches)
        of_layers = list(zip(*(memories[i::MEMORIES] for i in range(MEMORIES)), strict=True))
        x = mx.tile(step.embedded(self.embed), (1, 1, self._streams))
        return self.hyper_connection_mixer(ops.table.layers(self.layers, x, step, of_layers), step)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


class Qwen4Exp(Headed):
    norm_name = "hyper_connection_mixer"

    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config))


def build(config: Config) -> Qwen4Exp:
    return Qwen4Exp(config)


_ALONE = "model.ngram_embedding."
"""What is read from GGUF calls the one table so."""
_SHARD = re.compile(r"(.*\.ngram_embedding)\.shard_(\d{1,6})\.(\w+)", re.ASCII)


def adapt(config: Config, weights: Weights) -> Weights:
    """Tables in one piece, and with the constants that a file may leave out."""
    shards: dict[tuple[str, str], dict[int, mx.array]] = {}
    first = next((i for i, table in enumerate(config.tables) if table is not None), 0)
    home, kept = f"model.layers.{first}.ple.ple_embedding.ngram_embedding.", dict[str, mx.array]()
    for name, array in adapted(config, weights).items():
        name = name.replace(_ALONE, home)
        found = _SHARD.fullmatch(name)
        if found is not None:
            shards.setdefault((found[1], found[3]), {})[int(found[2])] = array
        elif not name.startswith("mtp."):
            kept[name] = array
    for (stem, leaf), parts in shards.items():
        kept[f"{stem}.{leaf}"] = mx.concatenate([parts[i] for i in sorted(parts)])
    for place, table in enumerate(config.tables):
        for name, numbers in {} if table is None else table.constants().items():
            kept.setdefault(f"model.layers.{place}.ple.ple_embedding.{name}", mx.array(numbers, mx.int64))
    return kept


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=RATES,
    checkpoint=always(Checkpoint(rows=ROWS, towers=USUAL, heads=("mtp.",))),
)
