"""With kernels, a token's logits are the same bits however its sequence is read: of every family, its
matrices packed where they can be and in 16 bits elsewhere.
"""

from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cpu import native
from runtime.loaded import LoadedModel
from runtime.nn.adapters.adapter import Adapter
from runtime.nn.adapters.low_rank import HEAD, LowRanks, Rows
from runtime.nn.adapters.rows import RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.nn.attention.mla import HeadLinear
from runtime.nn.feed_forward.experts import SwitchLinear
from runtime.nn.operations import ops
from tests.support.kinds import of_each_kind, variants_later
from tests.support.low_ranks import pairs_of
from tests.support.parity import Reference
from tests.support.same_bits import at_once, differing, in_chunks, one_by_one

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


@pytest.mark.parametrize("name", variants_later(Reference.names()))
def test_packed(name: str) -> None:
    reference = Reference(name)
    with ops.using("cpu"):
        model = reference.made()
        pack(model, 8 if len(name) % 2 else 4)
        assert [*differing(model, [int(token) for token in reference.answers["ids"][:LENGTH]])] == []


@pytest.mark.parametrize("name", sorted(of_each_kind()))
def test_with_adapters(name: str) -> None:
    """Of its own, two of them, beside rows with one and with none."""
    reference = Reference(name)
    with ops.using("cpu"):
        model = reference.made()
        one, two = (Adapter(model.network, LowRanks(pairs_of(model.network, k, dora=k == 2))) for k in (1, 2))
        stacks, own = AdapterStacks([one, two]), ((one, 0.8), (two, 1.0))

        def carried(rows: int) -> RowAdapters:
            return RowAdapters(stacks, [own] if rows == 1 else [((two, 0.5),), own, ()])

        ids = [int(token) for token in reference.answers["ids"][:LENGTH]]
        assert [*differing(model, ids, carried)] == []


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_with_another_head(name: str) -> None:
    """Some of its rows, or all of it."""
    reference = Reference(name)
    with ops.using("cpu"):
        model = reference.made()
        shape = (reference.record["config"]["vocab_size"], reference.record["config"]["hidden_size"])
        where = f"{HEAD if model.network.tied_table is not None else 'lm_head'}.weight"
        rows = Rows(mx.array([3, 1]), mx.random.normal((2, shape[1])))
        for brought in (LowRanks(rows={where: rows}), LowRanks(whole={where: mx.random.normal(shape)})):
            adapter = Adapter(model.network, brought)
            stacks = AdapterStacks([adapter])

            def carried(rows: int, stacks: AdapterStacks = stacks, adapter: Adapter = adapter) -> RowAdapters:
                return RowAdapters(stacks, [((adapter, 1.0),)] * rows)

            ids = [int(token) for token in reference.answers["ids"][:LENGTH]]
            assert [*differing(model, ids, carried)] == []


@pytest.mark.parametrize("name", ["deepseek_v32", "mistral_large4_plain", "minimax_m3", "deepseek_v4_plain"])
def test_a_token_that_is_no_number_is_seen_by_all_behind_it(name: str) -> None:
    """Where queries choose what they look at, too, however the prompt is cut."""
    reference = Reference(name)
    ids = [int(token) for token in reference.answers["ids"]]
    place = ids.index(ids[11])
    with ops.using("cpu"):
        model = reference.made()
        for module in model.network.modules():
            if type(module) is nn.Embedding:
                word = (mx.arange(module.weight.shape[0]) == ids[place])[:, None]
                module.weight = mx.where(word, mx.nan, module.weight)
        for read in (one_by_one, at_once, partial(in_chunks, widths=(13,))):
            broken = np.isnan(read(model, ids)).all(axis=1)
            assert broken.tolist() == [at >= place for at in range(len(ids))]


@pytest.mark.slow
@pytest.mark.parametrize("name", Reference.names())
def test_in_float32(name: str) -> None:
    reference = Reference(name)
    with ops.using("cpu"):
        model = reference.made()
        assert [*differing(model, [int(token) for token in reference.answers["ids"]])] == []
