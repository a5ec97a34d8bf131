"""A norm with an epsilon of 0, which MLX does not compute, is refused by the field's name."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from runtime.errors import UnsupportedModel
from runtime.models import describe
from tests.support.parity import Reference


def epsilons(block: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where a config has one, but for those of towers that are not run."""
    for name, value in block.items():
        if isinstance(value, Mapping) and name not in ("vision_config", "audio_config"):
            yield from epsilons(value, (*at, name))
        elif "eps" in name and isinstance(value, float):
            yield (*at, name)


@pytest.mark.parametrize("name", Reference.names())
def test_zero_is_refused_or_of_no_consequence(name: str) -> None:
    given = Reference(name).record["config"]
    refused = 0
    for *outer, field in epsilons(given):
        config = copy.deepcopy(given)
        block = config
        for part in outer:
            block = block[part]
        block[field] = 0.0
        refused += taken_or_refused(config, field)
    assert refused or not list(epsilons(given))


def taken_or_refused(config: Mapping[str, Any], field: str) -> bool:
    """Is it refused by the field's name? Otherwise it must be one that no norm of MLX gets."""
    try:
        described = describe(config)
    except UnsupportedModel as refusal:
        return field in str(refusal)
    described.family.build(described.config)
    return False
