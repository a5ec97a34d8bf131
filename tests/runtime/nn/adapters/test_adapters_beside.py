"""A row does not notice what stands beside it, not even an adapter that is no numbers."""

from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.nn.adapters.adapter import Adapter
from runtime.nn.adapters.low_rank import LowRanks
from runtime.nn.adapters.rows import RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.nn.operations import ops
from runtime.nn.operations.signatures import Name
from tests.support.low_ranks import pairs_of
from tests.support.parity import Reference
from tests.support.same_bits import Batch

IDS = [5, 9, 44, 3, 17]


# Tables and heads, latent heads, experts, folds.
@pytest.mark.parametrize("name", ["llama", "deepseek_v3", "qwen3_moe", "qwen3_next"])
@pytest.mark.parametrize("column", ["cpu", "plain"])
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_a_row_beside_a_broken_adapter(name: str, column: Name, dora: bool, tmp_path: Path) -> None:
    with ops.using(column):
        model = Reference(name).load(tmp_path)
        pairs = pairs_of(model.network, 1, dora)
        broken = {
            key: replace(pair, down=pair.down * mx.nan, up=pair.up * mx.nan) for key, pair in pairs.items()
        }
        good, bad = (Adapter(model.network, LowRanks(its)) for its in (pairs, broken))

        def read(beside: tuple[tuple[Adapter, float], ...]) -> list[np.ndarray]:
            rows = RowAdapters(AdapterStacks([bad, good]), [beside, (), ((good, 0.5),)])
            batch = Batch(model, [IDS] * 3, lambda _: rows)
            for count in (3, 1, 1):
                batch.feed([count] * 3)
            return batch.answers()

        first, *wanted = read(((good, 1.0),))
        none, *got = read(((bad, 1.0),))
        assert not np.isnan(first).any()
        assert np.isnan(none).all()
        assert np.array_equal(got, wanted)
