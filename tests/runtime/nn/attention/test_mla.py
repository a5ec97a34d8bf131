"""Latent attention: with keys made and without, packed and not, indexed and not, the answer is one."""

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from runtime.cache.build import build_memory
from runtime.nn.attention import indexer
from runtime.nn.attention.indexer import IndexShape
from runtime.nn.attention.mla import HeadLinear, LatentAttention, LatentShape
from runtime.nn.operations import plain
from runtime.nn.operations.plain import causal_mask
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.step import Step
from runtime.tensors.latent_heads import split_latent_heads

SHAPE = LatentShape(
    hidden=32, heads=4, query_rank=24, rank=32, content=16, position=8, value=24, scale=24**-0.5
)
TURN = Rope(RopeSpec(8, (1.0, 10.0, 100.0, 1000.0), traditional=True))
HALVES = Rope(RopeSpec(8, (1.0, 10.0, 100.0, 1000.0)))


def attention(shape: LatentShape = SHAPE) -> LatentAttention:
    mx.random.seed(11)
    made = LatentAttention(shape, TURN, HALVES)
    for _, module in made.named_modules():
        for name, array in module.items():
            if isinstance(array, mx.array):
                module[name] = mx.random.normal(array.shape) * array.shape[-1] ** -0.5
    return made


def run(made: LatentAttention, shape: LatentShape, x: mx.array, cuts: list[int]) -> mx.array:
    memory, at, out = build_memory([shape.memory]), 0, []
    for width in cuts:
        step = Step((at,), (width,))
        memory.prepare(step)
        out.append(made(x[:, at : at + width], step, memory[0]))
        memory.commit(step, step.counts)
        at += width
    return mx.concatenate(out, axis=1)


@pytest.mark.parametrize(
    "mask", [None, "causal", causal_mask(6, 20)[None, None]], ids=["none", "causal", "array"]
)
def test_absorbed_equals_expanded(mask: Any) -> None:
    made = attention()
    content, position = mx.random.normal((2, 4, 6, 16)), mx.random.normal((2, 4, 6, 8))
    seen = mx.random.normal((2, 1, 20, 40))
    short = made.absorbed(content, position, seen, mask)
    long = made.expanded(content, position, seen, mask)
    assert float(mx.abs(short - long).max()) < 1e-5


def test_expanding_pays_for_wide_steps_only() -> None:
    published = replace(SHAPE, rank=512, content=128, position=64, value=128)
    assert not published.expands(1)
    assert not published.expands(100)
    assert published.expands(512)


def test_memory_holds_one_latent_per_token() -> None:
    assert (SHAPE.memory.kv_heads, SHAPE.memory.head_dim, SHAPE.memory.value_dim) == (1, 40, 0)


@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 8, 32), ("mxfp8", 8, 32)])
def test_packed_heads_go_both_ways(mode: str, bits: int, group: int) -> None:
    plain = HeadLinear(3, 16, 64)
    plain.weight = mx.random.normal((3, 16, 64))
    packed = plain.to_quantized(group, bits, mode=mode)
    plain.weight = mx.dequantize(packed.weight, packed.scales, packed.get("biases"), group, bits, mode)
    assert packed.to_plain().weight.shape == plain.weight.shape
    x, y = mx.random.normal((2, 3, 5, 64)), mx.random.normal((2, 3, 5, 16))
    assert float(mx.abs(packed(x) - plain(x)).max()) < 1e-3  # rows meet packed integers as 16-bit ones
    assert float(mx.abs(packed.back(y) - plain.back(y)).max()) < 1e-4


def test_rows_of_kv_b_proj_are_dealt_to_keys_and_values_packed_or_not() -> None:
    weight = mx.random.normal((4 * 40, 32))
    codes, scales, biases = mx.quantize(weight, 32, 8)
    triplet = {"a.kv_b_proj.weight": codes, "a.kv_b_proj.scales": scales, "a.kv_b_proj.biases": biases}
    packed = split_latent_heads(triplet, SHAPE)
    plain = split_latent_heads({"a.kv_b_proj.weight": mx.dequantize(codes, scales, biases, 32, 8)}, SHAPE)
    for name, shape in (("k_b_proj", (4, 16, 32)), ("v_b_proj", (4, 24, 32))):
        w, s, b = (packed[f"a.{name}.{leaf}"] for leaf in ("weight", "scales", "biases"))
        assert plain[f"a.{name}.weight"].shape == shape
        assert mx.array_equal(mx.dequantize(w, s, b, 32, 8), plain[f"a.{name}.weight"])


