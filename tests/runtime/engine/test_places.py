"""Places of rows in layer memory."""

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from runtime import host
from runtime.cache.build import build_memory
from runtime.cache.layout import Full, Recurrent, State
from runtime.cache.memory import LayerMemory
from runtime.engine.places import Places
from runtime.step import Step


def places_in(memory: LayerMemory) -> Places:
    unasked: Any = SimpleNamespace()
    drafting: Any = SimpleNamespace(resize=lambda _: None)
    return Places(memory, unasked, drafting, memory.rows)


def test_what_many_rows_had_is_given_back_when_none_is_left() -> None:
    row_bytes = 64 * 64 * 64 * 4
    layout = [Recurrent({"state": State((64, 64, 64), "float32")})]
    before = mx.get_active_memory()
    memory = build_memory(layout, rows=8)
    step = Step((0,) * 8, (1,) * 8)
    cache: Any = memory.caches[0]
    cache.scan(step, lambda states, counts: (None, {"state": states["state"] + 1}))
    memory.commit(step, (1,) * 8)
    memory.evaluate()
    assert mx.get_active_memory() - before >= 8 * row_bytes
    places_in(memory).rest()
    assert memory.rows == 1
    assert mx.get_active_memory() - before < 2 * row_bytes


def test_what_growth_left_behind_is_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []
    monkeypatch.setattr(host, "trim", lambda: asked.append(None))
    memory = build_memory([Full(2, 16)])
    places = places_in(memory)
    places.rest()
    assert not asked
    memory.reserve(1000)
    places.rest()
    places.rest()
    assert len(asked) == 1
