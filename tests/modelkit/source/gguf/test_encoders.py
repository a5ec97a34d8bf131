"""Encoders as llama.cpp's converter writes them: the reference's vectors, tokens, how texts are pooled."""

import hashlib
import json
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest

import modelkit
from modelkit.errors import SourceError, UnsupportedSource
from modelkit.settings import settings_at
from modelkit.showing.facts import facts_of
from modelkit.store import Store
from runtime.loading.load import load_model
from tests.support.checkpoints import random_state
from tests.support.encoder_folders import CLS, MARKS, SEP, WORDS
from tests.support.gguf import Gguf, Tensor, Typed
from tests.support.gguf_llama import llama
from tests.support.gguf_references import GgufReference, describe, read
from tests.support.llama_cpp_check import ask, interpreter
from tests.support.parity import Reference, full_logits

INTS = 5
BERT = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output_norm": "attention.output.LayerNorm",
    "attn_output": "attention.output.dense",
    "layer_output_norm": "output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
}
NOMIC = {
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output_norm": "post_attention_layernorm",
    "attn_output": "self_attn.o_proj",
    "layer_output_norm": "post_mlp_layernorm",
    "ffn_up": "mlp.up_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_down": "mlp.down_proj",
}
NAMES = {"bert": ("bert", BERT, "encoder.layer."), "nomic_bert": ("nomic-bert", NOMIC, "layers.")}


def vocabulary(rows: int) -> dict[str, Any]:
    pieces = [piece[2:] if piece.startswith("##") else f"\u2581{piece}" for piece in WORDS]
    tokens = [*MARKS, *pieces, *(f"[unused{number}]" for number in range(rows - len(MARKS) - len(pieces)))]
    kinds = [3, 2, 3, 3, *[1] * len(pieces), *[1] * (rows - len(MARKS) - len(pieces))]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "jina-v2-en",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": Typed(9, kinds, INTS),
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.bos_token_id": CLS,
        "tokenizer.ggml.cls_token_id": CLS,
        "tokenizer.ggml.seperator_token_id": SEP,  # as the format spells it
    }


def state_of(name: str) -> dict[str, np.ndarray]:
    """Under transformers' names, but for one matrix of queries, keys and values."""
    state = random_state(Reference.called(name).record["tensors"])
    for layer in range(3):
        at = f"layers.{layer}.self_attn"
        parts = [state.pop(f"{at}.{part}_proj.weight", None) for part in "qkv"]
        if parts[0] is not None:
            state[f"{at}.qkv_proj.weight"] = np.concatenate(parts)
    return state


def write(path: Path, name: str, packed: str | None = None, **more: Any) -> Path:
    """packed: the type of matrices whose rows it fits."""
    architecture, names, home = NAMES[name]
    config = Reference.called(name).record["config"]
    tensors: list[Tensor] = []
    for own, array in state_of(name).items():
        stem, _, leaf = own.rpartition(".")
        layer = own.removeprefix(home).partition(".")[0] if own.startswith(home) else None
        part = stem if layer is None else stem.removeprefix(f"{home}{layer}.")
        theirs = next(one for one, ours in names.items() if ours == part)
        full = f"{theirs}.{leaf}" if layer is None else f"blk.{layer}.{theirs}.{leaf}"
        fits = packed is not None and array.ndim == 2 and array.shape[1] % 32 == 0 and "types" not in full
        kind = packed if packed is not None and fits else "f32"
        data = array.tobytes()
        if kind != "f32":
            data = gguf.quants.quantize(array, gguf.GGMLQuantizationType[kind.upper()]).tobytes()
        tensors.append(Tensor(full, kind, array.shape, data))
    sizes = {
        "block_count": 3,
        "context_length": 66,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.layer_norm_epsilon": float(config["layer_norm_eps"]),
        "attention.causal": False,
        "pooling_type": 1,
        **more,
    }
    if name == "nomic_bert":
        sizes |= {"rope.freq_base": 700.0, "attention.key_length": 24, "attention.value_length": 24}
    metadata = {
        "general.architecture": architecture,
        **{f"{architecture}.{key}": value for key, value in sizes.items() if value is not None},
        **vocabulary(config["vocab_size"]),
    }
    path.write_bytes(bytes(Gguf(metadata, tensors)))
    return path


