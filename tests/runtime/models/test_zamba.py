"""Which layers of Zamba 1 run its block, where a config only says how often."""

from typing import Any

import pytest

from runtime.errors import UnsupportedModel
from runtime.models import describe
from tests.support.parity import Reference


def by_period(**fields: Any) -> dict[str, Any]:
    """Of zamba_biases, whose class made a list of the period that it was given."""
    config = Reference("zamba_biases").record["config"]
    return {name: value for name, value in config.items() if name != "layers_block_type"} | fields


def test_a_period_says_what_the_list_does() -> None:
    assert describe(by_period()).layout == describe(Reference("zamba_biases").record["config"]).layout


def test_fewer_layers_than_the_first_to_run_it_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="num_hidden_layers is 2"):
        describe(by_period(num_hidden_layers=2))
