"""Attention by kernels: right to 1e-6 of a row's spread, the same bits however a step was put together."""

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import Chunked, Encoder, Full, Rotating
from runtime.cpu import native
from runtime.nn.attention.attend import attend, attend_over
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.step import Step

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

kernels: Any = native.kernels
FAST = [name for name in kernels.columns() if name != "plain"] or ["plain"]
HEADS, GROUPS, SIZE = 6, 2, 32
ROPE = Rope(RopeSpec(24, tuple(3.0**i for i in range(12)), 1.1))
SPECS = {
    "full": Full(GROUPS, SIZE),
    "window": Rotating(GROUPS, SIZE, 40),
    "chunk": Chunked(GROUPS, SIZE, 48),
}
FORMS = [None, "bf16", "f16", "q8", "q4"]


@pytest.fixture(autouse=True)
def _by_kernels() -> Iterator[None]:
    with ops.using("cpu"):
        yield


def normal(*shape: int, seed: int) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed))


def definition(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    seen: np.ndarray,
    added: Any,
    scale: float,
    cap: Any,
    sinks: Any,
) -> np.ndarray:
    """In float64. seen: bool, added: what scores get beside; both fit [B, H, L, K]."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    share = q.shape[1] // k.shape[1]
    scores = q @ np.repeat(k, share, 1).swapaxes(-1, -2) * scale
    scores = cap * np.tanh(scores / cap) if cap else scores
    scores = np.where(seen, scores + added, -np.inf)
    if sinks is not None:
        extra = np.broadcast_to(np.asarray(sinks, np.float64)[None, :, None, None], (*scores.shape[:3], 1))
        scores = np.concatenate([scores, extra], -1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights[..., : k.shape[2]] @ np.repeat(v, share, 1)


def close(got: mx.array, wanted: np.ndarray, bound: float = 1e-6) -> None:
    spread = wanted.max(-1, keepdims=True) - wanted.min(-1, keepdims=True)
    assert float((np.abs(np.array(got, np.float64) - wanted) / spread).max()) < bound


@pytest.mark.parametrize("column", kernels.columns())
@pytest.mark.parametrize(
    ("heads", "groups", "size", "value_size", "width", "seen"),
    [(4, 2, 16, 16, 1, 33), (6, 2, 64, 48, 1, 700), (3, 1, 24, 20, 7, 70), (2, 2, 80, 80, 130, 150)],
)
def test_arrays(
    column: str, heads: int, groups: int, size: int, value_size: int, width: int, seen: int
) -> None:
    assert kernels.use_column(column)
    q, k = normal(2, heads, width, size, seed=0), normal(2, groups, seen, size, seed=1)
    v, scale = normal(2, groups, seen, value_size, seed=2), size**-0.5
    behind = np.tri(width, seen, seen - width, dtype=bool)
    some = np.array(normal(2, 1, width, seen, seed=3)) > -1
    some[..., 0] = True
    bias, sinks = normal(1, heads, width, seen, seed=4), normal(heads, seed=5)
    cases: list[tuple[Any, np.ndarray, Any]] = [
        (None, np.ones(seen, bool), 0),
        ("causal", behind, 0),
        (mx.array(some.tolist()), some, 0),
        (bias, np.ones(seen, bool), np.array(bias, np.float64)),
    ]
    for cap, sink in [(None, None), (3.0, sinks)]:
        for mask, sees, added in cases:
            got = ops.table.attend(None, q, k, v, mask, scale=scale, softcap=cap, sinks=sink)
            close(got, definition(q, k, v, sees, added, scale, cap, sink))  # pyright: ignore


def test_a_query_that_sees_nothing_is_answered_by_zeros() -> None:
    q, mask = normal(1, 2, 3, 16, seed=0), mx.zeros((1, 1, 3, 5), mx.bool_)
    assert not mx.any(ops.table.attend(None, q, q[:, :, :1], q[:, :, :1], mask[..., :1], scale=1.0))


@pytest.mark.parametrize("column", kernels.columns())
@pytest.mark.parametrize(("width", "late"), [(2, 1), (20, 11), (130, 65), (130, 6)])
def test_what_a_query_does_not_see_may_be_no_number(column: str, width: int, late: int) -> None:
    """As of a draft that is taken back."""
    assert kernels.use_column(column)
    q, k, v = (normal(2, heads, width, 32, seed=seed) for seed, heads in enumerate((6, 2, 2)))
    is_late = mx.arange(width)[:, None] >= late
    sound = ops.table.attend(None, q, k, v, "causal", scale=0.2)
    k, v = (mx.where(is_late, mx.nan, x) for x in (k, v))
    got = ops.table.attend(None, q, k, v, "causal", scale=0.2)
    assert same(got[:, :, :late], sound[:, :, :late])
    assert mx.all(mx.isnan(got[:, :, late:]))


class Layer:
    """A layer with memory, and what goes into it: `rows` sequences of `length` tokens, all different."""

    def __init__(self, kind: str, form: str | None, *, rows: int = 1, length: int = 150) -> None:
        self.spec, self.form = SPECS[kind], form
        self.inputs = [
            tuple(
                normal(1, length, n * SIZE, seed=10 * row + i) for i, n in enumerate((HEADS, GROUPS, GROUPS))
            )
            for row in range(rows)
        ]
        self.sinks = normal(HEADS, seed=99)

    def memory(self, rows: int = 1) -> KVCache:
        return KVCache(self.spec, rows=rows, slack=4, kept_format=self.form, grain=16)

    def step(
        self, cache: KVCache, which: Sequence[int], starts: Sequence[int], counts: Sequence[int]
    ) -> mx.array:
        """Rows of the cache from 0 on read these sequences' tokens; [rows, width, heads * size]."""
        step = Step(tuple(starts), tuple(counts))

        def padded(part: int) -> mx.array:
            cut = [
                self.inputs[row][part][:, s : s + n] for row, s, n in zip(which, starts, counts, strict=True)
            ]
            return mx.concatenate([mx.pad(x, [(0, 0), (0, step.width - x.shape[1]), (0, 0)]) for x in cut])

        out = attend(
            step,
            cache,
            *(padded(part) for part in range(3)),
            scale=0.2,
            rope=ROPE,
            softcap=20.0,
            sinks=self.sinks,
            size=SIZE,
        )
        cache.commit(step, counts)
        return out

    def alone(self, row: int, cuts: Sequence[int]) -> mx.array:
        """[length, heads * size], the tokens read in steps of these widths."""
        cache, parts, start = self.memory(), [], 0
        for count in cuts:
            parts.append(self.step(cache, [row], [start], [count])[0])
            start += count
            mx.eval(parts)
        return mx.concatenate(parts)


