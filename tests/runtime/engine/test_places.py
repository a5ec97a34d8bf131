"""Places of rows in layer memory."""

from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from runtime.cache.build import build_memory
from runtime.cache.layout import Recurrent, State
from runtime.engine.places import Places


def test_what_many_rows_had_is_given_back_when_none_is_left() -> None:
    row_bytes = 64 * 64 * 64 * 4
    layout = [Recurrent({"state": State((64, 64, 64), "float32")})]
    before = mx.get_active_memory()
    memory = build_memory(layout, rows=8)
    memory.evaluate()
    assert mx.get_active_memory() - before >= 8 * row_bytes
    unasked: Any = SimpleNamespace()
    desk: Any = SimpleNamespace(resize=lambda _: None)
    Places(memory, unasked, desk, 8).rest()
    assert memory.rows == 1
    assert mx.get_active_memory() - before < 2 * row_bytes
