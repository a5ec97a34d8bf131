"""Qwen4, experimental: Qwen3.5's mixtures with several residual streams, indexed attention and a table of
n-grams in front of one layer.

Read under MLX's names, as Qwen3.5. How n-grams become places in the table stands in the metadata as numbers,
which have to be those that the runtime makes of a config. The table itself lies outside the blocks; published
checkpoints have it in shards.
"""

from dataclasses import replace

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moe import MOE_INNER, PLAIN_SOFTMAX, expert_settings, shared_inner
from modelkit.source.gguf.architectures.moves import Atom, Link, Side
from modelkit.source.gguf.architectures.numbers import Longs
from modelkit.source.gguf.architectures.parts import ATTENTION, decoder, rule, rules
from modelkit.source.gguf.architectures.qwen_next import (
    DELTA,
    EXPERTS,
    FILTERS,
    HEADS_35,
    ROPE,
    SECTIONS_35,
    norms,
)
from modelkit.source.gguf.architectures.rules import Joined, Members, Parted, Rule
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from runtime.nn.feed_forward.ngram_hash import MOST_HEADS, Ngrams
from runtime.records import dataclass

_TABLE = "per_layer_token_embd.weight"
_CONSTANTS = {
    "layer_multipliers": "ple.layer_multipliers",
    "ngram_heads_offsets": "ple.head_offsets",
    "ngram_heads_vocab_sizes": "ple.head_vocab_sizes",
}
_SEED = 1234
"""Published files' own, of which a file of GGUF has what it makes alone."""


def _read_gate(file: Reading) -> None:
    file.config["output_gate_type"] = "sigmoid"


def _check_gate(out: Writing) -> None:
    if out.facts.get("output_gate_type") != "sigmoid":
        out.refuse("output_gate_type is not sigmoid, and llama.cpp computes no other for qwen4exp")


def _read_layers(file: Reading) -> None:
    ratios = file.each("attention.compress_ratios")
    kinds = file.config["layer_types"]
    attends = {ratio for ratio, kind in zip(ratios, kinds, strict=True) if kind == "full_attention"}
    if len(attends) != 1 or 0 in attends:
        file.unsupported("`attention.compress_ratios` is not one number for all layers that attend")
    file.config |= {
        "layer_types": ["indexed_attention" if one == "full_attention" else one for one in kinds],
        "indexer_compress_ratio": attends.pop(),
        "indexer_kv_heads": 1,
    }


def _write_layers(out: Writing) -> None:
    recurrent = out.metadata[f"{out.architecture}.attention.recurrent_layers"]
    if all(recurrent):
        out.refuse("no layer attends, which GGUF cannot say for qwen4exp")
    ratio = out.facts.count("indexer_compress_ratio")
    out.put("attention.compress_ratios", [0 if one else ratio for one in recurrent])


def _ngrams(facts: Facts) -> Ngrams:
    ends = facts.get("eos_token_id")
    return Ngrams(
        longest=facts.count("ngram_size", default=3),
        each=facts.count("heads_per_ngram", default=8),
        place=0,
        vocab=facts.count("vocab_size"),
        least=facts.count("ngram_vocab_size_base", default=20_000_000),
        padded_to=facts.count("make_ngram_vocab_size_divisible_by", default=128),
        seed=facts.count("seed", default=_SEED),
        end=ends[0] if isinstance(ends, (list, tuple)) else ends,
    )


def _numbers(file: Reading, key: str) -> list[int]:
    told = file.get(key)
    if told is None:
        return []
    if not isinstance(told, list) or any(type(one) is not int or one < 0 for one in told):
        file.refuse(f"`{file.full(key)}` is not a list of natural numbers")
    return told


