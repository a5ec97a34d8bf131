"""RWKV-6's fold: chunks as token by token, cut anywhere, whatever fades within a token."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.nn.scans.wkv6 import wkv6

ROWS, TOKENS, HEADS, SIZE = 2, 41, 2, 4
DICE = np.random.default_rng(3)
FIRST = mx.array(DICE.normal(0, 1, (HEADS, SIZE)).astype(np.float32))
NONE = mx.zeros((ROWS, HEADS, SIZE, SIZE))


def made(spread: float) -> list[mx.array]:
    """Queries, decays, keys and values."""
    parts = [DICE.normal(0, 1, (ROWS, TOKENS, HEADS, SIZE)) for _ in range(4)]
    parts[1] = -np.exp(spread * parts[1])
    return [mx.array(part.astype(np.float32)) for part in parts]


@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_chunks_are_the_definition(spread: float) -> None:
    parts = made(spread)
    (y, state), (wanted, last) = (
        wkv6(*parts, FIRST, NONE, one_by_one=one_by_one) for one_by_one in (False, True)
    )
    assert mx.abs(y - wanted).max() < 1e-4
    assert mx.abs(state - last).max() < 1e-4


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_text_may_be_cut_anywhere_and_rows_may_be_ragged(one_by_one: bool) -> None:
    parts = made(1.0)
    whole, _ = wkv6(*parts, FIRST, NONE, one_by_one=one_by_one)
    counts = mx.array([9, 4])
    _, state = wkv6(*(part[:, :9] for part in parts), FIRST, NONE, counts=counts, one_by_one=one_by_one)
    for row, start in enumerate((9, 4)):
        rest = (part[row : row + 1, start:] for part in parts)
        y, _ = wkv6(*rest, FIRST, state[row : row + 1], one_by_one=one_by_one)
        assert mx.abs(y[0] - whole[row, start:]).max() < 1e-4


def test_a_token_counts_by_a_weight_of_its_own() -> None:
    q, g, k, v = (part[:, :1] for part in made(1.0))
    y, _ = wkv6(q, g, k, v, FIRST, NONE)
    assert mx.abs(y - (q * FIRST * k).sum(-1, keepdims=True) * v).max() < 1e-6
