"""The official client's own suite, where a checkout of it is given."""

import os
from pathlib import Path

import pytest

from tests.support.openai_suite import SUITE


@pytest.mark.slow
def test_everything_that_its_suite_creates_is_created() -> None:
    checkout = os.environ.get("OPENAI_PYTHON")
    if not checkout:
        pytest.skip("OPENAI_PYTHON names no checkout of github.com/openai/openai-python")
    assert SUITE.run(Path(checkout).resolve(), os.environ) == 0
