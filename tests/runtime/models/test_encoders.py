"""Encoders for embeddings: what transformers computes, of texts read whole; the same bits in any company."""

import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cpu import native
from runtime.embedding import Reading
from runtime.errors import NotSupported, UnsupportedModel
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.models import describe
from runtime.nn.operations import ops
from runtime.step import Inputs, Step
from runtime.trunks.encoder import Encoder
from tests.support.checkpoints import legacy_config, random_state
from tests.support.half import TYPES, Half
from tests.support.parity import Reference, bar, full_logits

COUNTS = (48, 21, 1, 33, 48)
OWN = {"bf16": 0.15, "f16": 0.03}
"""As in test_half."""


@pytest.fixture(scope="module", params=Reference.encoders())
def reference(request: pytest.FixtureRequest) -> Reference:
    return Reference.called(request.param)


@pytest.fixture(scope="module")
def model(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return reference.load(tmp_path_factory.mktemp(reference.name))


def packable(_path: str, module: Any) -> bool:
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0


def together(model: LoadedModel, texts: list[np.ndarray]) -> list[np.ndarray]:
    """Hidden states of texts that are read side by side."""
    counts = tuple(map(len, texts))
    ids = np.zeros((len(texts), max(counts)), np.int32)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    step = Step((0,) * len(texts), counts, inputs=Inputs(mx.array(ids)))
    hidden = np.array(model.network(step, build_memory(model.described.layout, rows=len(texts))))
    return [hidden[place, :count] for place, count in enumerate(counts)]


def test_full(reference: Reference, model: LoadedModel) -> None:
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_legacy_spelling(reference: Reference, tmp_path: Path) -> None:
    model = reference.load(tmp_path, legacy_config(reference.record["config"]))
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_by_plain_operations(reference: Reference, model: LoadedModel) -> None:
    ids = reference.answers["ids"]
    with ops.using("plain"):
        first, *_, last = together(model, [ids[:count] for count in COUNTS])
    assert reference.error(first) < bar(reference)
    assert reference.error(last) < bar(reference)


@pytest.mark.parametrize("word", TYPES)
def test_in_16_bits(reference: Reference, word: str, tmp_path: Path) -> None:
    half = Half(reference.name, word)
    half.write(tmp_path)
    assert half.error(full_logits(half.read(tmp_path), half.ids)) < half.bar
    own = half.read(tmp_path, on=None)
    assert own.dtype == TYPES[word]
    assert np.median(half.distances(full_logits(own, half.ids))) < OWN[word]


@pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")
@pytest.mark.parametrize("bits", [None, 4])
def test_the_same_bits_in_any_company(reference: Reference, bits: int | None, tmp_path: Path) -> None:
    with ops.using("cpu"):
        model = reference.load(tmp_path)
        if bits is not None:
            nn.quantize(model.network, 32, bits, class_predicate=packable)
        ids = reference.answers["ids"]
        texts = [ids[:count] for count in COUNTS]
        for alone, text in zip(together(model, texts), texts, strict=True):
            assert np.array_equal(alone, together(model, [text])[0])


@pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")
@pytest.mark.parametrize("pool", ["mean", "first", "last", "max"])
def test_vectors_too(reference: Reference, model: LoadedModel, pool: str) -> None:
    with ops.using("cpu"):
        ids = reference.answers["ids"].tolist()
        texts = [ids[:count] for count in COUNTS]
        vectors = read(model, texts, pool)
        for vector, text in zip(vectors, texts, strict=True):
            assert np.array_equal(vector, read(model, [text], pool)[0])


def read(model: LoadedModel, texts: list[list[int]], pool: str) -> np.ndarray:
    """In pieces of five tokens, where anything is read in pieces."""
    reading = Reading(model, texts, pool)  # pyright: ignore[reportArgumentType]
    while not reading.over:
        reading.read(5)
    return reading.vectors()


def test_windows_go_on_past_their_blocks(tmp_path: Path) -> None:
    """Texts of several blocks of queries, side by side and alone, against all scores at once."""
    reference = Reference.called("modernbert")
    config = {**reference.record["config"], "max_position_embeddings": 512}
    model = reference.load(tmp_path, config)
    ids = np.random.default_rng(3).integers(3, 160, 400)
    texts = [ids, ids[:290], ids[:131]]
    with ops.using("plain"):
        plain = together(model, texts)
    for place, text in enumerate(texts):
        alone = together(model, [text])[0]
        assert np.abs(alone - plain[place]).max() < 1e-4 * alone.std()
        if native.kernels is not None:
            with ops.using("cpu"):
                assert np.array_equal(together(model, [text])[0], together(model, texts)[place])


PUBLISHED = {
    "bert": ("bert.", ("pooler.dense.weight", "cls.predictions.bias", "embeddings.position_ids")),
    "roberta": ("roberta.", ("pooler.dense.bias", "lm_head.layer_norm.weight", "embeddings.position_ids")),
    "mpnet": ("mpnet.", ("pooler.dense.weight", "lm_head.bias", "embeddings.position_ids")),
    "distilbert": ("distilbert.", ("vocab_transform.weight", "vocab_projector.bias")),
    "modernbert": ("model.", ("head.norm.weight", "decoder.bias")),
    "ernie": ("ernie.", ("pooler.dense.weight", "cls.predictions.bias")),
    "electra": ("electra.", ("discriminator_predictions.dense.weight",)),
    "albert": ("albert.", ("pooler.weight", "predictions.dense.weight", "sop_classifier.classifier.bias")),
}

OUTSIDE = ("cls", "lm_head", "vocab", "head", "decoder", "discriminator", "predictions", "sop")
"""What the names of heads begin with, which have no prefix."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_files_of_masked_language_models_have_it(name: str) -> None:
    """A prefix before what is read, older names of norms, and tensors beside it that nothing reads."""
    reference, (prefix, more) = Reference.called(name), PUBLISHED[name]
    state = random_state(reference.record["tensors"])
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    if name == "bert":
        state = {
            next((one.replace(new, gone) for new, gone in old.items() if one.endswith(new)), one): x
            for one, x in state.items()
        }
    tensors = {prefix + one: mx.array(x) for one, x in state.items()}
    for one in more:
        tensors[one if one.startswith(OUTSIDE) else prefix + one] = (
            mx.zeros((1, 66), dtype=mx.int64) if one.endswith("ids") else mx.zeros((4,))
        )
    model = load_model(reference.record["config"], tensors)
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


NOMIC = {
    "layers.": "encoder.layers.",
    "embeddings.LayerNorm.": "emb_ln.",
    ".self_attn.o_proj.": ".attn.out_proj.",
    ".mlp.up_proj.": ".mlp.fc11.",
    ".mlp.gate_proj.": ".mlp.fc12.",
    ".mlp.down_proj.": ".mlp.fc2.",
    ".post_attention_layernorm.": ".norm1.",
    ".post_mlp_layernorm.": ".norm2.",
}
NOMIC_FIELDS = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
}


def as_nomic() -> tuple[dict[str, Any], dict[str, mx.array]]:
    """The reference's config and tensors in the form that Nomic published."""
    record = Reference.called("nomic_bert").record
    config = {**record["config"], "rotary_emb_base": 700.0, "head_dim": 24}
    config |= {other: config.pop(name) for other, name in NOMIC_FIELDS.items()}
    del config["rope_parameters"]
    state = random_state(record["tensors"])
    parts = {name: x for name, x in state.items() if re.search(r"\.[qkv]_proj\.", name)}
    plain = {name: x for name, x in state.items() if name not in parts}
    for layer in range(config["n_layer"]):
        three = [parts[f"layers.{layer}.self_attn.{part}_proj.weight"] for part in "qkv"]
        plain[f"layers.{layer}.attn.Wqkv.weight"] = np.concatenate(three)
    for new, old in NOMIC.items():
        plain = {name.replace(new, old): x for name, x in plain.items()}
    return config, {name: mx.array(x) for name, x in plain.items()}


def test_as_nomic_published_it() -> None:
    reference, (config, tensors) = Reference.called("nomic_bert"), as_nomic()
    assert "encoder.layers.0.attn.Wqkv.weight" in tensors
    model = load_model(config, tensors)
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


@pytest.mark.parametrize(
    ("field", "value"),
    [("prenorm", True), ("rotary_emb_fraction", 0.5), ("qkv_proj_bias", True), ("n_embd", 128)],
)
def test_what_nomics_form_can_say_besides_is_refused(field: str, value: object) -> None:
    config = {**as_nomic()[0], "hidden_size": 64, field: value}
    with pytest.raises(UnsupportedModel, match=field):
        describe(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("activation_function", "swiglu"),
        ("hidden_act", "silu"),
        ("mlp_fc1_bias", False),
        ("moe_normalize_expert_weights", True),
        ("num_shared_experts", 1),
        ("qkv_proj_bias", False),
    ],
)
def test_what_nomics_mixtures_are_not_is_refused(field: str, value: object) -> None:
    config = {**Reference.called("nomic_bert_moe").record["config"], field: value}
    with pytest.raises(UnsupportedModel, match=field):
        describe(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("auto_map", None),
        ("auto_map", {"AutoModel": "modeling_bert.JinaBertModel"}),
        ("feed_forward_type", "original"),
        ("feed_forward_type", None),
        ("hidden_act", "relu"),
        ("is_decoder", True),
        ("position_embedding_type", "absolute"),
    ],
)
def test_what_jinas_second_is_not_is_refused(field: str, value: object) -> None:
    config = {**Reference.called("jina_bert_v2").record["config"], field: value}
    with pytest.raises(UnsupportedModel, match=field):
        describe(config)