def same(a: mx.array, b: mx.array) -> bool:
    return bool(mx.array_equal(mx.contiguous(a).view(mx.uint8), mx.contiguous(b).view(mx.uint8)))


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kind", SPECS)
def test_a_prompt_in_one_step_or_in_many(kind: str, form: str | None) -> None:
    layer = Layer(kind, form)
    whole = layer.alone(0, [150])
    for column in FAST:
        kernels.use_column(column)
        for cuts in ([1] * 150, [33, 117], [2, 3, 5, 8, 13, 21, 34, 1, 1, 62], [149, 1]):
            assert same(layer.alone(0, cuts), whole), (column, cuts)


@pytest.mark.parametrize("kind", SPECS)
def test_every_column_says_the_same(kind: str) -> None:
    layer, answers = Layer(kind, "q8", length=70), []
    for column in kernels.columns():
        kernels.use_column(column)
        answers.append(layer.alone(0, [3, 60, 1, 6]))
    assert all(same(answer, answers[0]) for answer in answers)


@pytest.mark.parametrize("form", [None, "q4"], ids=str)
@pytest.mark.parametrize("kind", SPECS)
def test_beside_other_rows(kind: str, form: str | None) -> None:
    """Rows of different lengths, whose windows lie in different slots."""
    layer = Layer(kind, form, rows=3)
    alone = [layer.alone(row, [150]) for row in range(3)]
    cache, at = layer.memory(3), [0, 0, 0]
    for counts in [(20, 61, 1), (1, 2, 3), (50, 9, 90), *[(1, 1, 1)] * 9, (7, 30, 5), (2, 2, 2)]:
        out = layer.step(cache, range(3), at, counts)
        for row, count in enumerate(counts):
            assert same(out[row, :count], alone[row][at[row] : at[row] + count]), (row, at, counts)
        at = [start + count for start, count in zip(at, counts, strict=True)]


@pytest.mark.parametrize("kind", SPECS)
def test_what_was_forgotten_leaves_no_trace(kind: str) -> None:
    layer = Layer(kind, "f16", rows=2)
    whole, cache = layer.alone(0, [150]), layer.memory()
    layer.step(cache, [0], [0], [100])
    for start in range(100, 140, 2):  # four drafted tokens, of which two are right
        step = Step((start,), (4,))
        x = [
            mx.concatenate([layer.inputs[0][i][:, start : start + 2], layer.inputs[1][i][:, :2]], 1)
            for i in range(3)
        ]
        out = attend(step, cache, *x, scale=0.2, rope=ROPE, softcap=20.0, sinks=layer.sinks, size=SIZE)
        assert same(out[0, :2], whole[start : start + 2])
        cache.commit(step, [2])


