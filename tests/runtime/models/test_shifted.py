"""What a model says after tokens were cut out of its memory, against keys that are turned here by hand: each
kept key is taken to the position where it then stands, and one more token attends to them.
"""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.layout import Full, Rotating, Shared
from runtime.cache.memory import LayerMemory
from runtime.cache.protocol import View
from runtime.cache.shift import Shift
from runtime.loaded import LoadedModel
from runtime.models.registry.described import describe
from runtime.step import Inputs, Step
from tests.support.parity import Reference, memory_of

NAMES = [
    "llama_yarn_rope",
    "llama_llama3_rope",
    "llama_linear_rope",
    "mistral_window",
    "qwen3",
    "qwen3_moe",
    "phi",
    "gemma2",
    "gemma3_text",
    "cohere2",
    "olmo2",
    "smollm3",
    "gpt_oss",
    "stablelm",
    "granite",
]
LENGTH, KEEP, STOP = 40, 5, 14


class Given:
    """The memory of one layer for one token: what it may see is given."""

    def __init__(self, keys: np.ndarray, values: mx.array) -> None:
        self._keys, self._values = mx.array(keys), values
        self._view: View | None = None

    def append(self, step: Step, keys: mx.array, values: mx.array) -> View:
        self._view = (
            mx.concatenate([self._keys, keys], axis=2),
            mx.concatenate([self._values, values], axis=2),
            None,
        )
        return self._view

    def view(self, step: Step) -> View:
        assert self._view is not None
        return self._view

    def open(self, step: Step) -> None:
        """What is given lies in no lanes."""

    def lanes(self, step: Step) -> None:
        """As `open`."""


def turned(keys: np.ndarray, rope: Any, by: int) -> np.ndarray:
    """Rotated keys [1, H, n, D], `by` positions later: pairs of numbers turn by `by` / wavelength."""
    if rope is None:
        return keys
    spec, out = rope._spec, keys.astype(np.float64)
    angles = by / np.asarray(spec.wavelengths, np.float64)
    half = spec.dims // 2
    first, second = (
        (slice(0, spec.dims, 2), slice(1, spec.dims, 2))
        if spec.traditional
        else (slice(half), slice(half, spec.dims))
    )
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * np.cos(angles) - b * np.sin(angles)
    out[..., second] = a * np.sin(angles) + b * np.cos(angles)
    return out.astype(np.float32)


def logits(model: LoadedModel, token: int, at: int, caches: Any) -> np.ndarray:
    step = Step(starts=(at,), counts=(1,), inputs=Inputs(mx.array([[token]], dtype=mx.int32)))
    hidden = model.network(step, caches)
    return np.array(model.network.logits(hidden))[0, 0]


def by_hand(model: LoadedModel, memory: LayerMemory) -> list[Given]:
    """What each layer's next token may see, taken out of a memory in which nothing was forgotten."""
    step, given = Step(starts=(LENGTH - 1,), counts=(1,)), list[Given]()
    for layer, spec in enumerate(model.described.layout):
        if isinstance(spec, Shared):
            given.append(given[spec.layer])
            continue
        keys, values, _ = memory[layer].view(step)  # pyright: ignore
        rope = model.network.model.layers[layer].self_attn._rope
        held = np.array(keys)
        if isinstance(spec, Rotating):
            held, values = held[:, :, -(spec.window - 1) :], values[:, :, -(spec.window - 1) :]
            given.append(Given(turned(held, rope, KEEP - STOP), values))
            continue
        assert isinstance(spec, Full)
        moved = turned(held[:, :, STOP:], rope, KEEP - STOP)
        keys = np.concatenate([held[:, :, :KEEP], moved], axis=2)
        given.append(Given(keys, mx.concatenate([values[:, :, :KEEP], values[:, :, STOP:]], axis=2)))
    return given


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_after_a_cut(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    model, ids = reference.load(tmp_path), [int(i) for i in reference.answers["ids"]][: LENGTH + 1]
    windows = [spec.window for spec in model.described.layout if isinstance(spec, Rotating)]
    assert all(window < LENGTH - STOP for window in windows), "or this test says too little"
    memory = memory_of(model, ids[:LENGTH])
    wanted = logits(model, ids[LENGTH], LENGTH - STOP + KEEP, by_hand(model, memory))
    uncut = logits(model, ids[LENGTH], LENGTH, memory)
    memory = memory_of(model, ids[:LENGTH])
    memory.remove(0, KEEP, STOP, model.network.shifts)
    got = logits(model, ids[LENGTH], LENGTH - STOP + KEEP, memory)
    assert np.abs(got - wanted).max() < 1e-4 * wanted.std()
    if len(windows) < len(model.described.layout):  # a window alone has forgotten it before
        assert np.abs(got - uncut).max() > 1e-3 * wanted.std()


def test_every_family_says_how_keys_move() -> None:
    """And of those that can, the numbers of the layout decide, not what buffers happen to hold."""
    for name in Reference.names():
        described = describe(Reference(name).record["config"])
        shifts = described.family.build(described.config).shifts
        assert len(shifts) in (0, len(described.layout)), name
        shift = Shift.of(KEEP, 4096, described.layout, shifts)
        assert shift.stop == KEEP + (4096 - KEEP) // 2
        assert not shift.turns or name not in ("qwen3_5", "gpt2", "deepseek_v3", "phi3_longrope_long")
