"""What recurrent layers hand to their memory stands on its own, whatever computes it."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.layout import Recurrent
from runtime.cache.recurrent import RecurrentCache
from runtime.nn.operations import ops, signatures
from runtime.nn.recurrent.delta_net import DeltaSpec, GatedDeltaNet
from runtime.nn.recurrent.kimi_delta import KimiDelta, KimiDeltaSpec
from runtime.nn.recurrent.mamba1 import Mamba1, Mamba1Spec
from runtime.nn.recurrent.mamba2 import Mamba2, Mamba2Spec
from runtime.nn.recurrent.rg_lru import RecurrentBlock, rg_lru_memory
from runtime.step import Step

HIDDEN, TOKENS = 8, 2048
DELTA = DeltaSpec(1, 2, 8, 8, 4, 1e-5)
KIMI = KimiDeltaSpec(2, 8, 4, 1e-5)
MAMBA = Mamba1Spec(HIDDEN, 16, 4, 4, 2, 1e-5)
MAMBA2 = Mamba2Spec(HIDDEN, 2, 8, 1, 8, 4, 1e-5)
LAYERS: dict[str, tuple[Callable[[], Any], Recurrent]] = {
    "delta": (lambda: GatedDeltaNet(HIDDEN, DELTA), DELTA.memory),
    "kimi": (lambda: KimiDelta(HIDDEN, KIMI), KIMI.memory),
    "mamba": (lambda: Mamba1(MAMBA), MAMBA.memory),
    "mamba2": (lambda: Mamba2(MAMBA2), MAMBA2.memory),
    "rg_lru": (lambda: RecurrentBlock(HIDDEN, 16, 2, 4, "gelu"), rg_lru_memory(16, 4)),
}


@pytest.mark.parametrize("column", ["plain", "blas", "cpu"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_state_does_not_keep_its_forward_pass_alive(name: str, column: signatures.Name) -> None:
    make, spec = LAYERS[name]
    layer, cache, step, x = make(), RecurrentCache(spec), Step((0,), (TOKENS,)), mx.ones((1, TOKENS, HIDDEN))
    mx.eval(layer.parameters(), cache.arrays, x)
    before = mx.get_active_memory()
    with ops.using(column):
        y = layer(x, step, cache)
    cache.commit(step, step.counts)
    mx.eval(y, cache.arrays)
    del y, step
    mx.synchronize()  # a GPU's memory is free once what was computed with it is done
    assert mx.get_active_memory() - before < TOKENS * HIDDEN * 4