def mean_of(name: str) -> np.ndarray:
    return Reference.called(name).answers["logits"].mean(0)


@pytest.mark.parametrize("packed", [None, "q8_0", "q4_0"])
@pytest.mark.parametrize("kind", NAMES)
def test_the_references_vectors(tmp_path: Path, kind: str, packed: str | None) -> None:
    reference = Reference.called(kind)
    path = write(tmp_path / "model.gguf", kind, packed)
    (tmp_path / "Modelfile").write_text("FROM ./model.gguf\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    ids = [int(one) for one in reference.answers["ids"]]
    for name in ("it", path):
        with modelkit.load(name, home=tmp_path) as model:
            found = model.embed([ids], normalize=False).vectors[0][reference.answers["columns"]]
            assert model.pooling == "mean of all tokens, from 1_Pooling/config.json"
            assert not model.writes
            assert model.encode("Once cats") == [CLS, 4, 11, 12, SEP]
            assert model.context_length == 66
        off = np.abs(found - mean_of(kind)).mean() / float(reference.answers["std"])
        assert off < {None: 1e-5, "q8_0": 0.02, "q4_0": 0.4}[packed]
    store = Store(settings_at(tmp_path).home)
    assert facts_of(store, store.resolve("it"))["capabilities"] == ["embedding"]


def test_jinas_code_model_is_refused() -> None:
    """Whose gate's rows stand behind, where llama.cpp looks for what is gated."""
    reference = GgufReference("jina_bert_v2")
    shapes = {**reference.shapes, "blk.0.attn_q_norm.weight": (64,)}
    with pytest.raises(UnsupportedSource, match="queries and keys have norms"):
        read(reference.metadata, shapes, reference.exported, "model")
    config = {**reference.config, "auto_map": {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--a.B"}}
    with pytest.raises(UnsupportedSource, match="the wrong half"):
        describe(config, reference.package, "model")


MIXTURES = {
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "emb_ln",
    "attn_qkv": "attn.Wqkv",
    "attn_output": "attn.out_proj",
    "attn_output_norm": "norm1",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
    "ffn_gate_inp": "mlp.router.layer",
    "ffn_up_exps": "mlp.experts.mlp.w1",
    "ffn_down_exps": "mlp.experts.mlp.w2",
    "layer_output_norm": "norm2",
}


def mixtures(state: dict[str, np.ndarray]) -> list[Tensor]:
    """Nomic's as the converter writes them: stacks output first, without the bias of a mixture."""
    found: list[Tensor] = []
    for own, array in state.items():
        if own.endswith("experts.bias"):
            continue
        stem, leaf = (own, "weight") if own.endswith((".w1", ".w2")) else own.rsplit(".", 1)
        _, inside, rest = stem.partition("encoder.layers.")
        layer, _, part = rest.partition(".")
        theirs = next(one for one, ours in MIXTURES.items() if ours == (part if inside else stem))
        if part.endswith((".w1", ".w2")):
            array = array.reshape(8, -1, 64)
            array = np.ascontiguousarray(array.swapaxes(1, 2)) if part.endswith("w2") else array
        full = f"blk.{layer}.{theirs}.{leaf}" if inside else f"{theirs}.{leaf}"
        found.append(Tensor(full, "f32", array.shape, array.tobytes()))
    return found


def test_nomics_mixtures(tmp_path: Path) -> None:
    """A file has no place for the bias of a mixture's answers: it counts as zeros."""
    reference = Reference.called("nomic_bert_moe")
    state = random_state(reference.record["tensors"])
    state |= {name: 0 * array for name, array in state.items() if name.endswith("experts.bias")}
    sizes = {
        "block_count": 3,
        "context_length": 64,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.causal": False,
        "pooling_type": 1,
        "rope.freq_base": 700.0,
        "moe_every_n_layers": 2,
        "expert_count": 8,
        "expert_used_count": 2,
    }
    words = {**vocabulary(160), "tokenizer.ggml.token_type_count": 1}
    metadata = {
        "general.architecture": "nomic-bert-moe",
        **{f"nomic-bert-moe.{key}": value for key, value in sizes.items()},
        **words,
    }
    (tmp_path / "model.gguf").write_bytes(bytes(Gguf(metadata, mixtures(state))))
    (tmp_path / "Modelfile").write_text("FROM ./model.gguf\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    tensors = {name: mx.array(array) for name, array in state.items()}
    ids = reference.answers["ids"]
    wanted = full_logits(load_model(reference.record["config"], tensors), ids).mean(0)
    with modelkit.load("it", home=tmp_path) as model:
        found = model.embed([ids.tolist()], normalize=False).vectors[0]
        ours = model.embed(["Once cats"], normalize=False).vectors[0]
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()
    if interpreter() is not None:  # which looks GELU up in a table of half floats
        (theirs,) = ask(tmp_path / "model.gguf", texts=["Once cats"])["vectors"]
        assert np.abs(ours - np.array(theirs)).max() < 1e-2 * ours.std()


@pytest.mark.parametrize(
    ("told", "pool"), [(2, "first token"), (3, "last token"), (None, "mean of all tokens")]
)
def test_how_the_file_says_to_pool(tmp_path: Path, told: int | None, pool: str) -> None:
    path = write(tmp_path / "model.gguf", "bert", pooling_type=told)
    with modelkit.load(path) as model:
        assert model.pooling.startswith(pool)


def test_one_that_ollama_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes with it about answers is noted, and refuses nothing."""
    blobs = tmp_path / "ollama" / "blobs"
    blobs.mkdir(parents=True)
    model = write(tmp_path / "model.gguf", "bert").read_bytes()
    small = {"system": b"Be terse.", "params": b'{"num_ctx": 32, "temperature": 0.5}'}
    layers: list[dict[str, Any]] = []
    for kind, data in {"config": b"{}", "model": model, **small}.items():
        digest = hashlib.sha256(data).hexdigest()
        (blobs / f"sha256-{digest}").write_bytes(data)
        media = f"application/vnd.ollama.image.{kind}"
        layers.append({"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)})
    manifest = tmp_path / "ollama" / "manifests" / "registry.ollama.ai" / "library" / "words" / "latest"
    manifest.parent.mkdir(parents=True)
    media = "application/vnd.docker.distribution.manifest.v2+json"
    manifest.write_text(
        json.dumps({"schemaVersion": 2, "mediaType": media, "config": layers[0], "layers": layers[1:]})
    )
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    (tmp_path / "Modelfile").write_text("FROM ollama:words\n", encoding="utf-8")
    created = modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    said = [note.partition(" has no effect")[0] for note in created.notes if "has no effect" in note]
    assert said == ["PARAMETER temperature", "SYSTEM"]
    with modelkit.load("it", home=tmp_path) as model:
        assert model.context_length == 32
        assert model.embed("rain").tokens == (3,)


def test_a_file_that_ranks_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", "bert", pooling_type=4)
    with pytest.raises(UnsupportedSource, match="pooling_type"):
        modelkit.load(path)


def test_a_decoders_file_that_says_how_to_pool(tmp_path: Path) -> None:
    """As those of Qwen3-Embedding do."""
    (tmp_path / "model.gguf").write_bytes(llama(["f32"], more={"llama.pooling_type": 3}))
    with modelkit.load(tmp_path / "model.gguf") as model:
        assert model.pooling == "last token, from 1_Pooling/config.json"
        assert model.writes


@pytest.mark.parametrize("change", [{"attention.causal": True}, {"attention.causal": None}])
def test_a_bert_that_looks_back_only_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="tokens see"):
        modelkit.load(write(tmp_path / "model.gguf", "bert", **change))
