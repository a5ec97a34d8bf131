"""What is stored beside a model's weights and left out of a package is said."""

from collections.abc import Callable

from modelkit.pack.planning.left_out import left_out_notes, to_decide
from modelkit.source.inventory import Inventory

Make = Callable[..., Inventory]


def test_adapters_of_phi4_for_images_and_sound_are_left_out(inventory_of: Make) -> None:
    at = "model.layers.0.self_attn.qkv_proj"
    tensors = {
        f"{at}.base_layer.weight": ("BF16", (96, 64)),
        f"{at}.lora_A.vision.weight": ("BF16", (4, 64)),
        f"{at}.lora_B.speech.weight": ("BF16", (96, 4)),
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (8,)),
    }
    inventory = inventory_of(tensors, {"model_type": "phi4mm", "architectures": ["Phi4MMForCausalLM"]})
    assert [tensor.name for tensor in to_decide(inventory, ())] == [f"{at}.base_layer.weight"]
    masks, pairs = left_out_notes(inventory, ())
    assert masks == "1 stored buffer is left out: positions say the same"
    assert pairs == "2 tensors are left out: what images and sound have besides"


def test_gates_of_ouro_are_left_out(inventory_of: Make) -> None:
    tensors = {
        "model.norm.weight": ("BF16", (64,)),
        "model.early_exit_gate.weight": ("BF16", (1, 64)),
        "model.early_exit_gate.bias": ("BF16", (1,)),
    }
    inventory = inventory_of(tensors, {"model_type": "ouro", "architectures": ["OuroForCausalLM"]})
    assert [tensor.name for tensor in to_decide(inventory, ())] == ["model.norm.weight"]
    (gates,) = left_out_notes(inventory, ())
    assert gates == "2 tensors are left out: gates of fewer passes, and all are made"
