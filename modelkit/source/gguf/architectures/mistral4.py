"""Mistral 4: DeepSeek's latent attention, sharpened over long contexts, and experts routed by a softmax.

llama.cpp computes the sharpening of files that tell it, and its converter tells nothing: such files get the
published model's.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.latent import MIXTURE, SIZES
from modelkit.source.gguf.architectures.latent_heads import LATENT, read_yarn, write_yarn
from modelkit.source.gguf.architectures.moe import (
    ROUTER,
    SOFTMAX,
    experts,
    gating,
    leading_dense,
    shared_expert,
)
from modelkit.source.gguf.architectures.parts import MLP, NORMS, TOP
from modelkit.source.gguf.architectures.rope import rope_block
from modelkit.source.gguf.architectures.settings import Special

_SLOPE = 0.1
_TRAINED = "original_max_position_embeddings"


def _is_mistrals(block: Mapping[str, Any]) -> bool:
    ones = block.get("mscale") == block.get("mscale_all_dim") == 1
    return block["rope_type"] == "yarn" and _TRAINED in block and ones


def _read_rope(file: Reading) -> None:
    read_yarn(file)
    file.config["head_dim"] = file.config["qk_nope_head_dim"] + file.config["qk_rope_head_dim"]
    block = file.config["rope_parameters"]
    if not _is_mistrals(block):
        file.unsupported(
            "the rotation is not scaled as Mistral 4's is: by YaRN, from a length that is told, with a log "
            "multiplier of 0.1"
        )
    slope, trained = file.get("attention.temperature_scale"), file.get("attention.temperature_length", int)
    if trained is not None and trained != block[_TRAINED]:
        file.unsupported(
            f"`{file.full('attention.temperature_length')}` is {trained}, and the rotation is scaled from "
            f"{block[_TRAINED]} tokens"
        )
    if slope is None:
        slope = _SLOPE
        file.notes.append(
            f"how much queries grow past {block[_TRAINED]:,} tokens is not in the file: the published "
            f"model's {_SLOPE} is taken, where llama.cpp leaves it out"
        )
    block["llama_4_scaling_beta"] = slope


def _write_rope(out: Writing) -> None:
    block = rope_block(out.facts)
    write_yarn(out)
    if not _is_mistrals(block):
        out.refuse("mscale and mscale_all_dim of its YaRN are not 1, which llama.cpp takes for granted")
    out.put("attention.temperature_scale", float(block.get("llama_4_scaling_beta", 0.0)))
    out.put("attention.temperature_length", int(block[_TRAINED]))


MISTRAL4 = Architecture(
    "mistral4",
    (Kind("mistral4", "Mistral4ForCausalLM"),),
    (*SIZES, Special(_read_rope, _write_rope), *MIXTURE, leading_dense(), gating(SOFTMAX)),
    TOP,
    (*NORMS, *LATENT, *MLP, ROUTER, *experts(), *shared_expert("mlp.shared_experts")),
    exact="bits; what queries grow by is the published model's where a file does not say",
)
