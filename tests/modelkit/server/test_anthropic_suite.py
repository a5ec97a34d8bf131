"""Anthropic's own tests of its client, where a checkout of it is given."""

import os
from pathlib import Path

import pytest

from tests.support.anthropic_suite import SUITE


@pytest.mark.slow
def test_its_suite_passes() -> None:
    checkout = os.environ.get("ANTHROPIC_PYTHON")
    if not checkout:
        pytest.skip("ANTHROPIC_PYTHON names no checkout of github.com/anthropics/anthropic-sdk-python")
    assert SUITE.run(Path(checkout).resolve(), os.environ) == 0
