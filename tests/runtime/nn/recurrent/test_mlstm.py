"""mLSTM: by the definition, in chunks as token by token, cut anywhere; gates at their caps."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.nn.recurrent.mlstm import mlstm

ROWS, TOKENS, HEADS, SIZE = 2, 21, 2, 4
DICE = np.random.default_rng(3)
CELL, TOP = mx.zeros((ROWS, HEADS, SIZE, SIZE + 1)), mx.zeros((ROWS, HEADS))


def made(spread: float) -> list[mx.array]:
    """Queries, keys, values, gates i and f."""
    parts = [DICE.normal(0, 1, (ROWS, TOKENS, HEADS, SIZE)) for _ in range(3)]
    gates = [15 * np.tanh(spread * DICE.normal(0, 1, (ROWS, TOKENS, HEADS))) for _ in range(2)]
    return [mx.array(part.astype(np.float32)) for part in (*parts, *gates)]


def defined(parts: list[mx.array]) -> np.ndarray:
    """In double, over the largest weight."""
    q, k, v, i, f = (np.array(part, np.float64) for part in parts)
    cell, total, top = (
        np.zeros((ROWS, HEADS, SIZE, SIZE)),
        np.zeros((ROWS, HEADS, SIZE)),
        np.zeros((ROWS, HEADS)),
    )
    found = np.empty_like(v)
    for t in range(TOKENS):
        fade = -np.log1p(np.exp(-f[:, t]))
        now = np.maximum(fade + top, i[:, t])
        left, new = np.exp(fade + top - now)[..., None], np.exp(i[:, t] - now)[..., None]
        cell = left[..., None] * cell + new[..., None] * k[:, t, :, :, None] * v[:, t, :, None]
        total, top = left * total + new * k[:, t], now
        asked = q[:, t] * SIZE**-0.5
        over = np.maximum(np.abs((asked * total).sum(-1)), np.exp(-top)) + 1e-6
        found[:, t] = (asked[..., None] * cell).sum(-2) / over[..., None]
    return found


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_definition(spread: float, one_by_one: bool) -> None:
    parts = made(spread)
    y, _, _ = mlstm(*parts, CELL, TOP, eps=1e-6, one_by_one=one_by_one)
    wanted = defined(parts)
    assert np.abs(np.array(y) - wanted).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_text_may_be_cut_anywhere_and_rows_may_be_ragged(one_by_one: bool) -> None:
    parts, how = made(0.2), {"eps": 1e-6, "one_by_one": one_by_one}
    whole, _, _ = mlstm(*parts, CELL, TOP, **how)
    _, cell, top = mlstm(*(part[:, :9] for part in parts), CELL, TOP, counts=mx.array([9, 4]), **how)
    for row, start in enumerate((9, 4)):
        rest = (part[row : row + 1, start:] for part in parts)
        y, _, _ = mlstm(*rest, cell[row : row + 1], top[row : row + 1], **how)
        assert mx.abs(y[0] - whole[row, start:]).max() < 1e-4
