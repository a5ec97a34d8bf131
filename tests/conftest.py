"""Shared fixtures. Reference data that is not ours to ship lives beside the checkout, or where
MODELKIT_TEST_DATA says.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("modelkit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("modelkit")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of third-party reference data; tests that need it skip where it is absent."""
    given = os.environ.get("MODELKIT_TEST_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no reference data: {folder} is absent (set MODELKIT_TEST_DATA)")
    return folder
