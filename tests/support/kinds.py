"""Which references stand for others: one of each kind in the quick suite, all where slow tests run too."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from tests.support.parity import Reference


@cache
def of_each_kind() -> frozenset[str]:
    """All but those whose name says of which they are a variant (`llama_biases`), if their model type says so
    too.
    """
    types: dict[str, set[str]] = {}
    for name in Reference.names():  # in order: `llama` comes before `llama_biases`
        seen = types.setdefault(Reference(name).record["config"]["model_type"], set())
        if not any(name.startswith(f"{other}_") for other in seen):
            seen.add(name)
    return frozenset().union(*types.values())


def variants_later(names: Iterable[str]) -> list[Any]:
    """These names, as parameters of a test: variants are slow ones."""
    return [pytest.param(name, marks=[] if name in of_each_kind() else [pytest.mark.slow]) for name in names]
