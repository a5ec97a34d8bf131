"""An attention sublayer in one node has the bits of the same steps in nodes of their own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.layout import Full, Rotating
from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cpu.composed import Composed, by_name
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.attention.gated_attention import GatedAttention
from runtime.nn.attention.self_attention import Attention, HeadNormAttention, SelfAttention, WideNormAttention
from runtime.nn.norm import LayerNorm, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.operations.plain import ACTIVATIONS
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.sublayer import added
from runtime.step import Step
from tests.runtime.cpu.native.rows import bits, computing

CPU = ops.COLUMNS["cpu"]
APART = ops.changed(CPU, attention=Composed(by_name(CPU, ACTIVATIONS)).attention)


@dataclass(frozen=True)
class Shape:
    hidden_size: int = 64
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32


class Sinking(SelfAttention):
    def __init__(self, shape: Shape, rope: Rope) -> None:
        super().__init__(shape, rope)
        self.sinks = mx.zeros((shape.heads,))


ROPE = Rope(RopeSpec(24, tuple(3.0**i for i in range(12)), 1.1))
KINDS: dict[str, Callable[[], Attention]] = {
    "apart": lambda: SelfAttention(Shape(), ROPE, qkv_bias=True, softcap=20.0),
    "fused": lambda: FusedAttention(Shape(), ROPE),
    "normed": lambda: HeadNormAttention(Shape(), None, lambda _heads: RMSNorm(32)),
    "normed together": lambda: WideNormAttention(Shape(), ROPE, 1e-5),
    "with sinks": lambda: Sinking(Shape(), ROPE),
    "gated": lambda: GatedAttention(Shape(), ROPE, lambda _heads: RMSNorm(32), bias=True),
}


@pytest.fixture(autouse=True)
def _by_kernels() -> Iterator[None]:
    with ops.using("cpu"):
        yield


def packed(module: Any, seed: int = 0) -> Any:
    """The module with weights that nobody has chosen, its matrices packed."""
    for i, (name, array) in enumerate(nn.utils.tree_flatten(module.parameters())):
        given = mx.random.normal(array.shape, key=mx.random.key(seed + i)) * 0.3
        module.load_weights([(name, given)], strict=False)
    nn.quantize(module, 32, 4)
    return module


def memory(spec: Full | Rotating, form: str | None = None) -> KVCache:
    return KVCache(spec, rows=3, kept_format=form)


def read(block: Any, cache: KVCache, norm: Any, after: Any, chunks: list[tuple[int, ...]]) -> np.ndarray:
    """What it gives for each token of three rows, which are read in these chunks."""
    given, starts = mx.random.normal((3, 64, 64), key=mx.random.key(9)), [0, 0, 0]
    made: list[list[np.ndarray]] = [[], [], []]
    for counts in chunks:
        step = Step(tuple(starts), counts)
        x = mx.stack([given[b, start : start + step.width] for b, start in enumerate(starts)])
        y = added(x, block, step, cache, norm=norm, after=after)
        cache.commit(step, counts)
        for b, count in enumerate(counts):
            made[b].append(bits(y[b, :count]))
            starts[b] += count
    return np.concatenate([np.concatenate(its) for its in made])


CHUNKS = [(9, 4, 7), (1, 1, 1), (1, 2, 1), (30, 34, 32)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "after"), [(RMSNorm, None), (LayerNorm, RMSNorm), (None, RMSNorm)])
@pytest.mark.parametrize("form", [None, "q8"])
def test_as_its_steps(kind: str, before: Any, after: Any, form: str | None) -> None:
    block = packed(KINDS[kind]())
    norms = [None if made is None else packed(made(64), 50) for made in (before, after)]
    for spec in (Full(2, 32), Rotating(2, 32, 8)):
        with ops.using(APART):
            wanted = read(block, memory(spec, form), *norms, CHUNKS)
        for threads in (1, 2):
            with computing(native.kernels.column(), threads):
                assert np.array_equal(read(block, memory(spec, form), *norms, CHUNKS), wanted)


def test_it_is_one_node(tmp_path: Any) -> None:
    block, norm = packed(KINDS["normed"]()), packed(RMSNorm(64))
    mx.eval(block.parameters(), norm.parameters())
    x, cache = mx.ones((3, 1, 64)), memory(Full(2, 32))
    mx.eval(x)
    y = added(x, block, Step((0,) * 3, (1,) * 3), cache, norm=norm)
    path = tmp_path / "graph.dot"
    mx.export_to_dot(str(path), y)
    assert path.read_text().count("Modelkit") == 1
    assert path.read_text().count("ModelkitSublayers") == 1


@pytest.mark.parametrize("name", ["q_proj", "q_norm", "o_proj"])
def test_a_weight_that_is_replaced_is_noticed(name: str) -> None:
    block = packed(KINDS["normed"]())
    whole = [(5, 5, 5)]
    before = read(block, memory(Full(2, 32)), None, None, whole)
    module = getattr(block, name)
    part = "scales" if "scales" in module else "weight"
    module[part] = module[part] * 2
    now = read(block, memory(Full(2, 32)), None, None, whole)
    assert not np.array_equal(now, before)
    with ops.using(APART):
        assert np.array_equal(now, read(block, memory(Full(2, 32)), None, None, whole))
    cache = memory(Full(2, 32))  # and by who has seen the one before
    assert np.array_equal(read(block, cache, None, None, whole), now)
    module[part][...] = module[part] / 2
    cache.clear(0), cache.clear(1), cache.clear(2)
    assert np.array_equal(read(block, cache, None, None, whole), before)


def test_weights_that_are_not_computed_yet() -> None:
    block = packed(KINDS["apart"]())
    wanted = read(block, memory(Full(2, 32)), None, None, CHUNKS)
    block = packed(KINDS["apart"]())  # lazy again
    for module in (block.q_proj, block.o_proj):
        module.scales = mx.concatenate([module.scales[:, :1], module.scales[:, 1:]], axis=1) * 1
    assert np.array_equal(read(block, memory(Full(2, 32)), None, None, CHUNKS), wanted)


def test_one_that_overrides_a_step_is_computed_by_its_steps() -> None:
    class Doubled(SelfAttention):
        def flat(self, x: mx.array, step: Step) -> Any:
            queries, keys, values = super().flat(x, step)
            return queries, keys, values * 2

    block, x, step = packed(Doubled(Shape(), ROPE)), mx.ones((1, 3, 64)), Step((0,), (3,))
    wanted = x + block(x, step, memory(Full(2, 32)))
    assert np.array_equal(bits(added(x, block, step, memory(Full(2, 32)))), bits(wanted))


def test_an_array_that_others_hold_is_not_overwritten() -> None:
    block, x = packed(KINDS["apart"]()), mx.random.normal((1, 3, 64), key=mx.random.key(1))
    before = bits(x).copy()
    mx.eval(added(x, block, Step((0,), (3,)), memory(Full(2, 32))))
    assert np.array_equal(bits(x), before)


def test_wrong_shapes_are_refused() -> None:
    kernels = native.kernels
    form = (0, 32, 0)
    attend = kernels.Attention(6, 2, form, form, 32, 1.0, 0.0, None, None, 0, False)

    def matrix(rows: int, columns: int) -> Any:
        return kernels.Matrix(mx.zeros((rows, columns)), None, None, None)

    q, kv, close = matrix(192, 64), matrix(64, 64), matrix(64, 192)
    norm = kernels.Norm(False, mx.ones((64,)), None, 1e-5)
    plain = None, False, False, False  # sinks, gated, together, turned
    wide = kernels.Norm(False, mx.ones((192,)), None, 1e-5)
    few, each = (kernels.Norm(True, mx.ones((heads, 32)), None, 1e-5) for heads in (4, 6))

    def attention(
        opening: Any, by_query: Any, by_key: Any, how: Any, closing: Any, *, reads: bool = False
    ) -> Any:
        sinks, gated, together, turned = how
        heads = kernels.Heads(by_query, by_key, None, together, turned, gated)
        return kernels.attention(None, opening, heads, attend, sinks, reads, closing, None)

    for opening, by_query, by_key, rest, closing in (
        ([q], None, None, plain, close),
        ([q, matrix(96, 64)], None, None, plain, close),
        ([q, kv, kv], None, norm, (None, False, True, True), close),
        ([q, kv, matrix(96, 64)], None, None, plain, close),
        ([matrix(192, 32), kv, kv], None, None, plain, close),
        ([q, kv, kv], norm, norm, plain, close),
        ([matrix(320, 64)], kernels.Norm(False, None, None, 1e-5), None, plain, close),
        ([q, kv, kv], None, None, (mx.zeros((5,)), False, False, False), close),
        ([q, kv, kv], None, None, (None, True, False, False), close),
        ([q, kv, kv], wide, None, plain, close),
        ([matrix(384, 64), kv, kv], wide, None, (None, True, True, False), close),
        ([q, kv, kv], None, None, plain, matrix(64, 64)),
        ([q, kv, kv], few, None, plain, close),
        ([q, kv, kv], each, None, (None, False, False, True), close),
    ):
        with pytest.raises(ValueError, match=r"must|matri|wide|gates|one weight|before they turn"):
            attention(opening, by_query, by_key, rest, closing)
    one_by_one = kernels.Heads(None, None, None, False, False, False, by_head=True)
    with pytest.raises(ValueError, match="heads one after the other"):
        kernels.attention(None, [matrix(320, 64)], one_by_one, attend, None, False, close, None)
    with pytest.raises(ValueError, match="queries alone"):
        attention([q, kv, kv], None, None, plain, close, reads=True)
    for gate, gated in ((matrix(5, 64), False), (matrix(6, 32), False), (matrix(6, 64), True)):
        first = matrix(384, 64) if gated else q
        heads = kernels.Heads(None, None, None, False, False, gated)
        with pytest.raises(ValueError, match=r"single one|one gate"):
            kernels.attention(None, [first, kv, kv], heads, attend, None, False, close, None, gate)
    reading = kernels.Chain([attention([q], None, None, plain, close, reads=True)])
    with pytest.raises(ValueError, match="behind who writes"):
        reading(mx.zeros((1, 1, 64)), [0], [1], 0, [(None, None, 0)])
    part = attention([q, kv, kv], None, None, plain, close)
    chain = kernels.Chain([part])
    lanes = [mx.zeros((1, 2, 16, 32))] * 2
    for x in (
        mx.zeros((1, 1, 32)),
        mx.zeros((1, 64)),
        mx.zeros((2, 1, 64)),
        mx.zeros((1, 1, 64), mx.float16),
    ):
        with pytest.raises(ValueError, match=r"must|lanes|each row"):
            chain(x, [0], [1], 0, [(None, None, lanes, [0], False)])