def as_alibaba() -> tuple[dict[str, Any], dict[str, mx.array]]:
    """The reference's config and tensors in the form that Alibaba published."""
    record = Reference.called("gte").record
    rope = record["config"]["rope_parameters"]
    config = {**record["config"], "model_type": "new", "architectures": ["NewModel"], "pack_qkv": True}
    config |= {"rope_theta": rope["rope_theta"], "position_embedding_type": "rope"}
    del config["rope_parameters"]
    named = {
        "layers.": "encoder.layer.",
        "self_attn.": "attention.",
        "post_attention_layernorm.": "attn_ln.",
        "post_mlp_layernorm.": "mlp_ln.",
    }
    state = random_state(record["tensors"])
    for new, old in named.items():
        state = {name.replace(new, old): x for name, x in state.items()}
    for joined, parts in (
        ("attention.qkv_proj", [f"attention.{part}_proj" for part in "qkv"]),
        ("mlp.up_gate_proj", ["mlp.up_proj", "mlp.gate_proj"]),
    ):
        for layer in range(config["num_hidden_layers"]):
            for leaf in ("weight", "bias"):
                at = f"encoder.layer.{layer}."
                found = [state.pop(f"{at}{part}.{leaf}", None) for part in parts]
                if found[0] is not None:
                    state[f"{at}{joined}.{leaf}"] = np.concatenate(found)
    return config, {f"new.{name}": mx.array(x) for name, x in state.items()}


