"""Reference answers of draft heads and block drafts (run by hand, where torch is installed).

    python -m tests.support.make_draft_references

`deepseek_v3_mtp`, `glm4_moe_mtp`: the hidden states that heads stored behind the last layer make of
embeddings and hidden states. `muse_glimmer_assistant`: the hidden states of a drafted block after what the
target said of the tokens before. Inputs are random; weights come from names, as everywhere.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.cache_utils import DFlashCache, MtpCache
from transformers.modeling_layers import MtpModel

from tests.support.checkpoints import random_state
from tests.support.entries import SMALL
from tests.support.entries.deepseek import ENTRIES as DEEPSEEK
from tests.support.entries.glm4_moe import ENTRIES as GLM

FOLDER = Path(__file__).resolve().parents[1] / "data" / "special"
TOKENS, BLOCK = 24, 5
DRAFT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 12,
    "max_position_embeddings": 256,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "block_size": BLOCK,
    "mask_token_id": 159,
    "target_layer_ids": [0, 2],
}


def main() -> None:
    for name in ("deepseek_v3", "glm4_moe"):
        kind, fields = {**DEEPSEEK, **GLM}[name]
        _head(f"{name}_mtp", kind, fields)
    _block()


def _inputs(*widths: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(7)
    return [torch.from_numpy(rng.standard_normal((1, TOKENS, width)).astype(np.float32)) for width in widths]


def _write(name: str, record: dict[str, Any], arrays: dict[str, torch.Tensor]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    record = {**record, "transformers": transformers.__version__}
    (FOLDER / f"{name}.json").write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    np.savez_compressed(FOLDER / f"{name}.npz", **{key: x.numpy() for key, x in arrays.items()})


@torch.no_grad()
def _head(name: str, kind: str, fields: dict[str, Any]) -> None:
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **fields, "num_nextn_predict_layers": 2})
    target = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    heads = MtpModel(target, 2).float().eval()
    stored = {
        _stored_name(key, config.num_hidden_layers): key for key in heads.state_dict() if "layers." in key
    }
    shapes = {key: tuple(heads.state_dict()[ours].shape) for key, ours in stored.items()}
    state = random_state(shapes)
    heads.load_state_dict({ours: torch.from_numpy(state[key]) for key, ours in stored.items()}, strict=False)
    embedded, hidden = _inputs(64, 64)
    places, cache = torch.arange(1, TOKENS + 1)[None], MtpCache(config=heads.config)
    first = heads.forward_layer(0, hidden, places, cache, inputs_embeds=embedded)
    second = heads.forward_layer(1, first, places + 1, cache, inputs_embeds=embedded)
    _write(
        name,
        {"config": config.to_dict(), "tensors": shapes},
        {"embedded": embedded, "hidden": hidden, "first": first, "second": second},
    )


def _stored_name(key: str, layers: int) -> str:
    """layers.0.mtp_block.X -> model.layers.N.X, as files have it."""
    _, depth, rest = key.split(".", 2)
    rest = rest.removeprefix("mtp_block.").replace("post_norm.", "shared_head.norm.")
    return f"model.layers.{layers + int(depth)}.{rest}"


@torch.no_grad()
def _block() -> None:
    config = transformers.AutoConfig.for_model("muse_glimmer_assistant", **DRAFT)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").float().eval()
    shapes = {key: tuple(x.shape) for key, x in model.state_dict().items()}
    model.load_state_dict({key: torch.from_numpy(x) for key, x in random_state(shapes).items()})
    states, embedded = _inputs(128, 64)
    arrays = {"states": states, "embedded": embedded[:, :BLOCK]}
    for length in (7, TOKENS):
        cache = DFlashCache(config=config)
        cache.set_previous_accepted_tokens(length)
        out = model(
            noise_embeds=embedded[:, :BLOCK],
            context_hidden_states=states[:, :length],
            past_key_values=cache,
            use_cache=True,
        )
        arrays[f"after_{length}"] = out.last_hidden_state
    _write("muse_glimmer_assistant", {"config": config.to_dict(), "tensors": shapes}, arrays)


if __name__ == "__main__":
    main()
