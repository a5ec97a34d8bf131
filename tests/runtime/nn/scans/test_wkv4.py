"""RWKV-4's sums: joined in pairs as token by token, cut anywhere, of keys however large."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.nn.scans.wkv4 import State, wkv4

ROWS, TOKENS, CHANNELS = 2, 21, 5
DICE = np.random.default_rng(3)
DECAY = mx.array(-np.exp(DICE.normal(-1, 1, CHANNELS)).astype(np.float32))
FIRST = mx.array(DICE.normal(0, 1, CHANNELS).astype(np.float32))
NONE: State = (mx.zeros((ROWS, CHANNELS)),) * 3


def made(spread: float, shift: float = 0.0) -> tuple[mx.array, mx.array]:
    """Keys and values."""
    shape = (ROWS, TOKENS, CHANNELS)
    keys, values = DICE.normal(shift, spread, shape), DICE.normal(0, 1, shape)
    return mx.array(keys.astype(np.float32)), mx.array(values.astype(np.float32))


def defined(keys: mx.array, values: mx.array) -> np.ndarray:
    """By the definition, in double: each token sees all before it, and itself by another weight."""
    k, v = np.array(keys, np.float64), np.array(values, np.float64)
    decay, first = np.array(DECAY, np.float64), np.array(FIRST, np.float64)
    found = np.empty_like(k)
    for t in range(TOKENS):
        ages = np.arange(t - 1, -1, -1)[:, None] * decay
        logs = np.concatenate([k[:, :t] + ages, (k[:, t] + first)[:, None]], axis=1)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        found[:, t] = (weights * v[:, : t + 1]).sum(axis=1) / weights.sum(axis=1)
    return found


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(("spread", "shift"), [(1.0, 0.0), (30.0, 0.0), (1.0, -300.0), (1.0, 300.0)])
def test_definition(spread: float, shift: float, one_by_one: bool) -> None:
    keys, values = made(spread, shift)
    y, _ = wkv4(DECAY, FIRST, keys, values, NONE, counts=None, one_by_one=one_by_one)
    assert np.abs(np.array(y) - defined(keys, values)).max() < 1e-4


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_text_may_be_cut_anywhere_and_rows_may_be_ragged(one_by_one: bool) -> None:
    keys, values = made(2.0)
    whole, _ = wkv4(DECAY, FIRST, keys, values, NONE, counts=None, one_by_one=one_by_one)
    counts = mx.array([9, 4])
    _, state = wkv4(DECAY, FIRST, keys[:, :9], values[:, :9], NONE, counts=counts, one_by_one=one_by_one)
    for row, start in enumerate((9, 4)):
        own = tuple(part[row : row + 1] for part in state)
        rest = (part[row : row + 1, start:] for part in (keys, values))
        y, _ = wkv4(DECAY, FIRST, *rest, own, counts=None, one_by_one=one_by_one)
        assert np.abs(np.array(y[0]) - np.array(whole[row, start:])).max() < 1e-5
