"""Compute tests/data/bitnet.npz: what transformers' BitNet answers that rounds what it reads and its weights.

    TORCHDYNAMO_DISABLE=1 python -m tests.support.make_bitnet_references

Run by hand, where torch is installed. Prompts are short and many: a sum in another order may cross a middle
between two steps of 8 bits, and everything behind it moves then.
"""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, BitNetQuantConfig
from transformers.integrations.bitnet import replace_with_bitnet_linear

from tests.support.checkpoints import random_state
from tests.support.configured import configured
from tests.support.parity import Reference

OUTCOME = Path(__file__).resolve().parents[1] / "data" / "bitnet.npz"
PROMPTS, LENGTH = 48, 2


def main() -> None:
    record = Reference("bitnet").record
    config = configured("bitnet", {}, {k: v for k, v in record["config"].items() if k != "model_type"})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    asked = BitNetQuantConfig(linear_class="autobitlinear", quantization_mode="online")
    replace_with_bitnet_linear(model, ["lm_head"], asked)
    model.to_empty(device="cpu")
    shapes = {name: tuple(shape) for name, shape in record["tensors"].items()}
    state = {name: torch.from_numpy(value) for name, value in random_state(shapes).items()}
    model.load_state_dict(state)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    ids = np.random.default_rng(7).integers(3, config.vocab_size, (PROMPTS, LENGTH))
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)).logits.numpy()
    np.savez_compressed(OUTCOME, ids=ids.astype(np.int32), logits=logits[:, :, ::4], std=logits.std())


if __name__ == "__main__":
    main()
