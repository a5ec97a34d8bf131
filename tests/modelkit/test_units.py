"""Sizes as people write them."""

import numpy as np
import pytest

from modelkit.errors import ParameterError
from modelkit.units import read_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("2GB", 2 * 10**9),
        ("500 mb", 500 * 10**6),
        ("1.5G", 15 * 10**8),
        ("1.5GiB", 3 << 29),
        ("64k", 64_000),
        ("123", 123),
        ("1.001kB", 1001),
        ("0.468665MB", 468_665),
        ("5.7265 GiB", 57265 * (1 << 30) // 10_000),
        ("0", 0),
        (7, 7),
        (np.int64(7), 7),
    ],
)
def test_sizes(text: str | int, nbytes: int) -> None:
    assert read_size(text, "x") == nbytes


@pytest.mark.parametrize(
    "value", ["", "lots", "-1", "1e9", "2 G B", "GB", "9" * 16, -1, True, np.True_, 2**63]
)
def test_what_is_no_size_names_its_source(value: str | int) -> None:
    with pytest.raises(ParameterError, match=r"--cache-memory is .*expected a number of bytes"):
        read_size(value, "--cache-memory")