@pytest.mark.parametrize("packed", [False, True])
def test_heads_split_by_mlx_are_turned(packed: bool) -> None:
    shape = replace(SHAPE, content=32)
    stored = mx.random.normal((4, 32, 32))
    tensors = {"a.embed_q.weight": stored, "a.unembed_out.weight": mx.zeros((4, 24, 32))}
    if packed:
        codes, scales, biases = mx.quantize(stored, 32, 8)
        stored = mx.dequantize(codes, scales, biases, 32, 8)
        tensors |= {"a.embed_q.weight": codes, "a.embed_q.scales": scales, "a.embed_q.biases": biases}
    split = split_latent_heads(tensors, shape)
    assert sorted(split) == ["a.k_b_proj.weight", "a.v_b_proj.weight"]
    assert mx.array_equal(split["a.k_b_proj.weight"], stored.swapaxes(1, 2))


INDEXED = replace(SHAPE, index=IndexShape(heads=6, size=16, chosen=5))


@pytest.mark.parametrize("cuts", [[1] * 17, [17], [3, 1, 9, 4]], ids=str)
def test_an_index_chooses_alike_however_the_prompt_is_cut(cuts: list[int]) -> None:
    made, x = attention(INDEXED), mx.random.normal((1, 17, 32))
    whole = run(made, INDEXED, x, [4, 13])
    assert float(mx.abs(run(made, INDEXED, x, cuts) - whole).max()) < 1e-5


def test_an_index_of_all_tokens_changes_nothing() -> None:
    wide = replace(INDEXED, index=IndexShape(heads=6, size=16, chosen=17))
    x = mx.random.normal((1, 17, 32))
    indexed, plain = attention(wide), attention(SHAPE)
    own: list[tuple[str, mx.array]] = tree_flatten(indexed.parameters())  # pyright: ignore[reportAssignmentType] -- pairs
    plain.load_weights([(name, array) for name, array in own if not name.startswith("indexer.")])
    difference = run(indexed, wide, x, [17]) - run(plain, SHAPE, x, [17])
    assert float(mx.abs(difference).max()) < 1e-5


def test_a_query_sees_the_best_of_the_index_and_no_others() -> None:
    made = attention(INDEXED).indexer
    x, low = mx.random.normal((1, 3, 32)), mx.random.normal((1, 3, 24))
    seen = mx.random.normal((1, 1, 12, 56))
    best = made.choose(x, low, seen[..., 40:], None, Step((9,), (3,)))
    keys, mask = indexer.narrowed(seen[..., :40], None, best)
    assert keys.shape == (1, 1, 12, 40)
    queries = HALVES(made.wq_b(low).reshape(1, 3, 6, 16).swapaxes(1, 2), Step((9,), (3,)))
    scores = mx.maximum(queries @ seen[..., 40:].swapaxes(-1, -2), 0)
    ranked = np.array((scores * made.weights_proj(x).swapaxes(1, 2)[..., None]).sum(axis=1)[0])
    for row, shown in zip(ranked, np.array(mask)[0, 0], strict=True):
        assert set(np.flatnonzero(shown)) == set(np.argsort(-row)[:5])


def test_absorbed_is_attention_with_keys_spelled_out() -> None:
    made = attention()
    content, position = mx.random.normal((1, 4, 3, 16)), mx.random.normal((1, 4, 3, 8))
    seen = mx.random.normal((1, 1, 9, 40))
    keys = mx.concatenate([made.k_b_proj(seen[..., :32]), mx.repeat(seen[..., 32:], 4, axis=1)], axis=-1)
    queries = mx.concatenate([content, position], axis=-1)
    wanted = plain.attend(None, queries, keys, made.v_b_proj(seen[..., :32]), "causal", scale=SHAPE.scale)
    assert float(mx.abs(made.absorbed(content, position, seen, "causal") - wanted).max()) < 1e-5


@pytest.mark.parametrize("held", [2 * 17 * 17, 5 * 17])
def test_an_index_ranks_alike_whatever_it_holds_at_once(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some heads, and of some queries."""
    made, x = attention(INDEXED), mx.random.normal((1, 17, 32))
    whole = run(made, INDEXED, x, [17])
    monkeypatch.setattr(indexer, "HELD", held)
    monkeypatch.setattr(indexer, "TOGETHER", held)
    assert float(mx.abs(run(made, INDEXED, x, [17]) - whole).max()) < 1e-5


def test_an_index_holds_less_than_the_products_of_all_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, width, keys = 32, 256, 2048
    queries, index = mx.random.normal((1, heads, width, 8)), mx.random.normal((1, 1, keys, 8))
    shares = mx.random.normal((1, heads, width, 1))
    mx.eval(queries, index, shares)

    def best() -> tuple[mx.array, int]:
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        places = indexer.best_places(queries, shares, index, None, 64)
        mx.eval(places)
        return places, mx.get_peak_memory() - before

    wanted, _ = best()
    monkeypatch.setattr(indexer, "HELD", 1 << 16)
    monkeypatch.setattr(indexer, "TOGETHER", 1 << 16)
    got, held = best()
    assert mx.array_equal(got, wanted)
    assert held < 4 * heads * width * keys / 2
