"""Rows of one step with different adapters, or none, answer as models with those fused into their weights."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.errors import WeightMismatch
from runtime.loaded import LoadedModel
from runtime.nn.adapters import Adapter, RowAdapters
from runtime.nn.low_rank import LowRank
from runtime.nn.moe import SwitchLinear
from runtime.step import Inputs, Step
from tests.support.parity import Reference

FAMILIES = ["llama", "gemma2", "qwen3_moe", "qwen3_5", "gpt2", "deepseek_v3", "mamba"]
KINDS = (nn.Linear, nn.Embedding, SwitchLinear)
RANK, SCALE = 3, 0.7


def pairs_of(network: nn.Module, seed: int) -> dict[str, LowRank]:
    """A pair for every layer but tied tables, where fusing would change the head too."""
    mx.random.seed(seed)
    found: dict[str, LowRank] = {}
    for name, module in network.named_modules():
        if isinstance(module, KINDS) and not (isinstance(module, nn.Embedding) and "lm_head" not in network):
            *stack, out, width = module.weight.shape
            first, last = (out, width) if isinstance(module, nn.Embedding) else (width, out)
            down, up = mx.random.normal((*stack, first, RANK)), mx.random.normal((*stack, RANK, last))
            found[name] = LowRank(down * 0.2, up * 0.2, SCALE)
    return found


def fuse(network: nn.Module, pairs: dict[str, LowRank]) -> None:
    modules: dict[str, Any] = dict(network.named_modules())
    for name, pair in pairs.items():
        module, more = modules[name], pair.scale * (pair.down @ pair.up)
        module.weight = module.weight + (more if isinstance(module, nn.Embedding) else more.swapaxes(-1, -2))


def logits(model: LoadedModel, rows: list[list[int]], adapters: RowAdapters | None) -> list[np.ndarray]:
    """Of ragged rows read in two steps, float32 [T, V] each."""
    memory = build_memory(model.described.layout, dtype=model.dtype)
    memory.resize(len(rows))
    out: list[list[np.ndarray]] = [[] for _ in rows]
    starts = (0,) * len(rows)
    for counts in (tuple(len(row) - 1 for row in rows), (1,) * len(rows)):
        width = max(counts)
        ids = [
            [*row[start : start + count], *[0] * (width - count)]
            for row, start, count in zip(rows, starts, counts, strict=True)
        ]
        step = Step(starts, counts, inputs=Inputs(mx.array(ids, dtype=mx.int32)), adapters=adapters)
        memory.prepare(step)
        answers = model.network.logits(model.network(step, memory), step)
        memory.commit(step, counts)
        for row, count in enumerate(counts):
            out[row].append(np.array(answers[row, :count]))
        starts = tuple(start + count for start, count in zip(starts, counts, strict=True))
    return [np.concatenate(parts) for parts in out]


@pytest.mark.parametrize("packed", [False, True], ids=["float", "packed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_row_answers_as_if_its_adapter_were_fused(family: str, packed: bool, tmp_path: Path) -> None:
    reference = Reference(family)
    ids = reference.answers["ids"].tolist()
    rows = [ids[:9], ids[:7], ids[2:9], ids[:9]]
    models = [reference.load(tmp_path / str(i)) for i in range(3)]
    shared, sets = models[0], [pairs_of(models[0].network, seed) for seed in (1, 2)]
    if packed:
        for model in models:
            _pack(model.network)
    one, two = (Adapter(shared.network, pairs) for pairs in sets)
    got = logits(shared, rows, RowAdapters([one, None, two, one]))
    plain = logits(shared, rows, None)
    for model, pairs in zip(models[1:], sets, strict=True):
        _unpack(model.network)
        fuse(model.network, pairs)
    wanted = [logits(model, rows, None) for model in models[1:]]
    for row, answer in ((0, wanted[0][0]), (1, plain[1]), (2, wanted[1][2]), (3, wanted[0][3])):
        assert np.abs(got[row] - answer).max() < 2e-3 * answer.std()
    assert np.abs(got[0] - plain[0]).max() > 0.05 * plain[0].std()


def _pack(network: nn.Module) -> None:
    def fits(_: str, module: Any) -> bool:
        return type(module) is nn.Linear and module.weight.shape[1] % 32 == 0

    nn.quantize(network, 32, 8, class_predicate=fits)


def _unpack(network: nn.Module) -> None:
    """What packed matrices stand for, in plain ones."""
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.QuantizedLinear):
            weight = mx.dequantize(
                module.weight, module.scales, module.biases, module.group_size, module.bits, mode=module.mode
            )
            plain = nn.Linear(weight.shape[1], weight.shape[0], "bias" in module)
            plain.weight = weight
            if "bias" in module:
                plain.bias = module.bias
            holder: Any = network
            *parents, last = name.split(".")
            for part in parents:
                holder = holder[int(part)] if part.isdigit() else holder[part]
            holder[last] = plain


def test_a_name_that_the_network_lacks_is_refused(tmp_path: Path) -> None:
    model = Reference("llama").load(tmp_path)
    pair = LowRank(mx.zeros((4, 2)), mx.zeros((2, 4)))
    with pytest.raises(WeightMismatch, match=r"model\.layers\.0\.nothing belongs to no module"):
        Adapter(model.network, {"model.layers.0.nothing": pair})
