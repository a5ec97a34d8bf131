"""Tokens cut out of the middle of a row: those behind them move up, and their keys turn with them."""

from pathlib import Path

import mlx.core as mx
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.memory import LayerMemory
from runtime.errors import NotSupported
from runtime.step import Step
from tests.support.parity import Reference, memory_of

LENGTH, START, STOP = 24, 5, 14


def _first_keys(memory: LayerMemory, length: int) -> mx.array:
    cache = memory[0]
    assert isinstance(cache, KVCache)
    return cache.view(Step(starts=(length - 1,), counts=(1,)))[0]


@pytest.mark.parametrize(
    "name", ["llama_yarn_rope", "llama_llama3_rope", "qwen3", "cohere", "glm4", "smollm3"]
)
def test_keys_of_the_first_layer_become_those_of_the_shorter_text(name: str, tmp_path: Path) -> None:
    """Deeper layers keep what the tokens that were cut out had told them, which is the point of cutting."""
    reference = Reference(name)
    model, ids = reference.load(tmp_path), [int(i) for i in reference.answers["ids"]][:LENGTH]
    left = ids[:START] + ids[STOP:]
    cut, whole = memory_of(model, ids), memory_of(model, left)
    cut.remove(0, START, STOP, model.network.shifts)
    mine, wanted = _first_keys(cut, len(left)), _first_keys(whole, len(left))
    assert mx.allclose(mine, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["phi3_longrope_long", "qwen3_5", "deepseek_v3"])
def test_layers_that_cannot_be_cut_refuse_and_change_nothing(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    model, ids = reference.load(tmp_path), [int(i) for i in reference.answers["ids"]][:LENGTH]
    memory = memory_of(model, ids)
    with pytest.raises(NotSupported, match="cannot forget"):
        memory.remove(0, START, STOP, model.network.shifts)
    assert memory.can_resume(0, LENGTH)
