"""What is stored beside a model's weights and left out of a package is said."""

from collections.abc import Callable

from modelkit.pack.planning.omissions import left_out_notes, to_decide
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


def test_experts_of_ernie_for_images_are_left_out(inventory_of: Make) -> None:
    at = "model.layers.1.mlp"
    kept = {f"{at}.gate.weight": ("F32", (64, 2)), f"{at}.experts.1.up_proj.weight": ("BF16", (32, 64))}
    left = {f"{at}.gate.weight_1": ("F32", (64, 2)), f"{at}.experts.2.up_proj.weight": ("BF16", (16, 64))}
    text = {"moe_num_experts": 2, "moe_intermediate_size": [32, 16], "num_hidden_layers": 2}
    inventory = inventory_of({**kept, **left}, {"model_type": "ernie4_5_vl_moe", "text_config": text})
    assert sorted(tensor.name for tensor in to_decide(inventory, ())) == sorted(kept)
    (note,) = left_out_notes(inventory, ())
    assert note == "2 tensors are left out: what images and sound have besides"
