"""Quantized checkpoints of families with experts load by their published names, and compute what their
dequantized weights do.
"""

import re
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, bar, cut_logits, full_logits

Tensors = dict[str, mx.array]

FAMILIES = [
    "bailing_moe_v2",
    "cohere2_moe",
    "deepseek",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm4_moe",
    "glm4_moe_lite",
    "laguna",
    "mimo_v2_flash",
    "mixtral",
    "olmoe",
    "phimoe",
    "qwen2_moe",
    "qwen3_moe",
]
GROUP, BITS = 32, 8
BAR = 2e-3  # of the logits' spread: kernels round activations beside packed experts to 16 bits
CONFIG = {"quantization": {"group_size": GROUP, "bits": BITS, "mode": "affine"}}
WHOLE = re.compile(r"norm|bias|embed|\.gate\.|router")


def plain(reference: Reference) -> Tensors:
    shapes = {name: tuple(shape) for name, shape in reference.record["tensors"].items()}
    return {name: mx.array(value) for name, value in random_state(shapes).items()}


def one_by_one(tensors: Tensors) -> Tensors:
    """Fused stacks as published files have them: a matrix per expert and projection."""
    apart: Tensors = {}
    for name, array in tensors.items():
        if name.endswith(".experts.gate_up_proj"):
            parts = dict(zip(("gate_proj", "up_proj"), mx.split(array, 2, axis=1), strict=True))
        elif name.endswith(".experts.down_proj"):
            parts = {"down_proj": array}
        else:
            apart[name] = array
            continue
        stem = name.rpartition(".")[0]
        for part, stack in parts.items():
            apart |= {f"{stem}.{i}.{part}.weight": stack[i] for i in range(len(stack))}
    return apart


def packed(tensors: Tensors) -> tuple[Tensors, Tensors]:
    """Triplets for the matrices that are packed, and the same tensors as they come out of that."""
    codes, back = dict(tensors), dict(tensors)
    for name, array in tensors.items():
        if array.ndim < 2 or array.shape[-1] % GROUP or not name.endswith(".weight") or WHOLE.search(name):
            continue
        stem = name.removesuffix("weight")
        w, s, b = mx.quantize(array, GROUP, BITS)
        codes |= {name: w, f"{stem}scales": s, f"{stem}biases": b}
        back[name] = mx.dequantize(w, s, b, GROUP, BITS)
    return codes, back


def load(reference: Reference, tensors: Tensors, path: Path, **config: object) -> LoadedModel:
    mx.save_safetensors(str(path), tensors)
    return load_model({**reference.record["config"], **config}, [path])


