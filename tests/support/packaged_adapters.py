"""A package of a small llama with adapters of PEFT, made from a Modelfile."""

from pathlib import Path
from typing import Any

import modelkit
from tests.support.checkpoints import random_tensor

TRUNK = "base_model.model.model"
Q = f"{TRUNK}.layers.1.self_attn.q_proj"
ROWS = f"{TRUNK}.embed_tokens.token_adapter.trainable_tokens_delta"
TENSORS = {
    f"{Q}.lora_A.weight": random_tensor("a", (3, 64)),
    f"{Q}.lora_B.weight": random_tensor("b", (64, 3)),
}


def create(folder: Path, text: str, name: str = "it", **options: Any) -> Any:
    (folder / "Modelfile").write_text(text, encoding="utf-8")
    return modelkit.create(folder / "Modelfile", name=name, home=folder, **options)
