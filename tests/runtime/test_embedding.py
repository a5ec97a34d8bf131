"""How hidden states become a vector, whichever pieces they come in."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.embedding import divisor, pooled

COUNTS, SKIPPED = (11, 7, 4), (3, 0, 3)


def wanted(hidden: np.ndarray, skipped: int, pool: str) -> np.ndarray:
    """As sentence-transformers has it, of one text."""
    kept, places = hidden[skipped:], np.arange(skipped, len(hidden))[:, None] + 1
    return {
        "mean": kept.mean(0),
        "first": kept[0],
        "last": kept[-1],
        "max": kept.max(0),
        "weighted": (kept * places).sum(0) / places.sum(),
        "root": kept.sum(0) / len(kept) ** 0.5,
    }[pool]


@pytest.mark.parametrize("pool", ["mean", "first", "last", "max", "weighted", "root"])
def test_what_texts_begin_with_may_count_for_nothing(pool: str) -> None:
    hidden = np.random.default_rng(1).normal(size=(3, 11, 5)).astype(np.float32)
    side_by_side = pooled(mx.array(hidden), mx.array(COUNTS), pool, skipped=SKIPPED)  # pyright: ignore[reportArgumentType]
    for row, (count, skipped) in enumerate(zip(COUNTS, SKIPPED, strict=True)):
        before: mx.array | None = None
        for start in range(0, count, 2):
            piece = mx.array(hidden[row : row + 1, start : min(start + 2, count)])
            of = mx.array([piece.shape[1]])
            before = pooled(piece, of, pool, before, start, (skipped,))  # pyright: ignore[reportArgumentType]
        found = np.array(before)[0]
        assert np.allclose(found, np.array(side_by_side)[row], atol=1e-5)
        size = divisor(count, pool, skipped)  # pyright: ignore[reportArgumentType]
        assert np.allclose(found / size, wanted(hidden[row, :count], skipped, pool), atol=1e-5)
