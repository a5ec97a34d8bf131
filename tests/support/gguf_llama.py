"""A small Llama as a GGUF file, each matrix in a type of its own, and what its tensors' numbers are."""

from collections.abc import Mapping, Sequence
from typing import Any

import gguf
import numpy as np

from runtime.blocks.types import BLOCK_TYPES, BlockType
from tests.support.blocks import random_rows
from tests.support.gguf import Gguf, Tensor, Typed

HIDDEN, INNER, HEADS, KV_HEADS, LAYERS, VOCABULARY = 256, 512, 4, 2, 2, 320
I32_ARRAY, F32_ARRAY = 5, 6


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes in llama.cpp's words."""
    kv = HIDDEN // HEADS * KV_HEADS
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        block = {
            "attn_norm": (HIDDEN,),
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (kv, HIDDEN),
            "attn_v": (kv, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (INNER, HIDDEN),
            "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER),
        }
        found |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    return {**found, "output_norm.weight": (HIDDEN,), "output.weight": (VOCABULARY, HIDDEN)}


def vocabulary() -> dict[str, Any]:
    """One piece for each byte, as SentencePiece models have them, and enough others."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3, *[6] * 256]
    letters = [f"▁{chr(97 + number % 26)}{number}" for number in range(VOCABULARY - len(tokens))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*tokens, *letters],
        "tokenizer.ggml.scores": Typed(9, [-float(n) for n in range(VOCABULARY)], F32_ARRAY),
        "tokenizer.ggml.token_type": Typed(9, [*kinds, *[1] * len(letters)], I32_ARRAY),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def metadata() -> dict[str, Any]:
    sizes = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": HIDDEN // HEADS,
        "vocab_size": VOCABULARY,
    }
    named = {"general.architecture": "llama", "general.name": "Tiny", "general.license": "mit"}
    return {**named, **{f"llama.{key}": value for key, value in sizes.items()}, **vocabulary()}


def tensors(types: Sequence[str], seed: int = 0) -> list[Tensor]:
    """Matrices take the types in turn, vectors are floats."""
    rng = np.random.default_rng(seed)
    found: list[Tensor] = []
    for number, (name, shape) in enumerate(shapes().items()):
        if len(shape) == 1:
            data = (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32).tobytes()
            found.append(Tensor(name, "f32", shape, data))
            continue
        kind = BLOCK_TYPES[types[sum(len(t.shape) > 1 for t in found) % len(types)]]
        found.append(Tensor(name, kind.name, shape, content(kind, shape, seed + number)))
    return found


def content(kind: BlockType, shape: tuple[int, ...], seed: int) -> bytes:
    if kind.packed:
        return random_rows(kind, shape[0], shape[1], seed, size=0.002).tobytes()
    numbers = (np.random.default_rng(seed).standard_normal(shape) * 0.02).astype(np.float32)
    if kind.name == "bf16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return numbers.astype({"f32": np.float32, "f16": np.float16}[kind.name]).tobytes()


def numbers(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers as gguf-py reads them, in the order of a checkpoint's rows."""
    kind = BLOCK_TYPES[str(tensor.type)]
    raw = np.frombuffer(tensor.content, np.uint8)
    if kind.name in ("q1_0", "q2_0"):
        found = _unread(raw.reshape(-1, kind.nbytes), kind.name)
    else:
        found = gguf.quants.dequantize(raw, getattr(gguf.GGMLQuantizationType, kind.name.upper()))
    found = np.asarray(found, np.float32).reshape(tensor.shape)
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(str(tensor.name).split(".")[-2])
    if heads:
        found = found.reshape(heads, -1, 2, HIDDEN).swapaxes(1, 2).reshape(tensor.shape)
    return found


def _unread(blocks: np.ndarray, name: str) -> np.ndarray:
    """The two types that gguf-py does not read."""
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if name == "q1_0":
        return d * (2.0 * np.unpackbits(blocks[:, 2:], axis=1, bitorder="little") - 1)
    return d * ((blocks[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(len(blocks), -1) - 1.0)


def hf_name(name: str) -> str:
    whole = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    stem = name.removesuffix(".weight")
    if stem in whole:
        return f"{whole[stem]}.weight"
    _, layer, part = stem.split(".")
    parts = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_output": "self_attn.o_proj",
        **{f"attn_{p}": f"self_attn.{p}_proj" for p in "qkv"},
        **{f"ffn_{p}": f"mlp.{p}_proj" for p in ("gate", "up", "down")},
    }
    return f"model.layers.{layer}.{parts[part]}.weight"


def checkpoint(made: Sequence[Tensor]) -> dict[str, np.ndarray]:
    """The same model's tensors as a checkpoint has them."""
    return {hf_name(str(tensor.name)): numbers(tensor) for tensor in made}


def llama(types: Sequence[str], *, seed: int = 0, more: Mapping[str, Any] | None = None) -> bytes:
    return bytes(Gguf({**metadata(), **(more or {})}, tensors(types, seed)))
