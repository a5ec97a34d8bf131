"""BitNet's rounding: of weights, in every form that files have them in, and of what projections read."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import save_file

from runtime.errors import UnsupportedModel, WeightMismatch
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.models import describe
from runtime.nn.rounding import rounded
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, full_logits

FORMS = {
    "trained": {"linear_class": "autobitlinear", "quantization_mode": "online"},
    "times": {"linear_class": "autobitlinear", "quantization_mode": "offline"},
    "divided": {},
}
ANSWERS = Path(__file__).resolve().parents[2] / "data" / "bitnet.npz"
State = dict[str, np.ndarray]


def config_of(form: str, **more: Any) -> dict[str, Any]:
    block = {"quant_method": "bitnet", "modules_to_not_convert": None, **FORMS[form], **more}
    return {**Reference("bitnet").record["config"], "quantization_config": block}


def trained() -> State:
    shapes = Reference("bitnet").record["tensors"]
    return random_state({name: tuple(shape) for name, shape in shapes.items()})


def ternary(weight: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """-1, 0, 1 and the number that they are times."""
    scale = np.float32(1) / max(np.abs(weight).mean(dtype=np.float32), np.float32(1e-5))
    return np.clip(np.round(weight * scale), -1, 1), np.float32(1) / scale


def packed(state: State, *, divided: bool) -> State:
    """As transformers packs them: the lowest two bits are the first quarter's rows."""
    out: State = {}
    for name, value in state.items():
        if "_proj" not in name:
            out[name] = value
            continue
        codes, number = ternary(value)
        quarters = np.split((codes + 1).astype(np.uint8), 4)
        out[name] = sum(
            (one << (2 * place) for place, one in enumerate(quarters)), np.zeros_like(quarters[0])
        )
        out[f"{name}_scale"] = np.array([1 / number if divided else number], np.float32)
    return out


def state_of(form: str) -> State:
    return trained() if form == "trained" else packed(trained(), divided=form == "divided")


def loaded(folder: Path, form: str) -> LoadedModel:
    save_file(state_of(form), folder / "model.safetensors")
    return load_model(config_of(form), [folder / "model.safetensors"])


@pytest.mark.parametrize("form", FORMS)
def test_it_answers_as_transformers(tmp_path: Path, form: str) -> None:
    """Most prompts: a sum in another order may fall on the other side of a middle between two steps."""
    model = loaded(tmp_path, form)
    with np.load(ANSWERS) as stored:
        ids, wanted, std = stored["ids"], stored["logits"], stored["std"]
    errors = [
        np.abs(full_logits(model, prompt)[:, ::4] - answer).max() / std
        for prompt, answer in zip(ids, wanted, strict=True)
    ]
    assert np.median(errors) < 1e-4
    assert np.max(errors) < 0.1


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_held_in_two_bits(form: str) -> None:
    described = describe(config_of(form))
    arrays = {name: mx.array(value) for name, value in state_of(form).items()}
    found = described.family.adapt(described.config, arrays)
    module = "model.layers.0.self_attn.q_proj"
    codes, number = ternary(trained()[f"{module}.weight"])
    parts = [found[f"{module}.{part}"] for part in ("weight", "scales", "biases")]
    held = mx.dequantize(*parts, group_size=codes.shape[1] // parts[1].shape[1], bits=2)
    assert np.allclose(np.array(held), codes * number, rtol=1e-6, atol=0)
    assert not any(name.endswith("_scale") for name in found)


def test_rows_that_no_group_divides_stay_floats() -> None:
    described = describe(config_of("trained"))
    name = "model.layers.0.self_attn.q_proj.weight"
    weight = np.random.default_rng(3).standard_normal((8, 40)).astype(np.float32)
    found = described.family.adapt(described.config, {name: mx.array(weight)})
    codes, number = ternary(weight)
    assert np.allclose(np.array(found[name]), codes * number, rtol=1e-6, atol=0)


def test_what_is_read_is_rounded_by_each_tokens_largest() -> None:
    x = np.random.default_rng(5).standard_normal((2, 3, 64)).astype(np.float32)
    x[0, 0] = 0
    scale = np.float32(127) / np.maximum(np.abs(x).max(-1, keepdims=True), np.float32(1e-5))
    wanted = np.clip(np.round(x * scale), -128, 127) / scale
    assert np.allclose(np.array(rounded(mx.array(x))), wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"use_rms_norm": True}, "use_rms_norm"),
        ({"modules_to_not_convert": ["model.layers.0"]}, "modules_to_not_convert"),
        ({"linear_class": "ternary"}, "linear_class"),
        ({"linear_class": "autobitlinear", "quantization_mode": "both"}, "quantization_mode"),
    ],
)
def test_other_ways_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModel, match=said):
        describe(config_of("divided", **change))
    with pytest.raises(UnsupportedModel, match="attention_bias"):
        describe({**config_of("times"), "attention_bias": True})


@pytest.mark.parametrize("form", ["times", "divided"])
def test_bytes_without_their_number_are_refused(tmp_path: Path, form: str) -> None:
    state = state_of(form)
    del state["model.layers.0.mlp.up_proj.weight_scale"]
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(WeightMismatch, match="up_proj"):
        load_model(config_of(form), [tmp_path / "model.safetensors"])
