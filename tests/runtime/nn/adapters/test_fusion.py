"""LoRA and DoRA as weights: by the formulas of their papers, in numpy."""

import mlx.core as mx
import numpy as np

from runtime.nn.adapters.fusion import fused, gain
from runtime.nn.adapters.low_rank import LowRank

IN, OUT, RANK, SCALE = 6, 5, 2, 0.5


def arrays(*shapes: tuple[int, ...]) -> list[mx.array]:
    random = np.random.default_rng(3)
    return [mx.array(random.normal(size=shape).astype(np.float32)) for shape in shapes]


def test_lora_adds_its_scaled_product() -> None:
    weight, down, up = arrays((OUT, IN), (IN, RANK), (RANK, OUT))
    got = fused(weight, LowRank(down, up, SCALE), scale=0.4)
    wanted = np.array(weight) + 0.4 * SCALE * (np.array(down) @ np.array(up)).T
    np.testing.assert_allclose(np.array(got), wanted, rtol=1e-5, atol=1e-6)


def test_dora_gives_each_output_its_magnitude() -> None:
    weight, down, up, magnitude = arrays((OUT, IN), (IN, RANK), (RANK, OUT), (OUT,))
    got = np.array(fused(weight, LowRank(down, up, SCALE, magnitude=mx.abs(magnitude))))
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), np.abs(np.array(magnitude)), rtol=1e-5)


def test_a_tables_magnitudes_are_of_the_numbers_that_come_out() -> None:
    weight, down, up, magnitude = arrays((OUT, IN), (OUT, RANK), (RANK, IN), (IN,))
    got = np.array(fused(weight, LowRank(down, up, SCALE, magnitude=mx.abs(magnitude)), table=True))
    np.testing.assert_allclose(np.linalg.norm(got, axis=0), np.abs(np.array(magnitude)), rtol=1e-5)


def test_a_scale_is_a_share_of_what_the_adapter_adds() -> None:
    weight, down, up, magnitude = arrays((OUT, IN), (IN, RANK), (RANK, OUT), (OUT,))
    pair = LowRank(down, up, SCALE, magnitude=magnitude)
    whole, none = np.array(fused(weight, pair)), np.array(fused(weight, pair, scale=0.0))
    np.testing.assert_array_equal(none, np.array(weight))
    half = np.array(fused(weight, pair, scale=0.5))
    np.testing.assert_allclose(half, (whole + np.array(weight)) / 2, rtol=1e-5, atol=1e-6)


def test_a_row_without_direction_gets_none() -> None:
    down, up, magnitude = arrays((IN, RANK), (RANK, OUT), (OUT,))
    pair = LowRank(mx.zeros_like(down), up, SCALE, magnitude=magnitude)
    np.testing.assert_array_equal(np.array(gain(pair, mx.zeros((OUT, IN)))), np.ones(OUT))
