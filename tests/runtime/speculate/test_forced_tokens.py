"""Drafts that a grammar leaves no choice about."""

from collections.abc import Sequence

import pytest

from runtime.sampling.constraint import Ahead
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate.drafter import Rows
from runtime.speculate.forced_tokens import ForcedDrafter


class Only:
    """Goes one way for as long as `run` lasts."""

    ended = False

    def __init__(self, run: Sequence[int]) -> None:
        self.run = run

    def mask(self) -> bytes:
        return b"\xff" * 4

    def advance(self, token: int) -> None: ...
    def back(self, count: int) -> None: ...

    def forced(self, limit: int) -> Sequence[int]:
        return self.run[:limit]


def rows(*runs: Sequence[int] | None) -> Rows:
    matchers = [None if run is None else Only(run) for run in runs]
    return Rows([[1]] * len(runs), Sampler([SamplingParams()] * len(runs)), Ahead(matchers, 32))


def test_each_row_gets_its_own_run() -> None:
    found = ForcedDrafter().propose(rows([5, 6, 7], [], None, [8]), 2)
    assert found is not None
    assert found.counts == (2, 0, 0, 1)
    assert found.tokens.tolist() == [[5, 6], [0, 0], [0, 0], [8, 0]]
    assert ForcedDrafter().propose(rows([], None), 2) is None


@pytest.mark.parametrize(
    ("runs", "grade"),
    [([], 0), ([0], 0), ([1], 1), ([3], 2), ([15], 4), ([15, 0], 0), ([15, 2], 2), ([0, 4, 9], 3)],
)
def test_a_batch_is_as_good_as_most_of_its_rows(runs: list[int], grade: int) -> None:
    assert ForcedDrafter().grade([[1]] * len(runs), runs) == grade
