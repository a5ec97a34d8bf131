"""Encoders for embeddings with a norm behind every sublayer: BERT, what llama.cpp writes as BERT (RoBERTa and
its kin, DistilBERT), Jina v3 and Nomic BERT; and EuroBERT, whose layers are Llama's.

Positions of RoBERTa's kin begin behind the row of padding. llama.cpp counts from 0, so the rows before the
first are left out of a file, and what comes back is BERT with a table that begins there.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Atom, Link, Side
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    HEAD_DIM,
    LAYER_NORM,
    MLP,
    NORMS,
    TOP,
    UNSCALED,
    decoder,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.rules import Joined, Kept, Members, Parted, Rule
from modelkit.source.gguf.architectures.settings import Always, Same, Setting, Special
from runtime.models.registry.names import architecture_name
from runtime.records import dataclass

_ROBERTAS = ("roberta", "camembert", "xlm-roberta")
_DISTIL_EPS = 1e-12
"""DistilBERT's, which no config of it says."""


def _padding(facts: Facts) -> int:
    """Rows of the table of positions that stand before a text's first."""
    return facts.count("pad_token_id", default=1) + 1 if facts.get("model_type") in _ROBERTAS else 0


@dataclass(frozen=True, slots=True)
class _FromTheFirst:
    """A table of positions whose file begins with a text's first."""

    def link(self, members: Members) -> Link | None:
        name = members.ours[0]
        before = _padding(members.facts) if name in members.shapes else 0
        if not before:
            return Kept().link(members)
        rows, width = members.shapes[name]
        theirs = Side(members.theirs[0], (rows - before, width), (1,))
        return Link((theirs,), (Side(name, (rows, width), (0, 1)),), (Atom(before), Atom(rows - before)))


def _positions(tensor: str, field: str) -> Setting:
    """How many there are: the table's rows say it in a file."""

    def read(file: Reading) -> None:
        file.skip("context_length")
        file.config[field] = _rows(file, tensor)

    def write(out: Writing) -> None:
        before = _padding(out.facts)
        out.put("context_length", out.facts.count("max_position_embeddings") - before)
        if before:
            out.notes.append(
                f"the first {before} rows of the table of positions are left out: a text begins behind them, "
                "and only padding within one would read them"
            )

    return Special(read, write)


def _rows(file: Reading, tensor: str) -> int:
    shape = file.shapes.get(f"{tensor}.weight")
    if shape is None or len(shape) != 2:
        file.refuse(f"there is no tensor `{tensor}.weight`, so this is not a whole model")
    return shape[0]


def _read_types(file: Reading) -> None:
    file.config["type_vocab_size"] = _rows(file, "token_types")


def _write_types(out: Writing) -> None:
    out.put(".tokenizer.ggml.token_type_count", out.facts.count("type_vocab_size", default=2))


_TYPES = Special(_read_types, _write_types)
CAUSAL = Special(writing=lambda out: out.put("attention.causal", False))
"""Read for all architectures in one place."""


_CLASSIFIERS = {1: "mean", 2: "cls"}


def _read_classifier(file: Reading) -> None:
    told = file.get("classifier.pooling_type", int)
    if told in _CLASSIFIERS:
        file.config["classifier_pooling"] = _CLASSIFIERS[told]


def _write_classifier(out: Writing) -> None:
    told = out.facts.get("classifier_pooling")
    for number, word in _CLASSIFIERS.items():
        if word == told:
            out.put("classifier.pooling_type", number)


CLASSIFIER = Special(_read_classifier, _write_classifier)
"""How a classifier behind it would pool, which nothing here computes."""


def _sizes(*, hidden: str, inner: str, heads: str, eps: Setting) -> tuple[Setting, ...]:
    """By the names of a config's fields."""
    return (
        Same("embedding_length", (hidden, "n_embd"), needed=True),
        Same("feed_forward_length", (inner, "n_inner"), needed=True),
        Same("attention.head_count", (heads, "n_head"), needed=True),
        eps,
        CAUSAL,
    )


_EPS = Same(LAYER_NORM, ("layer_norm_eps", "layer_norm_epsilon"), default=1e-12, needed=True)

_TOP: tuple[Rule, ...] = (
    *rules("token_embd.weight = embeddings.word_embeddings.weight"),
    rule("position_embd.weight", "embeddings.position_embeddings.weight", _FromTheFirst()),
    *rules("token_embd_norm.* = embeddings.LayerNorm.*"),
)
_TYPE_ROWS = rule("token_types.weight", "embeddings.token_type_embeddings.weight")


def _has_types(file: Reading) -> bool:
    return "token_types.weight" in file.shapes


def _is_jinas(config: Mapping[str, Any]) -> bool:
    """Its second embeddings are of the model_type bert, too."""
    return architecture_name(config).startswith("JinaBert")


