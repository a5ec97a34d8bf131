"""Adapters that ranks cannot have are refused by name, before anything is read."""

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from runtime.errors import CannotCut, WeightMismatch
from runtime.models import describe
from runtime.nn.adapters.low_rank import LowRank, LowRanks, Rows
from runtime.ranks.pairs import Pairs, check_adapters
from runtime.ranks.parts import parts_of
from runtime.ranks.pieces import Shard
from runtime.ranks.plan import Host, decide
from runtime.ranks.shards import splits_of
from runtime.ranks.trunk import chain_of
from tests.support.low_ranks import pairs_of
from tests.support.parity import Reference

QUERIES = "model.layers.0.self_attn.q_proj"
DESCRIBED = describe(Reference("llama").record["config"])


def _pair(width: int, out: int, magnitude: int | None = None) -> LowRank:
    own = None if magnitude is None else mx.ones(magnitude)
    return LowRank(mx.ones((width, 2)), mx.ones((2, out)), 1.0, own)


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("model.layers.9.self_attn.q_proj", 0, "belongs to no module"),
        (QUERIES, 8, "q_proj.lora_up has shape"),
        ("model.norm", 0, "is not a matrix"),
    ],
)
def test_a_pair_that_does_not_fit_the_whole_is_refused_by_every_rank(name: str, more: int, why: str) -> None:
    """One whose matrix is too large could be cut to fit."""
    network = DESCRIBED.family.build(DESCRIBED.config)
    out, width = dict(network.named_modules())[QUERIES].weight.shape
    with pytest.raises(WeightMismatch, match=f"adapter verse: .*{why}"):
        check_adapters(network, {"verse": LowRanks({name: _pair(width, out + more)})})


def test_magnitudes_of_another_size_are_refused() -> None:
    network = DESCRIBED.family.build(DESCRIBED.config)
    out, width = dict(network.named_modules())[QUERIES].weight.shape
    with pytest.raises(WeightMismatch, match="lora_magnitude does not fit"):
        check_adapters(network, {"verse": LowRanks({QUERIES: _pair(width, out, out + 1)})})


@pytest.mark.parametrize(("name", "shards"), [("llama", 1), ("llama", 2), ("muse_spark_layers", 2)])
def test_a_plan_counts_what_ranks_have(name: str, shards: int) -> None:
    record = Reference(name).record
    described = describe(record["config"])
    network = described.family.build(described.config)
    brought = LowRanks(pairs_of(network, 1, dora=False))
    shapes = [
        (f"{name}.lora_{leaf}", array.shape)
        for name, pair in brought.pairs.items()
        for leaf in ("down", "up", "bias")
        if (array := getattr(pair, leaf)) is not None
    ]
    headers = {name: ("F32", tuple(shape)) for name, shape in record["tensors"].items()}
    parts = parts_of(record["config"], headers, shards=shards, adapters=shapes)
    left = [name for name, _ in tree_flatten(network.parameters())]
    for rank, share in enumerate(decide(parts, [Host("")] * shards).shares):
        chain = chain_of(network, described.layout, "x")
        splits = splits_of(chain, described.layout, Shard(rank, shards)) if shards > 1 else None
        own = Pairs(network, splits, left, {}, lambda array, *_: array).cut("verse", brought, head=not rank)
        arrays = [getattr(pair, leaf) for pair in own.pairs.values() for leaf in ("down", "up", "bias")]
        assert share.adapter_bytes == sum(array.nbytes for array in arrays if array is not None)


def test_a_plan_counts_adapters_of_what_is_copied() -> None:
    described, record = describe(Reference("zamba2").record["config"]), Reference("zamba2").record
    network = described.network()
    brought = pairs_of(network, 1, dora=False)
    shapes = [(f"{name}.lora_down", pair.down.shape) for name, pair in brought.items()]
    headers = {name: ("F32", tuple(shape)) for name, shape in record["tensors"].items()}
    plan = decide(parts_of(record["config"], headers, adapters=shapes), [Host("")] * 2)
    start = plan.shares[1].start
    layers = (f"model.layers.{place}." for place in range(start, 5))
    own = (*layers, "model.layers.1.shared_transformer.", "model.embed_tokens")
    expected = sum(pair.down.nbytes for name, pair in brought.items() if name.startswith(own))
    assert plan.shares[1].adapter_bytes == expected


def test_rows_of_a_matrix_that_is_cut_are_refused() -> None:
    network = DESCRIBED.family.build(DESCRIBED.config)
    splits = splits_of(chain_of(network, DESCRIBED.layout, "x"), DESCRIBED.layout, Shard(0, 2))
    pairs = Pairs(network, splits, [f"{QUERIES}.weight"], {}, lambda array, *_: array)
    rows = LowRanks(rows={f"{QUERIES}.weight": Rows(mx.array([1]), mx.ones((1, 8)))})
    with pytest.raises(CannotCut, match=f"adapter verse: it has rows of {QUERIES}"):
        pairs.cut("verse", rows, head=True)
