"""Whatever is asked for at once: every answer is that of the same request alone, to the last bit."""

import pytest

from runtime.cpu import native
from tests.support.composed_cases import Case
from tests.support.composing import found_wrong

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_those_of_requests_alone(seed: int) -> None:
    assert found_wrong(Case.of(seed)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 600))
def test_many_compositions(seed: int) -> None:
    assert found_wrong(Case.of(seed)) == []
