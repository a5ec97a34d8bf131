"""Reference answers of draft heads stored in their target's file (run by hand, where torch is installed).

    python -m tests.support.make_head_references

For each pair of a target's hidden state and the token after it, the head's logits, by transformers' MtpModel.
Weights come from names, as everywhere, and the names are those of published files.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.modeling_layers import MtpModel

from tests.support.checkpoints import random_state
from tests.support.make_references import _reference_model, entries

FOLDER = Path(__file__).resolve().parents[1] / "data" / "heads"
TOKENS, COLUMNS = 48, 48
LAYERS = {
    "enorm.": "model.layers.{n}.enorm.",
    "hnorm.": "model.layers.{n}.hnorm.",
    "eh_proj.": "model.layers.{n}.eh_proj.",
    "post_norm.": "model.layers.{n}.shared_head.norm.",
    "mtp_block.": "model.layers.{n}.",
}
NAMED = {
    "enorm.": "mtp.pre_fc_norm_embedding.",
    "hnorm.": "mtp.pre_fc_norm_hidden.",
    "eh_proj.": "mtp.fc.",
    "post_norm.": "mtp.norm.",
    "mtp_block.": "mtp.layers.0.",
}
# Of a head whose projection reads the hidden state before the embedding; to transformers its target is Qwen2.
MIMO = {
    "enorm.": "model.mtp_layers.0.token_layernorm.",
    "hnorm.": "model.mtp_layers.0.hidden_layernorm.",
    "eh_proj.": "model.mtp_layers.0.input_proj.",
    "post_norm.": "model.mtp_layers.0.final_layernorm.",
    "mtp_block.": "model.mtp_layers.0.",
}
HEADS = {
    "deepseek_v3": LAYERS,
    "glm4_moe": LAYERS,
    "glm4_moe_lite": LAYERS,
    "qwen3_5": NAMED,
    "qwen3_5_moe": NAMED,
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    table = entries()
    for name, naming in HEADS.items():
        _write(name, _reference_model(*table[name]), naming)
    kind, fields = table["mimo"]
    target = _reference_model("qwen2", {**fields, "architectures": None})
    _write("mimo", target, MIMO, {**fields, "model_type": kind})


def filled_head(target: Any, naming: dict[str, str]) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """transformers' head of this target with the weights that its published names say, and their shapes."""
    target.config.num_mtp_layers = 1
    target.config.mtp_layer_types, target.config.mtp_mlp_layer_types = ["full_attention"], ["sparse"]
    head = MtpModel(target, 1).float().eval()
    shapes = {key: tuple(x.shape) for key, x in head.state_dict().items() if key.startswith("layers.0.")}
    stored = {_stored(key, naming, target.config.num_hidden_layers): key for key in shapes}
    state = random_state({published: shapes[key] for published, key in stored.items()})
    if naming is MIMO:
        name = "model.mtp_layers.0.input_proj.weight"
        state[name] = np.concatenate(np.split(state[name], 2, axis=-1)[::-1], axis=-1)
    surplus = head.load_state_dict(
        {stored[published]: torch.from_numpy(array) for published, array in state.items()}, strict=False
    ).unexpected_keys
    assert not surplus, surplus
    return head, {published: shapes[key] for published, key in stored.items()}


@torch.no_grad()
def _write(name: str, target: Any, naming: dict[str, str], own: dict[str, Any] | None = None) -> None:
    """own: the config of a file, where it is not transformers'."""
    config = {key: value for key, value in target.config.to_dict().items() if key != "transformers_version"}
    config = own or {**config, "architectures": [type(target).__name__]}
    config |= {
        "num_nextn_predict_layers": 1,
        "mtp_num_hidden_layers": 1,
    }
    head, stored = filled_head(target, naming)
    rng = np.random.default_rng(7)
    ids = rng.integers(3, target.config.vocab_size, TOKENS)
    columns = np.sort(rng.choice(target.config.vocab_size, COLUMNS, replace=False))
    tokens = torch.from_numpy(ids)[None]
    hidden = target.get_decoder()(tokens).last_hidden_state
    places = torch.arange(1, TOKENS)[None]
    out = head.forward_layer(0, hidden[:, :-1], places, None, input_ids=tokens[:, 1:])
    logits = target.lm_head(out)[0].numpy()
    record = {
        "config": config,
        "tensors": {**target.saved_shapes, **stored},
        "transformers": transformers.__version__,
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    np.savez_compressed(
        FOLDER / f"{name}.npz",
        ids=ids.astype(np.int32),
        columns=columns.astype(np.int32),
        logits=logits[:, columns],
        std=np.float32(logits.std()),
    )
    print(f"{name}: {len(stored)} tensors of the head")


def _stored(key: str, naming: dict[str, str], layers: int) -> str:
    inside = key.removeprefix("layers.0.")
    start = next(start for start in naming if inside.startswith(start))
    return naming[start].format(n=layers) + inside.removeprefix(start)


if __name__ == "__main__":
    main()