BERT = Architecture(
    "bert",
    (Kind("bert", "BertModel", _has_types, aliases=_ROBERTAS),),
    (
        *_sizes(hidden="hidden_size", inner="intermediate_size", heads="num_attention_heads", eps=_EPS),
        _positions("position_embd", "max_position_embeddings"),
        _TYPES,
        Always("hidden_act", "gelu"),
    ),
    (*_TOP, _TYPE_ROWS),
    rules("""
        attn_q.* = attention.self.query.*
        attn_k.* = attention.self.key.*
        attn_v.* = attention.self.value.*
        attn_output.* = attention.output.dense.*
        attn_output_norm.* = attention.output.LayerNorm.*
        ffn_up.* = intermediate.dense.*
        ffn_down.* = output.dense.*
        layer_output_norm.* = output.LayerNorm.*
    """),
    home="encoder.layer.{}.",
    exact="bits; roberta, camembert and xlm-roberta are written as bert, positions from the first on",
    otherwise=("padding",),
    condition=lambda config: not _is_jinas(config),
    looks_ahead=True,
)


def _read_distilled(file: Reading) -> None:
    eps = file.number(LAYER_NORM)
    if eps != _DISTIL_EPS:
        file.unsupported(
            f"tokens have no types, as in DistilBERT, and `{file.full(LAYER_NORM)}` is {eps}; "
            f"{_DISTIL_EPS} was expected"
        )
    del file.config["num_hidden_layers"]
    file.config["n_layers"] = file.layers


def _write_distilled(out: Writing) -> None:
    out.put(LAYER_NORM, _DISTIL_EPS)
    out.put(".tokenizer.ggml.token_type_count", 1)


DISTILBERT = Architecture(
    "bert",
    (Kind("distilbert", "DistilBertModel"),),
    (
        *_sizes(
            hidden="dim", inner="hidden_dim", heads="n_heads", eps=Special(_read_distilled, _write_distilled)
        ),
        _positions("position_embd", "max_position_embeddings"),
        Always("activation", "gelu"),
    ),
    _TOP,
    rules("""
        attn_q.* = attention.q_lin.*
        attn_k.* = attention.k_lin.*
        attn_v.* = attention.v_lin.*
        attn_output.* = attention.out_lin.*
        attn_output_norm.* = sa_layer_norm.*
        ffn_up.* = ffn.lin1.*
        ffn_down.* = ffn.lin2.*
        layer_output_norm.* = output_layer_norm.*
    """),
    home="transformer.layer.{}.",
    looks_ahead=True,
)

JINA_BERT_V3 = Architecture(
    "jina-bert-v3",
    (Kind("jina_embeddings_v3", "JinaEmbeddingsV3Model"),),
    (
        Same("context_length", ("max_position_embeddings",)),
        *_sizes(hidden="hidden_size", inner="intermediate_size", heads="num_attention_heads", eps=_EPS),
        _TYPES,
        Rope(theta=20000.0, dimensions=False),
        Always("hidden_act", "gelu"),
    ),
    (_TOP[0], _TOP[-1], _TYPE_ROWS),
    rules("""
        attn_q.* = self_attn.q_proj.*
        attn_k.* = self_attn.k_proj.*
        attn_v.* = self_attn.v_proj.*
        attn_qkv.* = self_attn.Wqkv.*
        attn_output.* = self_attn.o_proj.*
        attn_output_norm.* = post_attention_layernorm.*
        ffn_up.* = mlp.fc1.*
        ffn_down.* = mlp.fc2.*
        layer_output_norm.* = post_mlp_layernorm.*
    """),
    home="layers.{}.",
    looks_ahead=True,
)
"""Its converter leaves adapters for tasks to files of their own."""

NOMIC_BERT = Architecture(
    "nomic-bert",
    (Kind("nomic_bert", "NomicBertModel"),),
    (
        Same("context_length", ("max_position_embeddings", "n_positions")),
        *_sizes(hidden="hidden_size", inner="intermediate_size", heads="num_attention_heads", eps=_EPS),
        HEAD_DIM,
        _TYPES,
        Rope(theta=1000.0, dimensions=False),
        Always("hidden_act", "silu", unless=("swish",)),
    ),
    (
        _TYPE_ROWS,
        *rules("""
            token_embd.weight = embeddings.word_embeddings.weight
            token_embd_norm.* = emb_ln.*
        """),
    ),
    rules("""
        attn_qkv.weight = attn.Wqkv.weight
        attn_q.weight = self_attn.q_proj.weight
        attn_k.weight = self_attn.k_proj.weight
        attn_v.weight = self_attn.v_proj.weight
        attn_output.weight = attn.out_proj.weight
        attn_output_norm.* = norm1.*
        ffn_up.weight = mlp.fc11.weight
        ffn_gate.weight = mlp.fc12.weight
        ffn_down.weight = mlp.fc2.weight
        layer_output_norm.* = norm2.*
    """),
    home="encoder.layers.{}.",
    looks_ahead=True,
    condition=lambda config: not config.get("moe_every_n_layers"),
)