@pytest.mark.parametrize("name", FAMILIES)
def test_packed_experts_one_by_one(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    codes, back = packed(one_by_one(plain(reference)))
    ids = reference.answers["ids"]
    got = load(reference, codes, tmp_path / "codes.safetensors", **CONFIG)
    wanted = full_logits(load(reference, back, tmp_path / "back.safetensors"), ids)
    assert np.abs(full_logits(got, ids) - wanted).max() < BAR * reference.answers["std"]
    assert np.abs(cut_logits(got, ids, [29, 1]) - wanted).max() < BAR * reference.answers["std"]


@pytest.mark.parametrize("name", ["bailing_moe", "bailing_moe_v2"])
def test_ling_as_mlx_lm_packs_it(name: str, tmp_path: Path) -> None:
    """Routers are packed, too; and a head whose columns it has scaled before."""
    reference = Reference(name)
    tensors = plain(reference)
    if reference.record["config"].get("norm_head"):
        head = tensors["lm_head.weight"]
        tensors["lm_head.weight"] = head / mx.sqrt((head * head).sum(axis=0, keepdims=True))
    codes, back = packed(tensors)
    for module in [name.removesuffix("weight") for name in tensors if name.endswith(".mlp.gate.weight")]:
        w, s, b = mx.quantize(codes.pop(f"{module}weight"), GROUP, BITS)
        codes |= {f"{module}gate_proj.{part}": x for part, x in (("weight", w), ("scales", s), ("biases", b))}
        back[f"{module}weight"] = mx.dequantize(w, s, b, GROUP, BITS)
    ids = reference.answers["ids"]
    got = load(reference, codes, tmp_path / "codes.safetensors", **CONFIG)
    wanted = full_logits(load(reference, back, tmp_path / "back.safetensors", norm_head=False), ids)
    assert np.abs(full_logits(got, ids) - wanted).max() < BAR * wanted.std()


def released(stacks: Tensors) -> Tensors:
    """MXFP4 stacks under MLX's names as GPT-OSS was released: gate and up in turn, codes as bytes."""
    out: Tensors = {}
    for name, array in stacks.items():
        stem, _, leaf = name.rpartition(".")
        ending = {"weight": "_blocks", "scales": "_scales", "bias": "_bias"}[leaf]
        if leaf == "weight":
            array = array.view(mx.uint8).reshape(*array.shape[:2], -1, 16)
        if stem.endswith("down_proj"):
            out[f"{stem}{ending}"] = array
        elif stem.endswith("gate_proj"):
            up = stacks[name.replace("gate_proj", "up_proj")]
            up = up.view(mx.uint8).reshape(array.shape) if leaf == "weight" else up
            both = mx.stack([array, up], axis=2).flatten(1, 2)
            out[f"{stem.replace('gate_proj', 'gate_up_proj')}{ending}"] = both
    return out


def test_gpt_oss_as_released_is_gpt_oss_as_mlx_names_it(tmp_path: Path) -> None:
    reference = Reference("gpt_oss")
    dense: Tensors = {}
    stacks: Tensors = {}
    for name, array in plain(reference).items():
        stem = name.rpartition(".experts.")[0] + ".experts"
        if name.endswith("gate_up_proj"):
            parts = {"gate_proj": array[..., ::2], "up_proj": array[..., 1::2]}
        elif name.endswith(".experts.down_proj"):
            parts = {"down_proj": array}
        elif name.endswith("gate_up_proj_bias"):
            stacks |= {f"{stem}.gate_proj.bias": array[:, ::2], f"{stem}.up_proj.bias": array[:, 1::2]}
            continue
        elif name.endswith("down_proj_bias"):
            stacks[f"{stem}.down_proj.bias"] = array
            continue
        else:
            dense[name] = array
            continue
        for part, stack in parts.items():
            both = mx.quantize(stack.swapaxes(1, 2), 32, 4, mode="mxfp4")
            stacks |= {f"{stem}.{part}.weight": both[0], f"{stem}.{part}.scales": both[1]}
    ids = reference.answers["ids"]
    mode = {"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}
    ours = load(reference, dense | stacks, tmp_path / "mlx.safetensors", **mode)
    theirs = load(
        reference,
        dense | released(stacks),
        tmp_path / "released.safetensors",
        quantization_config={"quant_method": "mxfp4"},
    )
    assert np.array_equal(full_logits(ours, ids), full_logits(theirs, ids))
    assert np.isfinite(full_logits(ours, ids)).all()


PUBLISHED = [
    (
        "mixtral",
        (
            (".mlp.", ".block_sparse_moe."),
            (".gate_proj.", ".w1."),
            (".up_proj.", ".w3."),
            (".down_proj.", ".w2."),
        ),
    ),
    ("phimoe", ((".mlp.router.", ".block_sparse_moe.gate."), (".gate_proj.", ".w1."))),
    ("laguna", ((".shared_experts.", ".shared_expert."), (".gate.e_score", ".experts.e_score"))),
    ("mimo_v2_flash", ((".sinks", ".attention_sink_bias"),)),
]


@pytest.mark.parametrize(("name", "renames"), PUBLISHED, ids=[name for name, _ in PUBLISHED])
def test_names_of_published_files(name: str, renames: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    reference = Reference(name)
    tensors: Tensors = {}
    for key, array in one_by_one(plain(reference)).items():
        for ours, theirs in renames:
            key = key.replace(ours, theirs)
        tensors[key] = array
    model = load(reference, tensors, tmp_path / "model.safetensors")
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_granite_fuses_its_experts_under_names_of_its_own(tmp_path: Path) -> None:
    reference = Reference("granitemoeshared")
    renames = {
        ".experts.gate_up_proj": ".input_linear.weight",
        ".experts.down_proj": ".output_linear.weight",
        ".router.weight": ".router.layer.weight",
    }
    tensors: Tensors = {}
    for key, array in plain(reference).items():
        for ours, theirs in renames.items():
            key = key.replace(ours, theirs)
        tensors[key] = array
    model = load(reference, tensors, tmp_path / "model.safetensors")
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_qwen3_vl_moe_publishes_its_experts_input_first(tmp_path: Path) -> None:
    reference = Reference("qwen3_moe")
    tensors = {
        name.replace("model.", "model.language_model.", 1): array.swapaxes(1, 2) if array.ndim == 3 else array
        for name, array in plain(reference).items()
    }
    config = reference.record["config"]
    wrapper = {
        "architectures": ["Qwen3VLMoeForConditionalGeneration"],
        "model_type": "qwen3_vl_moe",
        "text_config": {**config, "model_type": "qwen3_vl_moe_text"},
    }
    mx.save_safetensors(str(tmp_path / "model.safetensors"), tensors)
    model = load_model(wrapper, [tmp_path / "model.safetensors"])
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)
