"""How deep to guess, and what that is worth: by hand for small numbers."""

import pytest

from runtime.quality.acceptance import best_depth, speed


@pytest.mark.parametrize(
    ("acceptance", "cost", "depth", "expected"),
    [(0.5, 0.1, 0, 1.0), (0.5, 0.0, 1, 1.5), (0.5, 0.5, 2, 1.75 / 2), (1.0, 0.25, 3, 4 / 1.75)],
)
def test_speed(acceptance: float, cost: float, depth: int, expected: float) -> None:
    assert speed(acceptance, cost, depth) == pytest.approx(expected)


def test_a_guess_that_never_pays_is_not_made() -> None:
    assert best_depth(0.1, 0.5) == (0, 1.0)


def test_cheap_and_good_guesses_go_deep() -> None:
    assert best_depth(0.9, 0.01)[0] == 8