def _read_bias(file: Reading) -> None:
    """Of each mixture's answers; the converter leaves it out, as llama.cpp has no place for it."""
    width = file.config["hidden_size"]
    for layer, sparse in enumerate(file.layers_with("ffn_gate_inp")):
        if sparse:
            file.constants[f"encoder.layers.{layer}.mlp.experts.bias"] = (width,), (0.0,) * width


NOMIC_BERT_MOE = Architecture(
    "nomic-bert-moe",
    (Kind("nomic_bert", "NomicBertModel"),),
    (
        *NOMIC_BERT.settings[:-1],
        Same("moe_every_n_layers", ("moe_every_n_layers",), needed=True),
        Same("expert_count", ("num_experts",), needed=True),
        Same("expert_used_count", ("moe_top_k",), needed=True),
        Always("activation_function", "gelu"),
        Special(_read_bias),
    ),
    NOMIC_BERT.top,
    rules("""
        attn_qkv.* = attn.Wqkv.*
        attn_q.* = self_attn.q_proj.*
        attn_k.* = self_attn.k_proj.*
        attn_v.* = self_attn.v_proj.*
        attn_output.* = attn.out_proj.*
        attn_output_norm.* = norm1.*
        ffn_up.* = mlp.fc1.*
        ffn_down.* = mlp.fc2.*
        ffn_gate_inp.weight = mlp.router.layer.weight
        ffn_up_exps.weight = mlp.switch_mlp.up_proj.weight
        ffn_down_exps.weight = mlp.switch_mlp.down_proj.weight
        layer_output_norm.* = norm2.*
    """),
    home="encoder.layers.{}.",
    looks_ahead=True,
    written=False,
    exact="bits; a mixture's bias is not in the file",
)


def _gated_rows(facts: Facts, _: int) -> tuple[int, ...]:
    return (facts.count("intermediate_size"),) * 2


def _of_the_plain_class(file: Reading) -> None:
    """Files of the other class have a gate's rows behind, where its code has them, and llama.cpp takes the
    first for the gate.
    """
    if any(file.layers_with("attn_q_norm")):
        file.unsupported(
            "queries and keys have norms, as in jina-embeddings-v2-base-code: what llama.cpp computes of "
            "such files is not what the model's own code does"
        )
    file.config["auto_map"] = {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"}


def _write_the_plain_class(out: Writing) -> None:
    if "post-norm" in str(out.facts.get("auto_map")):
        out.refuse("llama.cpp takes the wrong half for the gate of jina-bert-v2-qk-post-norm")


JINA_BERT_V2 = Architecture(
    "jina-bert-v2",
    (Kind("bert", "JinaBertModel"),),
    (
        Same("context_length", ("max_position_embeddings",)),
        *_sizes(hidden="hidden_size", inner="intermediate_size", heads="num_attention_heads", eps=_EPS),
        _TYPES,
        Special(_of_the_plain_class, _write_the_plain_class),
        Always("position_embedding_type", "alibi"),
        Always("feed_forward_type", "geglu"),
        Always("hidden_act", "gelu"),
    ),
    (_TOP[0], _TOP[-1], _TYPE_ROWS),
    (
        *rules("""
            attn_q.* = attention.self.query.*
            attn_k.* = attention.self.key.*
            attn_v.* = attention.self.value.*
            attn_output.* = attention.output.dense.*
            attn_output_norm.* = attention.output.LayerNorm.*
            ffn_down.* = mlp.wo.*
            layer_output_norm.* = mlp.layernorm.*
        """),
        rule(
            ("ffn_gate.weight", "ffn_up.weight"),
            "mlp.gated_layers.weight",
            Joined(Parted(_gated_rows)),
            written=False,
        ),
        rule("ffn_up.weight", "mlp.gated_layers.weight"),
    ),
    home="encoder.layer.{}.",
    condition=_is_jinas,
    looks_ahead=True,
)


EUROBERT = Architecture(
    "eurobert",
    (Kind("eurobert", "EuroBertModel"),),
    decoder(
        CAUSAL,
        CLASSIFIER,
        Rope(dimensions=False),
        UNSCALED,
        Always("attention_bias", False),
        Always("mlp_bias", False),
    ),
    TOP,
    (*NORMS, *ATTENTION, *MLP),
    looks_ahead=True,
)
