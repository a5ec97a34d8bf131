"""Rows of one step with different adapters, several, or none answer as models with those fused into their
weights.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cpu import native
from runtime.errors import WeightMismatch
from runtime.loaded import LoadedModel
from runtime.nn.adapters.adapter import Adapter, kind_of
from runtime.nn.adapters.fusion import floats, fused
from runtime.nn.adapters.low_rank import HEAD, LowRank, LowRanks, Rows
from runtime.nn.adapters.rows import RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.nn.operations import gpu, ops
from runtime.step import Inputs, Step
from runtime.trunks.pruned import NEVER
from tests.support.low_ranks import pairs_of
from tests.support.parity import Reference

FEW = ["llama", "gemma2", "qwen3_moe", "qwen3_5", "gpt2", "deepseek_v3", "mamba", "t5"]
MORE = [name for name in Reference.names() if name not in FEW]


@pytest.fixture(autouse=True)
def in_float32() -> Generator[None]:
    """Packed networks are held against plain ones, whose activations no kernel rounds."""
    if native.kernels is None:
        yield
        return
    before = native.kernels.activations()
    native.kernels.use_activations("f32")
    yield
    native.kernels.use_activations(before)


@contextmanager
def fusing(network: Any, sets: list[tuple[dict[str, LowRank], float]]) -> Generator[None]:
    """A network of floats with these fused into its weights."""
    named = {name for pairs, _ in sets for name in pairs}
    modules = {name: module for name, module in network.named_modules() if name in named}
    before = {name: dict(module) for name, module in modules.items()}
    for name, module in modules.items():
        table, base = kind_of(module) == "table", module.weight
        for pairs, scale in sets:
            pair = pairs[name]
            module.weight = module.weight + fused(base, pair, scale=scale, table=table) - base
            if pair.bias is not None:
                module.bias = module.get("bias", 0) + pair.bias * (pair.scale * scale)
    yield
    for name, module in modules.items():
        for leaf in [leaf for leaf in module if leaf not in before[name]]:
            del module[leaf]
        for leaf, value in before[name].items():
            module[leaf] = value


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


def check(family: str, folder: Path, *, packed: bool, dora: bool) -> None:
    reference = Reference(family)
    ids = reference.answers["ids"].tolist()
    rows = [ids[:9], ids[:7], ids[2:9], ids[:9]]
    shared, plain = (reference.load(folder / str(i)) for i in range(2))
    if packed:
        _pack(shared.network)
        _unpack_into(plain.network, shared.network)
    pairs = [pairs_of(shared.network, seed, dora) for seed in (1, 2)]
    one, two = (Adapter(shared.network, LowRanks(its)) for its in pairs)
    each = [((one, 1.0),), (), ((two, 1.0),), ((two, 0.5), (one, -0.3))]
    mine = RowAdapters(AdapterStacks([one, two]), each)
    got, base = logits(shared, rows, mine), logits(shared, rows, None)
    for row, sets in enumerate(
        [[(pairs[0], 1.0)], [], [(pairs[1], 1.0)], [(pairs[1], 0.5), (pairs[0], -0.3)]]
    ):
        with fusing(plain.network, sets):
            wanted = logits(plain, rows, None)[row]
        assert np.abs(got[row] - wanted).max() < 2e-3 * wanted[wanted > NEVER].std()
    assert np.abs(got[0] - base[0]).max() > 0.05 * base[0][base[0] > NEVER].std()


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("family", FEW)
def test_each_row_answers_as_if_its_adapters_were_fused(family: str, dora: bool, tmp_path: Path) -> None:
    check(family, tmp_path, packed=dora, dora=dora)


@pytest.mark.slow
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("family", MORE)
def test_so_it_is_in_every_family(family: str, dora: bool, tmp_path: Path) -> None:
    check(family, tmp_path, packed=False, dora=dora)


def _pack(network: Any) -> None:
    def fits(_: str, module: Any) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0

    nn.quantize(getattr(network, "plain", network), 32, 8, class_predicate=fits)


def _unpack_into(network: Any, packed: Any) -> None:
    """What packed matrices stand for, in the places of plain ones."""
    modules: dict[str, Any] = dict(packed.named_modules())
    for name, module in network.named_modules():
        if "scales" in modules[name]:
            module.weight = floats(modules[name])


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return Reference("gemma2").load(tmp_path_factory.mktemp("tied"))


def on(model: LoadedModel, brought: LowRanks, hidden: mx.array) -> tuple[mx.array, mx.array]:
    """Logits of hidden states [2, L, D] whose first row has the adapter at half its scale, and of none."""
    adapter = Adapter(model.network, brought)
    adapters = RowAdapters(AdapterStacks([adapter]), [((adapter, 0.5),), ()])
    step = Step((0, 0), (hidden.shape[1],) * 2, adapters=adapters)
    return model.network.logits(hidden, step), model.network.logits(hidden)


def test_a_tied_head_and_its_table_have_adapters_of_their_own(tied: LoadedModel) -> None:
    table, hidden = tied.network.tied_table, mx.random.normal((2, 3, tied.described.config.hidden_size))
    tokens, width = table.weight.shape
    down, up = mx.random.normal((width, 2)), mx.random.normal((2, tokens))
    got, base = on(tied, LowRanks({HEAD: LowRank(down, up)}), hidden)
    # The soft cap of this family lies behind the product.
    cap = tied.described.config.logit_softcap
    wanted = mx.tanh((mx.arctanh(base[0] / cap) * cap + (hidden[0] @ down @ up) * 0.5) / cap) * cap
    np.testing.assert_allclose(np.array(got[0]), np.array(wanted), atol=1e-3)
    assert mx.array_equal(got[1], base[1])
    got, base = on(tied, LowRanks({"model.embed_tokens": LowRank(up.T, down.T)}), hidden)
    assert mx.array_equal(got, base)


def test_whole_weights_and_rows_stand_in_the_place_of_the_bases(tied: LoadedModel) -> None:
    network, ids = tied.network, mx.array([[1, 2, 3], [1, 2, 3]])
    table = network.tied_table.weight
    other = table + mx.random.normal(table.shape)
    rows = Rows(mx.array([3, 1]), mx.random.normal((2, table.shape[1])))
    for brought, changed in (
        (LowRanks(whole={"model.embed_tokens.weight": other}), other[mx.array([1, 2, 3])]),
        (
            LowRanks(rows={"model.embed_tokens.weight": rows}),
            mx.stack([rows.values[1], table[2], rows.values[0]]),
        ),
    ):
        adapter = Adapter(network, brought)
        adapters = RowAdapters(AdapterStacks([adapter]), [((adapter, 1.0),), ()])
        step = Step((0, 0), (3, 3), inputs=Inputs(ids), adapters=adapters)
        got, base = network.embed(ids, step), network.embed(ids)
        scale = (base / table[ids])[0, 0, 0]
        np.testing.assert_allclose(np.array(got[0]), np.array(changed * scale), rtol=1e-4, atol=1e-5)
        assert mx.array_equal(got[1], base[1])
    hidden = mx.random.normal((2, 2, table.shape[1]))
    for brought, weight in (
        (LowRanks(whole={f"{HEAD}.weight": other}), other),
        (LowRanks(rows={f"{HEAD}.weight": rows}), mx.array(np.array(table))),
    ):
        if brought.rows:
            weight[rows.ids] = rows.values
        adapter = Adapter(network, brought)
        adapters = RowAdapters(AdapterStacks([adapter]), [((adapter, 1.0),), ()])
        got = network.logits(hidden, Step((0, 0), (2, 2), adapters=adapters))
        cap = tied.described.config.logit_softcap
        np.testing.assert_allclose(
            np.array(got[0]), np.array(mx.tanh(hidden[0] @ weight.T / cap) * cap), atol=1e-4
        )
        assert mx.array_equal(got[1], network.logits(hidden)[1])


@pytest.mark.parametrize(
    ("brought", "said"),
    [
        (LowRanks({"model.layers.0.nothing": LowRank(mx.zeros((4, 2)), mx.zeros((2, 4)))}), "belongs to no"),
        (
            LowRanks({"model.layers.0.mlp.up_proj": LowRank(mx.zeros((4, 2)), mx.zeros((2, 4)))}),
            "has shape 4×2",
        ),
        (
            LowRanks({"model.norm": LowRank(mx.zeros((4, 2)), mx.zeros((2, 4)))}),
            "takes a pair.*--fuse-adapters",
        ),
        (LowRanks(whole={"model.norm.weight": mx.zeros((64,))}), "cannot differ.*--fuse-adapters"),
        (LowRanks(whole={"model.embed_tokens.weight": mx.zeros((3, 4))}), "has shape 3×4"),
        (
            LowRanks(rows={"model.embed_tokens.weight": Rows(mx.array([10**6]), mx.zeros((1, 64)))}),
            "do not fit",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(brought: LowRanks, said: str, tied: LoadedModel) -> None:
    with pytest.raises(WeightMismatch, match=said):
        Adapter(tied.network, brought)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "deepseek_v3"])
def test_a_row_has_the_same_bits_in_any_company(family: str, tmp_path: Path) -> None:
    model = Reference(family).load(tmp_path)
    adapters = [Adapter(model.network, LowRanks(pairs_of(model.network, seed, seed == 2))) for seed in (1, 2)]
    stacks, (one, two) = AdapterStacks(adapters), adapters
    ids = Reference(family).answers["ids"].tolist()[:4]
    sets = [((one, 1.0),), (), ((two, 0.5), (one, 1.0)), ((two, 1.0),)]
    for its in sets:
        alone = logits(model, [ids] * 4, RowAdapters(stacks, [its] * 4) if its else None)[0]
        company = [its, sets[2], (), sets[0]]
        np.testing.assert_array_equal(logits(model, [ids] * 4, RowAdapters(stacks, company))[0], alone)


@pytest.mark.skipif(native.kernels is None, reason=f"there are no kernels: {native.status.reason}")
@pytest.mark.parametrize("family", ["llama", "llama_biases_tied"])
def test_whole_weights_in_memory_change_no_bit_of_other_rows(family: str, tmp_path: Path) -> None:
    """Nor do pairs in memory change what whole weights answer, and no cut of a prompt changes either."""
    model = Reference(family).load(tmp_path)
    network, (vocabulary, width) = model.network, model.network.model.embed_tokens.weight.shape
    random = np.random.default_rng(5)

    def array(*shape: int) -> mx.array:
        return mx.array(random.normal(size=shape).astype(np.float32) * 0.2)

    table, head = "model.embed_tokens", HEAD
    both = {
        name: LowRank(array(*shape[:2]), array(*shape[1:]), 0.7)
        for name, shape in ((table, (vocabulary, 3, width)), (head, (width, 3, vocabulary)))
    }
    whole = {f"{name}.weight": array(vocabulary, width) for name in (table, head)}
    rows = {f"{name}.weight": Rows(mx.array([3, 9]), array(2, width)) for name in (table, head)}
    brought = [LowRanks(both), LowRanks(whole=whole), LowRanks(rows=rows)]
    ids = [3, 9, 5, 7]
    alone = []
    for one in brought:
        its = Adapter(network, one)
        alone.append(logits(model, [ids] * 4, RowAdapters(AdapterStacks([its]), [((its, 1.0),)] * 4))[0])
    adapters = [Adapter(network, one) for one in brought]
    sets = [((one, 1.0),) for one in adapters]
    for cut in (ids, ids[:3], ids[:2]):
        got = logits(model, [cut] * 4, RowAdapters(AdapterStacks(adapters), [*sets, ()]))
        for answer, wanted in zip(got, alone, strict=False):
            np.testing.assert_array_equal(answer, wanted[: len(cut)])


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_pairs_are_picked_without_a_gathered_product_on_cuda(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Reference(family).load(tmp_path)
    adapters = [Adapter(model.network, LowRanks(pairs_of(model.network, seed, seed == 2))) for seed in (1, 2)]
    stacks, ids = AdapterStacks(adapters), Reference(family).answers["ids"].tolist()[:4]
    rows = [((adapters[0], 1.0),), ((adapters[1], 0.5),)]
    with ops.using("gpu"):
        for its in (rows, rows[:1] * 2):
            wanted = logits(model, [ids] * 2, RowAdapters(stacks, its))
            with monkeypatch.context() as there:
                there.setattr(gpu, "CUDA", True)
                there.setattr(mx, "gather_mm", _no_gathering if family == "llama" else mx.gather_mm)
                got = logits(model, [ids] * 2, RowAdapters(stacks, its))
            np.testing.assert_allclose(got, wanted, atol=1e-4)


def _no_gathering(*_: Any, **__: Any) -> mx.array:
    raise AssertionError("CUDA would read where it must not")
