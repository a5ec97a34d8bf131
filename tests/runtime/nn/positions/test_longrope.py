"""LongRoPE has two sets of wavelengths; a row uses one of them for all tokens that it has."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.errors import UnsupportedModel
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, long_after, read_rope
from runtime.step import Step

FACTORS = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 8.0]}
ORIGINAL = {**FACTORS, "original_max_position_embeddings": 16}


def turned(long: bool, offset: int) -> mx.array:
    """X at `offset`, by the definition."""
    factors = FACTORS["long_factor"] if long else FACTORS["short_factor"]
    angles = np.arange(offset, offset + 3)[:, None] / (np.array([1.0, 100.0]) * np.array(factors))
    scale = np.sqrt(1 + np.log(64 / 16) / np.log(16))
    cos, sin, x = np.cos(angles) * scale, np.sin(angles) * scale, np.array(X)
    low, high = x[..., :2], x[..., 2:]
    return mx.array(np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1))


X = mx.random.normal((1, 2, 3, 4), key=mx.random.key(0))
ROPE = Rope(read_rope(ORIGINAL, head_dim=4, max_positions=64))


@pytest.mark.parametrize("long", [False, True])
def test_a_row_is_long_if_the_step_says_so(long: bool) -> None:
    step = Step(starts=(5,), counts=(3,), long=(long,))
    assert np.allclose(ROPE(X, step), turned(long, 5), atol=1e-5)


@pytest.mark.parametrize(("start", "long"), [(13, False), (14, True)])
def test_otherwise_by_the_tokens_that_it_then_has(start: int, long: bool) -> None:
    assert np.allclose(ROPE(X, Step(starts=(start,), counts=(3,))), turned(long, start), atol=1e-5)


@pytest.mark.parametrize(
    "step", [Step((2, 9), (3, 3), long=(False, True)), Step((2, 14), (3, 3))], ids=["said", "by length"]
)
def test_short_and_long_rows_in_one_step(step: Step) -> None:
    wanted = np.concatenate([turned(False, 2), turned(True, step.starts[1])])
    assert np.allclose(ROPE(mx.concatenate([X, X]), step), wanted, atol=1e-5)


def test_a_model_too_short_for_its_long_factors_never_takes_them() -> None:
    """Not in a row either that is long for other layers, which have a length of their own."""
    short = read_rope({**ORIGINAL, "factor": 4.0}, head_dim=4, max_positions=16)
    step = Step(starts=(5,), counts=(3,), long=(True,))
    assert np.allclose(Rope(short)(X, step), turned(False, 5), atol=1e-5)


def test_factors_of_the_wrong_number_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="long_factor"):
        read_rope({**ORIGINAL, "long_factor": [1.0]}, head_dim=4, max_positions=64)


@dataclass(frozen=True)
class Config:
    """As families have them: ropes of layers, some without, some inside other parts."""

    ropes: tuple[RopeSpec | None, ...]
    inner: "Config | None" = None


LONG = read_rope(ORIGINAL, head_dim=4, max_positions=64)
PLAIN = RopeSpec(4, (1.0, 100.0))


@pytest.mark.parametrize(
    ("config", "turn"),
    [
        (Config((PLAIN, None)), None),
        (Config((PLAIN, LONG, LONG)), 16),
        (Config((), Config((LONG,))), 16),
        (Config((read_rope({**ORIGINAL, "factor": 4.0}, head_dim=4, max_positions=16),)), None),
    ],
    ids=["none", "layers", "nested", "never reached"],
)
def test_a_config_says_where_its_sequences_become_long(config: Config, turn: int | None) -> None:
    assert long_after(config) == turn


def test_layers_that_turn_at_different_lengths_are_refused() -> None:
    other = read_rope({**ORIGINAL, "original_max_position_embeddings": 32}, head_dim=4, max_positions=64)
    with pytest.raises(UnsupportedModel, match="16, 32"):
        long_after(Config((LONG, other)))


def test_keys_are_turned_back_by_no_negative_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs add an offset to an unsigned number, so that -1 would be four thousand million."""
    offsets: list[int] = []
    turn = mx.fast.rope

    def seen(x: mx.array, *rest: Any, offset: int, **more: Any) -> mx.array:
        offsets.append(offset)
        return turn(x, *rest, offset=offset, **more)

    rope = Rope(RopeSpec(8, (1.0, 10.0, 100.0, 1000.0)))
    keys = mx.random.normal((2, 3, 5, 8))
    there = rope.shifted(keys, 7)
    monkeypatch.setattr(mx.fast, "rope", seen)
    assert mx.allclose(rope.shifted(there, -7), keys, atol=1e-5)
    assert offsets == [7]
