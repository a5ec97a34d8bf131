"""Ranks for all tests of this room."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.ranks import Standing

Crews = Callable[[int], Standing]


@pytest.fixture(scope="session")
def crews(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crews]:
    """Gives ranks, so many as are asked for: the same ones each time, until one of them fails."""
    standing: dict[int, Standing] = {}

    def of(size: int) -> Standing:
        if size not in standing or standing[size].ended:
            standing[size] = Standing(tmp_path_factory.mktemp("ranks"), size)
        return standing[size]

    yield of
    for one in standing.values():
        one.close()