@pytest.mark.parametrize("form", [None, "q8"], ids=str)
@pytest.mark.parametrize("kind", SPECS)
def test_from_a_restored_snapshot(kind: str, form: str | None) -> None:
    layer = Layer(kind, form)
    whole, cache = layer.alone(0, [150]), layer.memory()
    layer.step(cache, [0], [0], [90])
    page = cache.snapshot(0, 0)
    mx.eval(page.arrays)
    layer.step(cache, [0], [90], [7])
    other = layer.memory(2)
    other.restore(1, [page])
    other.move(1, 0, other.row_copies(1))
    assert same(layer.step(other, [0], [90], [30])[0], whole[90:120])


@pytest.mark.parametrize("kind", SPECS)
def test_threads(kind: str) -> None:
    layer = Layer(kind, None, length=60)
    far = {
        "full": Full(GROUPS, SIZE),
        "window": Rotating(GROUPS, SIZE, 1300),
        "chunk": Chunked(GROUPS, SIZE, 2000),
    }
    cache = KVCache(far[kind], slack=4)
    step = Step((0,), (2100,))
    x = [normal(1, 2100, n * SIZE, seed=n + i) for i, n in enumerate((HEADS, GROUPS, GROUPS))]
    attend(step, cache, *x, scale=0.2, rope=ROPE, size=SIZE)
    cache.commit(step, (2100,))
    answers: list[mx.array] = []
    for threads in (1, 2, 3):
        kernels.set_threads(threads)
        step = Step((2100,), (2,))
        q, k, v = (part[:, 1:3] for part in layer.inputs[0])
        answers.append(attend(step, cache, q, k, v, scale=0.2, rope=ROPE, size=SIZE))
        mx.eval(answers)
    assert same(answers[0], answers[1])
    assert same(answers[0], answers[2])


@pytest.mark.parametrize("kind", SPECS)
def test_as_by_views(kind: str) -> None:
    """What the other columns make of the same memory."""
    for form in FORMS:
        layer = Layer(kind, form)
        got = layer.alone(0, [100, 1, 4, 45])
        with ops.using("blas"):
            wanted = layer.alone(0, [100, 1, 4, 45])
        # A key whose code is just between two may be rounded to the other one.
        near = {None: 2e-5, "q8": 0.05, "q4": 0.5}.get(form, 0.02)
        assert float(mx.abs(got - wanted).max()) < near, form


def test_a_layer_that_shares_reads_what_the_other_wrote() -> None:
    for kind in SPECS:
        layer = Layer(kind, None)
        for cuts in ([20, 130], [100, 50]):
            cache = layer.memory()
            layer.step(cache, [0], [0], cuts[:1])
            step = Step((cuts[0],), (cuts[1],))
            q, k, v = (part[:, cuts[0] :] for part in layer.inputs[0])
            own = attend(step, cache, q, k, v, scale=0.2, rope=ROPE, size=SIZE)
            by_heads = q.reshape(1, cuts[1], HEADS, SIZE).swapaxes(1, 2)
            assert same(attend_over(step, cache, by_heads, scale=0.2, rope=ROPE), own), (kind, cuts)


def test_a_source_beside_the_tokens_is_read_with_the_same_bits_by_one_token_and_by_many() -> None:
    spec, source = Encoder(GROUPS, SIZE), normal(1, GROUPS, 70, SIZE, seed=8)
    cache, queries = EncoderCache(spec), normal(1, HEADS, 30, SIZE, seed=9)
    step = Step((0,), (30,))
    cache.append(step, source, source)
    whole = attend_over(step, cache, queries, scale=0.2)
    cache.commit(step, (30,))
    for at in (0, 7, 29):
        alone = attend_over(Step((30,), (1,)), cache, queries[:, :, at : at + 1], scale=0.2)
        assert same(alone[0, 0], whole[0, at])


def test_a_bias_of_positions() -> None:
    layer, table = Layer("full", None), normal(1, HEADS, 150, 150, seed=7)

    def read(cuts: Sequence[int]) -> mx.array:
        cache, parts, start = layer.memory(), [], 0
        for count in cuts:
            step, stop = Step((start,), (count,)), start + count
            q, k, v = (part[:, start:stop] for part in layer.inputs[0])
            bias = table[:, :, start:stop]
            parts.append(
                attend(
                    step,
                    cache,
                    q,
                    k,
                    v,
                    scale=0.2,
                    bias=lambda places, asked, bias=bias: bias[
                        :, :, asked.start : asked.stop, : places.shape[-1]
                    ],
                    size=SIZE,
                )
            )
            cache.commit(step, (count,))
            start = stop
        return mx.concatenate(parts, axis=1)[0]

    whole = read([150])
    assert same(read([1, 3, 70, 76]), whole)
    with ops.using("plain"):
        assert mx.allclose(read([150]), whole, atol=1e-5)


