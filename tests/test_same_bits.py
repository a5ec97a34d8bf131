"""With kernels, a token's logits are the same bits however its sequence is read: of every family, its
matrices packed where they can be and in 16 bits elsewhere.
"""

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from runtime.cpu import native
from runtime.loaded import LoadedModel
from runtime.nn import ops
from runtime.nn.mla import HeadLinear
from runtime.nn.moe import SwitchLinear
from tests.support.parity import Reference
from tests.support.same_bits import differing

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")
GROUP = 32
LENGTH = 14


def packable(_path: str, module: Any) -> bool:
    return (
        type(module) in (nn.Linear, nn.Embedding, SwitchLinear, HeadLinear)
        and module.weight.shape[-1] % GROUP == 0
    )


def pack(model: LoadedModel, bits: int) -> None:
    """Matrices in `bits`, and those that cannot be in bf16."""
    nn.quantize(model.network, GROUP, bits, class_predicate=packable)
    for module in model.network.modules():
        if type(module) in (nn.Linear, nn.Embedding, HeadLinear):
            module.weight = module.weight.astype(mx.bfloat16)


@pytest.mark.parametrize("name", Reference.names())
def test_packed(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    with ops.using("cpu"):
        model = reference.load(tmp_path)
        pack(model, 8 if len(name) % 2 else 4)
        assert [*differing(model, [int(token) for token in reference.answers["ids"][:LENGTH]])] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", Reference.names())
def test_in_float32(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    with ops.using("cpu"):
        model = reference.load(tmp_path)
        assert [*differing(model, [int(token) for token in reference.answers["ids"]])] == []
