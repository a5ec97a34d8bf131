"""What an adapter brings, as values and as the tensors of a package."""

import mlx.core as mx

from runtime.nn.adapters.low_rank import LowRank, LowRanks, Rows


def test_what_an_adapter_brings_goes_through_its_tensors() -> None:
    given = LowRanks(
        {
            "model.q": LowRank(mx.ones((4, 2)), mx.ones((2, 3)), 2.0, magnitude=mx.ones(3)),
            "model.k": LowRank(mx.ones((4, 1)), mx.ones((1, 3)), 0.5, bias=mx.zeros(3)),
        },
        {"model.norm.weight": mx.ones(4), "model.k.bias": mx.ones(3)},
        {"model.embed.weight": Rows(mx.array([1, 5]), mx.ones((2, 4)))},
    )
    read = LowRanks.of(given.tensors(), {"model.k": 0.5}, 2.0)
    assert {name: pair.scale for name, pair in read.pairs.items()} == {"model.q": 2.0, "model.k": 0.5}
    assert read.pairs["model.q"].magnitude is not None
    assert read.pairs["model.q"].bias is None
    assert read.pairs["model.k"].bias is not None
    assert sorted(read.whole) == ["model.k.bias", "model.norm.weight"]
    assert read.rows["model.embed.weight"].ids.tolist() == [1, 5]
    assert sorted(read.tensors()) == sorted(given.tensors())
