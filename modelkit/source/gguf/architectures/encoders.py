"""Encoders for embeddings: BERT, and what llama.cpp's converter turns into it (RoBERTa, XLM-RoBERTa, whose
table of positions it cuts to begin at the first), and Nomic BERT. They are read, and not written.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading
from modelkit.source.gguf.architectures.parts import (
    CONTEXT,
    HEAD_DIM,
    HIDDEN,
    INNER,
    LAYER_NORM,
    put_nothing,
    rules,
)
from modelkit.source.gguf.architectures.settings import Always, Same, Setting, Special


def _tables(file: Reading) -> None:
    """Their rows say how many positions and types there are."""
    file.skip("context_length", "token_type_count")
    for tensor, field in (("position_embd", "max_position_embeddings"), ("token_types", "type_vocab_size")):
        shape = file.shapes.get(f"{tensor}.weight")
        if shape is None or len(shape) != 2:
            file.refuse(f"there is no tensor `{tensor}.weight`, so this is no whole model")
        file.config[field] = shape[0]


def _types(file: Reading) -> None:
    file.skip("token_type_count")
    shape = file.shapes.get("token_types.weight")
    if shape is None or len(shape) != 2:
        file.refuse("there is no tensor `token_types.weight`, so this is no whole model")
    file.config["type_vocab_size"] = shape[0]


_SIZES: tuple[Setting, ...] = (
    HIDDEN,
    INNER,
    Same("attention.head_count", ("num_attention_heads",), needed=True),
    Same(LAYER_NORM, ("layer_norm_eps",), needed=True),
)

BERT = Architecture(
    "bert",
    (Kind("bert", "BertModel"),),
    (*_SIZES, Special(_tables, put_nothing), Always("hidden_act", "gelu")),
    rules("""
        token_embd.weight = embeddings.word_embeddings.weight
        position_embd.weight = embeddings.position_embeddings.weight
        token_types.weight = embeddings.token_type_embeddings.weight
        token_embd_norm.* = embeddings.LayerNorm.*
    """),
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
    condition=lambda _: False,
    looks_ahead=True,
)

NOMIC_BERT = Architecture(
    "nomic-bert",
    (Kind("nomic_bert", "NomicBertModel"),),
    (
        CONTEXT,
        *_SIZES,
        HEAD_DIM,
        Special(_types, put_nothing),
        Same("rope.freq_base", ("rope_theta",), needed=True),
        Always("hidden_act", "silu"),
    ),
    rules("""
        token_embd.weight = embeddings.word_embeddings.weight
        token_types.weight = embeddings.token_type_embeddings.weight
        token_embd_norm.* = emb_ln.*
    """),
    rules("""
        attn_qkv.weight = attn.Wqkv.weight
        attn_output.weight = attn.out_proj.weight
        attn_output_norm.* = norm1.*
        ffn_up.weight = mlp.fc11.weight
        ffn_gate.weight = mlp.fc12.weight
        ffn_down.weight = mlp.fc2.weight
        layer_output_norm.* = norm2.*
    """),
    home="encoder.layers.{}.",
    condition=lambda _: False,
    looks_ahead=True,
)