def address(array: mx.array) -> int:
    return int(np.array(array, copy=False).__array_interface__["data"][0])


def test_memory_is_written_in_place() -> None:
    layer = Layer("full", None)
    cache = layer.memory()
    cache.reserve(150)
    mx.eval(layer.step(cache, [0], [0], [9]), cache.arrays)
    before = [address(lane) for lane in cache.arrays]
    ahead = [layer.step(cache, [0], [at], [1]) for at in range(9, 14)]  # built before the first is computed
    mx.eval(ahead, cache.arrays)
    assert [address(lane) for lane in cache.arrays] == before


def test_who_holds_a_lane_keeps_what_is_in_it() -> None:
    layer = Layer("full", None)
    cache = layer.memory()
    mx.eval(layer.step(cache, [0], [0], [9]), cache.arrays)
    held = cache.arrays
    before = [np.array(lane) for lane in held]
    mx.eval(layer.step(cache, [0], [9], [1]))
    assert all(np.array_equal(lane, kept) for lane, kept in zip(held, before, strict=True))


def test_what_is_kept_is_what_mlx_would_keep() -> None:
    x = normal(1, 9, GROUPS * SIZE, seed=1) * mx.array([1e-4, 1.0, 1e3] * 3)[None, :, None]
    x[0, 3] = 0.0
    for form in FORMS:
        caches = [KVCache(Full(GROUPS, SIZE), kept_format=form) for _ in range(2)]
        step, heads = Step((0,), (9,)), x.reshape(1, 9, GROUPS, SIZE).swapaxes(1, 2)
        attend(step, caches[0], heads, heads, heads, scale=1.0)
        caches[1].append(step, heads, heads)
        for got, wanted in zip(caches[0].arrays, caches[1].arrays, strict=True):
            assert same(got[:, :, :9], wanted[:, :, :9]), form


@pytest.mark.parametrize("traditional", [False, True])
def test_turns(traditional: bool) -> None:
    """Against float64, far out too."""
    waves = tuple(10000.0 ** (i / 16) for i in range(16))
    rope = Rope(RopeSpec(32, waves, traditional=traditional))
    for start in (0, 77, 9_999_990):
        x, cache = normal(1, 1, 4, 32, seed=1), KVCache(Full(1, 32))
        step = Step((start,), (4,))
        cache._place(0, start, start)  # pyright: ignore[reportPrivateUsage]
        attend(step, cache, x, x, x, scale=1.0, rope=rope)
        frequencies = 1 / np.array(waves)
        angles = np.arange(start, start + 4)[:, None] * frequencies
        cos, sin, y = np.cos(angles), np.sin(angles), np.array(x[0, 0], np.float64)
        a, b = (y[:, 0::2], y[:, 1::2]) if traditional else (y[:, :16], y[:, 16:])
        turned = [a * cos - b * sin, b * cos + a * sin]
        wanted = np.stack(turned, -1).reshape(4, 32) if traditional else np.concatenate(turned, -1)
        assert np.abs(np.array(cache.arrays[0][0, 0, :4]) - wanted).max() < 5e-7


BAD: list[tuple[str, dict[str, Any]]] = [
    ("queries", {"queries": normal(1, 2, 100, seed=0)}),
    ("slots", {"starts": [31]}),
    ("a row starts", {"bases": [5]}),
    ("lanes", {"lanes": [normal(1, 2, 32, 16, seed=0)] * 2}),
    ("one array per part", {"lanes": [normal(1, 2, 32, 32, seed=0)]}),
    ("mask", {"mask": mx.zeros((1, 1, 2, 1), mx.bool_)}),
    ("sink", {"sinks": mx.zeros((5,))}),
    ("table", {"table": mx.zeros((1, 2, 34))}),
    ("float32", {"keys": mx.zeros((1, 2, 64), mx.bfloat16)}),
    ("values", {"values": None}),
]


@pytest.mark.parametrize(("says", "wrong"), BAD, ids=[says for says, _ in BAD])
def test_what_does_not_fit_is_refused_before_anything_is_computed(says: str, wrong: dict[str, Any]) -> None:
    by = kernels.Attention(4, 2, (0, 32, 0), (0, 32, 0), 32, 1.0, 0.0, None, None, 0, False)
    right = {
        "queries": mx.zeros((1, 2, 128)),
        "keys": mx.zeros((1, 2, 64)),
        "values": mx.zeros((1, 2, 64)),
        "table": None,
        "mask": None,
        "sinks": None,
        "lanes": [mx.zeros((1, 2, 32, 32))] * 2,
        "starts": [0],
        "counts": [2],
        "bases": [0],
        "first": 0,
        "beside": False,
    }
    assert len(by.remember(**right)) == 3
    with pytest.raises(ValueError, match=says):
        by.remember(**{**right, **wrong})