def test_as_gte_was_published() -> None:
    reference, (config, tensors) = Reference.called("gte"), as_alibaba()
    assert "new.encoder.layer.0.mlp.up_gate_proj.weight" in tensors
    assert "new.encoder.layer.0.attention.qkv_proj.bias" in tensors
    model = load_model(config, tensors)
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_gte_stretches_its_rotations() -> None:
    """By the published code's ntk: inv_freq = 1 / (base * factor) ** (i / dim) / factor ** (2 / dim)."""
    config = {**as_alibaba()[0], "rope_scaling": {"type": "ntk", "factor": 8.0}}
    wanted = (700.0 * 8) ** (np.arange(0, 16, 2) / 16) * 8 ** (2 / 16)
    assert describe(config).config.rope.wavelengths == pytest.approx(wanted.tolist())
    mixed = {**config["rope_scaling"], "mixed_b": 0.6}
    with pytest.raises(UnsupportedModel, match="mixed_b"):
        describe({**config, "rope_scaling": mixed})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("position_embedding_type", "absolute"),
        ("layer_norm_type", "rms_norm"),
        ("logn_attention_scale", True),
        ("num_attention_heads", 5),
    ],
)
def test_what_gtes_form_can_say_besides_is_refused(field: str, value: object) -> None:
    words = {"num_attention_heads": "hidden_size"}.get(field, field)
    with pytest.raises(UnsupportedModel, match=words):
        describe({**as_alibaba()[0], field: value})


def test_llama_both_ways_as_nvidia_publishes_it() -> None:
    reference = Reference.called("llama_both_ways")
    told = {key: value for key, value in reference.record["config"].items() if key != "is_causal"}
    config = told | {
        "architectures": ["LlamaBidirectionalModel"],
        "model_type": "llama_bidirec",
        "pooling": "avg",
    }
    state = random_state(reference.record["tensors"])
    model = load_model(config, {name: mx.array(x) for name, x in state.items()})
    assert model.described.looks_ahead
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)
    with pytest.raises(UnsupportedModel, match="pooling is 'last'"):
        describe({**config, "pooling": "last"})


