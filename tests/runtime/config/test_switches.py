"""Lists of 0 or 1, one for each layer, are read in one way, whatever a family calls them."""

from typing import Any

import pytest

from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel


def test_a_switch_for_each_layer() -> None:
    assert Fields({"pattern": [1, 0, 1]}).switches("pattern", 3) == (True, False, True)


def test_nothing_said_is_the_default_or_nothing() -> None:
    assert Fields({}).switches("pattern", 2) is None
    assert Fields({}).switches("pattern", 2, [0, 1]) == (False, True)


@pytest.mark.parametrize("said", [[1], [1, 0, 2], "101", 1, [1, 0, None], [[], 0, 1]])
def test_anything_else_is_refused_by_its_name(said: Any) -> None:
    with pytest.raises(UnsupportedModel, match=r"pattern is .*, expected 0 or 1 for each of 3 layers"):
        Fields({"pattern": said}).switches("pattern", 3)
