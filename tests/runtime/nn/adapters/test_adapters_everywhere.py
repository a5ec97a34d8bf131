"""No network asks a matrix, a table or a stack past the adapters of its step."""

from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.build import build_memory
from runtime.cache.memory import LayerMemory
from runtime.models import describe
from runtime.nn.adapters.adapter import kind_of
from runtime.nn.adapters.low_rank import HEAD
from runtime.nn.operations import ops
from runtime.step import Inputs, Step
from tests.support.parity import Reference


class Recorder:
    """Adds nothing, and notes who was asked."""

    def __init__(self) -> None:
        self.asked: set[int] = set()
        self.heads: list[object] = []

    def linear(self, module: object, x: mx.array, y: mx.array) -> mx.array:
        assert x.shape[0] == y.shape[0] == 2, "the first axis is that of rows"
        self.asked.add(id(module))
        return y

    by_heads = by_heads_back = linear

    def embed(self, module: object, ids: mx.array, y: mx.array) -> mx.array:
        return self.linear(module, ids, y)

    def head(self, module: object, x: mx.array, y: mx.array) -> mx.array:
        self.heads.append(module)
        return y

    def gather(self, module: object, x: mx.array, chosen: mx.array, y: mx.array) -> mx.array:
        self.asked.add(id(module))
        return y

    def mixed(self, module: object) -> bool:
        return True


def _read(network: Any, memory: LayerMemory, recorder: Recorder, *, encodes: bool) -> None:
    for width, start in ((40, 0), (1, 40)):  # beyond what indexers choose from
        ids = mx.zeros((2, width), mx.int32)
        step = Step((start,) * 2, (width,) * 2, inputs=Inputs(ids), adapters=recorder)
        memory.prepare(step)
        if encodes and not start:
            network.encode(Inputs(mx.zeros((2, 7), mx.int32)), step, memory)
        network.logits(network(step, memory), step)
        memory.commit(step, step.counts)


@pytest.mark.parametrize("name", Reference.names())
def test_everything_that_takes_a_pair_is_asked_with_the_step(name: str) -> None:
    reference = Reference(name)
    described = describe(reference.record["config"])
    network, recorder = described.family.build(described.config), Recorder()
    memory = build_memory(described.layout, rows=2, dtype=mx.float32)
    # Kernels that take a whole layer add what adapters bring by themselves, and ask nobody.
    with ops.using("blas"):
        _read(network, memory, recorder, encodes=reference.source is not None)
    modules: dict[str, Any] = dict(network.named_modules())
    taking = {path for path, module in modules.items() if kind_of(module) is not None}
    assert sorted(path for path in taking if id(modules[path]) not in recorder.asked) == []
    tied = getattr(network, "tied_table", None)
    assert all(module is tied for module in recorder.heads)
    assert bool(recorder.heads) == (tied is not None)
    assert tied is None or HEAD not in modules