def test_windows_that_look_both_ways_are_refused() -> None:
    config = Reference.called("qwen2_both_ways").record["config"]
    sliding = {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["sliding_attention"] * 3}
    with pytest.raises(UnsupportedModel, match="is_causal is false"):
        describe({**config, **sliding})


def test_as_modernbert_was_published() -> None:
    """Before transformers 5: two bases, and every how many layers the whole text is seen."""
    reference = Reference.called("modernbert")
    config = dict(reference.record["config"])
    assert config.pop("layer_types") == ["full_attention", *["sliding_attention"] * 2, "full_attention"]
    rope = config.pop("rope_parameters")
    config |= {
        "global_attn_every_n_layers": 3,
        "global_rope_theta": rope["full_attention"]["rope_theta"],
        "local_rope_theta": rope["sliding_attention"]["rope_theta"],
        "position_embedding_type": "absolute",
    }
    assert describe(config).config == describe(reference.record["config"]).config
    changed = describe({**config, "global_rope_theta": 5e4, "global_attn_every_n_layers": 2}).config
    assert changed.windows == (None, 6, None, 6)
    assert changed.ropes[0] != describe(config).config.ropes[0]


def test_gemma_without_the_flag_is_a_decoder(tmp_path: Path) -> None:
    """Of the same tensors: it has no head by itself, and writes text by the name of a class with one."""
    reference = Reference.called("embedding_gemma")
    config = {**reference.record["config"], "use_bidirectional_attention": False}
    model = reference.load(tmp_path, config)
    assert not model.described.writes
    assert not model.described.looks_ahead
    assert reference.error(full_logits(model, reference.answers["ids"])) > 0.5
    assert describe({**config, "architectures": ["Gemma3ForCausalLM"]}).writes
    both = {**reference.record["config"], "architectures": ["Gemma3ForCausalLM"]}
    assert not describe(both).writes
    for kind in ("gemma2", "gemma3"):
        with pytest.raises(UnsupportedModel, match="use_bidirectional_attention"):
            describe({**reference.record["config"], "model_type": kind})


def test_it_has_no_next_token(model: LoadedModel) -> None:
    assert not model.described.writes
    assert model.described.looks_ahead
    if isinstance(model.network, Encoder):  # decoders that look both ways are the family's class
        with pytest.raises(NotSupported, match="embeddings"):
            model.network.logits(mx.zeros((1, 1, 64)))


@pytest.mark.parametrize("name", sorted({*Reference.encoders()} - {"embedding_gemma"}))
def test_a_file_may_say_that_it_looks_both_ways(name: str) -> None:
    config = Reference.called(name).record["config"]
    assert describe({**config, "is_causal": False}).config == describe(config).config


def test_positions_that_there_are() -> None:
    names = ("bert", "roberta", "mpnet", "distilbert", "modernbert")
    lengths = {name: describe(Reference.called(name).record["config"]).context_length for name in names}
    assert lengths == {"bert": 66, "roberta": 64, "mpnet": 64, "distilbert": 64, "modernbert": 66}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("bert", "is_decoder", True),
        ("roberta", "add_cross_attention", True),
        ("bert", "position_embedding_type", "relative_key"),
        ("bert", "hidden_act", "mish"),
        ("bert", "num_attention_heads", 5),
        ("roberta", "pad_token_id", None),
        ("xlm_roberta", "pad_token_id", 400),
        ("distilbert", "activation", "mish"),
        ("mpnet", "relative_attention_num_buckets", 16),
        ("albert", "inner_group_num", 2),
        ("modernbert", "head_dim", 8),
        ("embedding_gemma", "is_causal", False),  # is wider by one to either side in transformers
        ("embedding_gemma", "attn_logit_softcapping", 50.0),
        ("modernbert", "layer_types", ["chunked_attention"] * 4),
        ("modernbert", "local_attention", None),
    ],
)
def test_what_is_not_computed_is_refused_by_its_name(name: str, field: str, value: object) -> None:
    config = {**Reference.called(name).record["config"], field: value}
    words = {"num_attention_heads": "hidden_size"}.get(field, field)
    with pytest.raises(UnsupportedModel, match=words):
        describe(config)
