"""Routing in one node chooses and weighs as it is said step by step, for each row as if it were alone."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.cpu.native.route import routing_of
from runtime.nn.feed_forward import router
from runtime.nn.operations import ops
from runtime.parts.feed_forward import Routing

kernels = native.kernels
if kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

ROWS, EXPERTS = 37, 24


def scores(seed=0, experts=EXPERTS):
    return mx.array(np.random.default_rng(seed).standard_normal((ROWS, experts), dtype=np.float32))


CORRECTION = mx.array(np.random.default_rng(5).standard_normal(EXPERTS, dtype=np.float32))
SHARES = mx.array(np.random.default_rng(6).uniform(0.5, 2, EXPERTS).astype(np.float32))
RULES = {
    "softmax": lambda x: router.choose(Routing("softmax", 4, normalize=True), x),
    "softmax, as they are": lambda x: router.choose(Routing("softmax", 4), x),
    "best": lambda x: router.top_then_softmax(x, 4),
    "all": lambda x: router.top_then_softmax(x, EXPERTS),
    "softmax, corrected": lambda x: router.choose(
        Routing("softmax", 3, CORRECTION, normalize=True, least=0.4, scale=1.5), x
    ),
    "softmax, groups of one judge": lambda x: router.choose(
        Routing("softmax", 3, groups=6, top_groups=2, judges=1), x
    ),
    "sigmoid": lambda x: router.choose(Routing("sigmoid", 3, normalize=True, scale=2.5), x),
    "sigmoid, corrected": lambda x: router.choose(Routing("sigmoid", 3, CORRECTION), x),
    "late": lambda x: router.choose(Routing("late", 3), x),
    "near": lambda x: router.choose(Routing("near", 3, nearness=0.6), x),
    "shares": lambda x: router.choose(Routing("softmax", 3, normalize=True, scale=1.5, shares=SHARES), x),
    "corrected, shares": lambda x: router.choose(Routing("sigmoid", 3, CORRECTION, shares=SHARES), x),
    "groups": lambda x: router.choose(
        Routing("sigmoid", 4, CORRECTION, groups=6, top_groups=2, normalize=True), x
    ),
    "groups of one": lambda x: router.choose(
        Routing("sigmoid", 4, groups=EXPERTS, top_groups=5, normalize=True), x
    ),
}


def by_expert(choice):
    """Weights [rows, EXPERTS], 0 where an expert is not asked."""
    chosen, weights = (np.array(part) for part in choice)
    table = np.zeros((len(chosen), EXPERTS), np.float32)
    np.put_along_axis(table, chosen.astype(np.int64), weights, axis=-1)
    assert ((table != 0).sum(-1) == chosen.shape[-1]).all(), "each expert once"
    return table


@pytest.mark.parametrize("rule", RULES)
def test_as_it_is_said_step_by_step(rule):
    x = scores()
    with ops.using("plain"):
        expected = by_expert(RULES[rule](x))
    for column in kernels.columns():
        kernels.use_column(column)
        with ops.using("cpu"):
            assert np.abs(by_expert(RULES[rule](x)) - expected).max() < 1e-6, column


@pytest.mark.parametrize("rule", RULES)
def test_a_row_stands_alone_on_any_number_of_threads(rule):
    x = scores(1)
    with ops.using("cpu"):
        kernels.set_threads(3)
        chosen, weights = RULES[rule](x)
        for column in kernels.columns():
            kernels.use_column(column)
            kernels.set_threads(1)
            for row in (0, 16, 36):
                own, its = RULES[rule](x[row : row + 1])
                assert mx.array_equal(own[0], chosen[row])
                assert mx.array_equal(its[0], weights[row]), (column, row)


def test_the_best_come_first_and_of_equal_ones_the_first():
    with ops.using("cpu"):
        chosen, _ = router.top_then_softmax(mx.array([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]]), 3)
    assert chosen.tolist() == [[1, 2, 3], [0, 1, 2]]


def test_what_is_no_number_chooses_experts_that_there_are():
    x = mx.full((3, EXPERTS), mx.nan)
    with ops.using("cpu"):
        for rule in RULES.values():
            chosen, weights = rule(x)
            assert (chosen >= 0).all()
            assert (chosen < EXPERTS).all()
            assert mx.isnan(weights).all()


def test_no_rows_and_what_does_not_fit():
    chosen, weights = kernels.route(
        routing_of(kernels, Routing("softmax", 2, normalize=True)), mx.zeros((2, 0, 4))
    )
    assert chosen.shape == weights.shape == (2, 0, 2)
    for rule, said in (
        (Routing("softmax", 5), "no more experts"),
        (Routing("softmax", 0), "one expert"),
        (Routing("softmax", 2, groups=3), "equal"),
        (Routing("softmax", 2, groups=2, top_groups=3), "open"),
        (Routing("softmax", 2, judges=3), "judges"),
        (Routing("near", 2, scale=2.0), "near gates"),
        (Routing("near", 2, mx.zeros((4,))), "near gates"),
        (Routing("softmax", 2, mx.zeros((3,))), "one number for each"),
        (Routing("softmax", 2, mx.zeros((4,), mx.float16)), "float32"),
        (Routing("softmax", 2, shares=mx.zeros((5,))), "one number for each"),
        (Routing("softmax", 2, shares=mx.zeros((4,), mx.float16)), "float32"),
    ):
        with pytest.raises(ValueError, match=said):
            kernels.route(routing_of(kernels, rule), mx.zeros((2, 4)))
    with pytest.raises(ValueError, match="gates"):
        kernels.Routing(5, 2, None, 1, 1, 2, True, 1.0, 0.0)