def _read_table(file: Reading) -> None:
    layers = _numbers(file, "ple.layers")
    if not layers:
        return
    if len(layers) != 1 or layers[0] >= file.layers or len(file.shapes.get(_TABLE, ())) != 2:
        file.unsupported("it has not one table of n-grams for one layer, and llama.cpp knows no others")
    rows, size = file.shapes[_TABLE]
    longest, each = file.count("ple.ngram_size"), file.count("ple.heads_per_ngram")
    sizes = _numbers(file, "ple.head_vocab_sizes")
    if not 0 < (longest - 1) * each == len(sizes) <= MOST_HEADS or not 0 < sizes[0] <= rows:
        file.refuse(f"`{file.full('ple.head_vocab_sizes')}` does not fit the n-grams or the table")
    file.config |= {
        "ple_layer_ids": [layers[0] + 1],
        "ngram_size": longest,
        "heads_per_ngram": each,
        "ple_conv_kernel_size": file.count("ple.conv_kernel"),
        "ngram_vocab_size_base": sizes[0],
        "make_ngram_vocab_size_divisible_by": 128 if -(-sum(sizes) // 128) * 128 == rows else rows,
        "seed": _SEED,
    }
    end, other = file.count("ple.eos_token_id"), file.config.get("eos_token_id")
    file.config["eos_token_id"] = end if other in (None, end) else [end, other]
    shape = _ngrams(Facts(file.config))
    if file.count("embedding_length_per_layer_input", size) != size:
        file.refuse(f"rows of `{_TABLE}` are {size} wide, and the metadata says otherwise")
    file.config["ple_embed_dim"] = size * shape.heads
    for name, numbers in shape.constants().items():
        if file.get(_CONSTANTS[name]) != numbers:
            file.unsupported(f"`{file.full(_CONSTANTS[name])}` has other numbers than the model's rule makes")
    file.skip("ple.image_token_id")


def _write_table(out: Writing) -> None:
    places = sorted(set(out.facts.get("ple_layer_ids", default=[]) or []))
    if not places:
        return
    if len(places) > 1:
        out.refuse(f"{len(places)} layers have a table of n-grams, and GGUF can say that of one alone")
    shape = _ngrams(out.facts)
    if shape.seed != _SEED:
        out.refuse(f"seed is {shape.seed}, and a file of GGUF is read as one of {_SEED}")
    out.put("ple.layers", [places[0] - 1])
    out.put("ple.ngram_size", shape.longest)
    out.put("ple.heads_per_ngram", shape.each)
    out.put("ple.conv_kernel", out.facts.count("ple_conv_kernel_size", default=4))
    out.put("ple.eos_token_id", shape.end)
    size = out.facts.count("ple_embed_dim", default=out.facts.count("hidden_size"))
    out.put("embedding_length_per_layer_input", size // shape.heads)
    for name, numbers in shape.constants().items():
        stored = f"model.layers.{places[0] - 1}.{_HASHED}.{name}"
        if stored in out.shapes and [int(one) for one in out.numbers(stored)] != numbers:
            out.refuse(f"{stored} has other numbers than the model's rule makes")
        out.put(_CONSTANTS[name], Longs(numbers))


def _index_rows(facts: Facts, _: int) -> tuple[int, int]:
    size = facts.count("indexer_head_dim")
    return facts.count("indexer_n_heads") * size, size


def _streams(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (
        *norms(f"{theirs}_norm.weight = {ours}.hc_norm.weight"),
        *rules(f"""
            {theirs}_down.weight = {ours}.input_mix_weight_down.weight
            {theirs}_up.weight = {ours}.input_mix_weight_up.weight
            {theirs}_inject.weight = {ours}.block_inject_weight.weight
        """),
    )


@dataclass(frozen=True, slots=True)
class _Shards:
    """Rows of one tensor of theirs are those of ours, one behind the other; written alone."""

    def link(self, members: Members) -> Link | None:
        shapes = [members.shapes.get(name, ()) for name in members.ours]
        if any(len(shape) != 2 or shape[1] != shapes[0][1] for shape in shapes):
            return None
        rows = [shape[0] for shape in shapes]
        return Link(
            (Side(members.theirs[0], (sum(rows), shapes[0][1]), tuple(range(len(rows)))),),
            tuple(Side(name, members.shapes[name], (i,)) for i, name in enumerate(members.ours)),
            tuple(map(Atom, rows)),
        )


_INDEXER = "self_attn.indexer"
_HASHED = "ple.ple_embedding"

QWEN4EXP = Architecture(
    "qwen4exp",
    (Kind("qwen4_exp_text", "Qwen4ExpForCausalLM", aliases=("qwen4_exp",)),),
    decoder(
        replace(ROPE, partial=1.0),
        *expert_settings(),
        *PLAIN_SOFTMAX,
        MOE_INNER,
        shared_inner("shared_expert_intermediate_size"),
        DELTA,
        SECTIONS_35,
        Special(_read_layers, _write_layers),
        Same("hyper_connection.count", ("hc_count",), default=4, needed=True),
        Same("hyper_connection.low_rank", ("hc_lowrank",), default=320, needed=True),
        Same("attention.indexer.head_count", ("indexer_n_heads",), needed=True),
        Same("attention.indexer.key_length", ("indexer_head_dim",), needed=True),
        Same("attention.indexer.top_k", ("indexer_budget",), needed=True),
        Special(_read_table, _write_table),
        Always("norm_topk_prob", True),
        Special(_read_gate, _check_gate),
        Always("attention_bias", False),
        inner=Same("feed_forward_length", ("intermediate_size",)),
    ),
    (
        *rules("""
            token_embd.* = model.embed_tokens.*
            output.* = lm_head.*
        """),
        *_streams("output_hc", "model.hyper_connection_mixer"),
        rule(_TABLE, "model.ngram_embedding.weight"),
    ),
    (
        *_streams("hc_attn", "attn_hyper_connection"),
        *_streams("hc_ffn", "mlp_hyper_connection"),
        *norms(f"""
            attn_q_norm.* = self_attn.q_norm.*
            attn_k_norm.* = self_attn.k_norm.*
            indexer.q_norm.weight = {_INDEXER}.q_layernorm.weight
            indexer.k_norm.weight = {_INDEXER}.k_layernorm.weight
            ple_norm_key.weight = ple.norm_key.weight
            ple_norm_query.weight = ple.norm_query.weight
            ple_norm_conv.weight = ple.norm_conv.weight
        """),
        *ATTENTION,
        rule(
            ("indexer.q_proj.weight", "indexer.k_proj.weight"),
            f"{_INDEXER}.index_qk_proj.weight",
            Joined(Parted(_index_rows)),
        ),
        *rules("""
            ple_key.weight = ple.key_proj.weight
            ple_value.weight = ple.value_proj.weight
        """),
        rule("ple_conv1d.weight", "ple.conv1d.weight", FILTERS),
        rule(f"^{_TABLE}", f"{_HASHED}.ngram_embedding.weight"),
        rule(f"^{_TABLE}", [f"{_HASHED}.ngram_embedding.shard_{i}.weight" for i in range(512)], _Shards()),
        *HEADS_35,
        *EXPERTS,
    ),
    exact="as qwen35",
)
