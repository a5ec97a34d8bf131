"""Reference answers of models that take more than tokens (run by hand, where torch is installed).

    python -m tests.support.make_special_references

`gemma4_assistant`: three drafted tokens from a target's memory, below and beyond its window, with both kinds
of head. `mllama`: the logits of a text whose last part sees an image's features. Weights come from names, as
everywhere.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.gemma4 import configuration_gemma4

from tests.support.checkpoints import random_state

FOLDER = Path(__file__).resolve().parents[1] / "data" / "special"
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TARGET: dict[str, Any] = {
    **IDS,
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "max_position_embeddings": 256,
    "sliding_window": 12,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 160,
}
DRAFT: dict[str, Any] = {
    **TARGET,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_kv_shared_layers": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "vocab_size_per_layer_input": 0,
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    _assistant()
    _mllama()


def _filled(model: Any) -> dict[str, tuple[int, ...]]:
    """Give the model the weights that its tensors' names say; return their shapes."""
    shapes = {name: tuple(x.shape) for name, x in model.state_dict().items() if name != "lm_head.weight"}
    state = random_state(shapes)
    if "masked_embedding.token_ordering" in state:
        state["masked_embedding.token_ordering"] = np.random.default_rng(3).permutation(160)
    model.load_state_dict({name: torch.from_numpy(x) for name, x in state.items()}, strict=False)
    model.tie_weights()
    return shapes


def _ready(cls: Any, config: Any) -> Any:
    return cls._from_config(config, attn_implementation="eager").float().eval()


def _write(name: str, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    record = {**record, "transformers": transformers.__version__}
    (FOLDER / f"{name}.json").write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


def _assistant() -> None:
    ids = np.random.default_rng(7).integers(3, 160, 41)
    record: dict[str, Any] = {}
    arrays = {"ids": ids.astype(np.int32)}
    for name, ordered in (("plain", False), ("clustered", True)):
        target, draft = _assistant_pair(ordered=ordered)
        record["target"] = {"config": target.config.to_dict(), "tensors": _filled(target)}
        record[name] = {"config": draft.config.to_dict(), "tensors": _filled(draft)}
        for length in (9, 40):
            arrays[f"{name}_{length}"] = _drafted(target, draft, torch.from_numpy(ids)[None], length)
    _write("gemma4_assistant", record, arrays)


def _assistant_pair(*, ordered: bool) -> tuple[Any, Any]:
    """A target and its assistant, with their weights. ordered: with the kind of head that sorts tokens."""
    text = configuration_gemma4.Gemma4TextConfig
    if not hasattr(text, "told_modes"):
        modes = text.told_modes = text.kv_sharing_modes
        # 5.23 refuses a model whose layers all share; 5.22 did not.
        text.kv_sharing_modes = property(
            lambda config: (
                ["reuse"] * config.num_hidden_layers
                if config.num_kv_shared_layers == config.num_hidden_layers
                else modes.fget(config)
            )
        )
    target = _ready(transformers.Gemma4ForCausalLM, transformers.Gemma4TextConfig(**TARGET))
    config = transformers.Gemma4AssistantConfig(
        text_config=transformers.Gemma4TextConfig(**DRAFT),
        backbone_hidden_size=64,
        use_ordered_embeddings=ordered,
        num_centroids=16,
        centroid_intermediate_top_k=4,
    )
    draft = _ready(transformers.Gemma4AssistantForCausalLM, config)
    _filled(target)
    _filled(draft)
    return target, draft


@torch.no_grad()
def _drafted(target: Any, draft: Any, ids: torch.Tensor, length: int) -> np.ndarray:
    """Logits [3, V]: the target has read `length` tokens, the one after them is the last."""
    more = {"use_cache": True, "output_hidden_states": True}
    cache = target(ids[:, : length - 1], **more).past_key_values
    step = ids[:, length - 1 : length]
    read = target(step, past_key_values=cache, return_shared_kv_states=True, **more)
    states = dict(read.shared_kv_states.items())
    hidden, last, rows = read.hidden_states[-1][:, -1:], ids[:, length : length + 1], []
    for _ in range(3):
        inputs = torch.cat([target.get_input_embeddings()(last), hidden], -1)
        place = torch.tensor([[length]])
        out = draft(inputs_embeds=inputs, position_ids=place, shared_kv_states=states, use_cache=False)
        last, hidden = out.logits.argmax(-1), out.last_hidden_state
        rows.append(out.logits[0, 0].numpy())
    return np.stack(rows)


@torch.no_grad()
def _mllama() -> None:
    config = transformers.MllamaConfig.sub_configs["text_config"](
        **IDS,
        vocab_size=160,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        cross_attention_layers=[1, 3],
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    )
    model = _ready(transformers.MllamaForCausalLM, config)
    shapes = _filled(model) | {"lm_head.weight": (160, 64)}
    head = random_state({"lm_head.weight": (160, 64)})["lm_head.weight"]
    model.lm_head.weight.data = torch.from_numpy(head)
    rng = np.random.default_rng(7)
    ids, image = torch.from_numpy(rng.integers(3, 160, 24))[None], rng.standard_normal((1, 7, 64))
    features = torch.from_numpy(image.astype(np.float32))
    before = model(ids[:, :9], use_cache=True)
    after = model(
        ids[:, 9:],
        past_key_values=before.past_key_values,
        cross_attention_states=features,
        position_ids=torch.arange(9, 24)[None],
    )
    _write(
        "mllama",
        {"config": {**model.config.to_dict(), "architectures": ["MllamaForCausalLM"]}, "tensors": shapes},
        {
            "ids": ids[0].numpy().astype(np.int32),
            "features": image.astype(np.float32),
            "logits": torch.cat([before.logits, after.logits], 1)[0].numpy(),
            "text_logits": model(ids).logits[0].numpy(),
        },
    )


if __name__ == "__main__":
    main()
