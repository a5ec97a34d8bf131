"""The two networks: their Hugging Face configs, the project's own llama built from them, files, and sampling.

`Memory` is the simplest layer memory there can be: it keeps everything of a run and forgets with the object.
Training uses it for one pass, evaluation for one text.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from vocabulary import BEGIN_ID, END_ID, PAD_ID, SIZE

from runtime.cpu import BlasReport, bind_blas, native
from runtime.models import llama
from runtime.nn.operations import ops
from runtime.step import Inputs, Step
from runtime.trunks.decoder import CausalLM

CONTEXT_TOKENS = 1024


def config(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int) -> dict[str, Any]:
    """config.json of a llama with tied embeddings. Every width is a multiple of 64, as q4 and q8 want."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": SIZE,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": BEGIN_ID,
        "eos_token_id": END_ID,
        "pad_token_id": PAD_ID,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


SHALLOW = config(hidden=256, intermediate=448, layers=4, heads=4, kv_heads=2)
TARGET = config(hidden=256, intermediate=448, layers=8, heads=4, kv_heads=2)
DRAFT = config(hidden=128, intermediate=256, layers=2, heads=2, kv_heads=1)
GENERATION = {
    "bos_token_id": BEGIN_ID,
    "eos_token_id": END_ID,
    "pad_token_id": PAD_ID,
    "do_sample": True,
    "temperature": 0.7,
    "top_p": 0.9,
}


def settle() -> BlasReport:
    """Compute by what has gradients and takes any layer memory: modelkit's own kernels do neither."""
    if native.on_processor():
        ops.use("blas")
    return bind_blas()


def build(raw: dict[str, Any]) -> CausalLM:
    return llama.build(llama.parse(raw))


def grown(shallow: CausalLM) -> CausalLM:
    """TARGET, computing what SHALLOW computes: after each layer comes a copy of it that adds nothing yet."""
    deep, weights = build(TARGET), dict[str, mx.array]()
    for name, array in tree_flatten(shallow.parameters()):
        before, layered, after = name.partition(".layers.")
        if not layered:
            weights[name] = array
            continue
        number, tail = after.split(".", 1)
        adds = tail in ("self_attn.o_proj.weight", "mlp.down_proj.weight")
        weights[f"{before}.layers.{2 * int(number)}.{tail}"] = array
        weights[f"{before}.layers.{2 * int(number) + 1}.{tail}"] = mx.zeros_like(array) if adds else array
    deep.load_weights(list(weights.items()))
    return deep


class Memory:
    """Keys and values of one layer, all of them. [B, G, L, D]."""

    def __init__(self) -> None:
        self._seen: tuple[mx.array, mx.array] | None = None

    def append(self, step: Step, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array, str]:
        if self._seen is not None:
            keys = mx.concatenate([self._seen[0], keys], axis=2)
            values = mx.concatenate([self._seen[1], values], axis=2)
        self._seen = keys, values
        return keys, values, "causal"


def memories(network: CausalLM) -> list[Memory]:
    return [Memory() for _ in network.model.layers]


def hidden(network: CausalLM, tokens: mx.array) -> mx.array:
    """int32 [B, L] from position 0 -> [B, L, D]."""
    rows, width = tokens.shape
    return network(Step((0,) * rows, (width,) * rows, inputs=Inputs(tokens)), memories(network))


def greedy(network: CausalLM, prompt: list[int], limit: int) -> Iterator[int]:
    """The likeliest ids after `prompt`, the end id included."""
    seen, fresh, caches = 0, prompt, memories(network)
    for _ in range(limit):
        states = network(Step((seen,), (len(fresh),), inputs=Inputs(mx.array([fresh]))), caches)
        seen += len(fresh)
        fresh = [int(mx.argmax(network.logits(states[0, -1])).item())]
        yield fresh[0]
        if fresh[0] == END_ID:
            return


def save(network: CausalLM, raw: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: array.astype(mx.bfloat16) for name, array in tree_flatten(network.parameters())}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(raw, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION, indent=2) + "\n")


def load(folder: Path) -> CausalLM:
    """In float32, the type a CPU is fast at."""
    network = build(json.loads((folder / "config.json").read_text()))
    weights = mx.load(str(folder / "model.safetensors"))
    network.load_weights([(name, array.astype(mx.float32)) for name, array in weights.items()])
    return network
