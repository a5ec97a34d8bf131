"""Which of Baichuan's files are of the second, whose heads are normed, and what is left as it is."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.models import describe, find_family
from runtime.quant import FORMATS
from runtime.tensors.quantizing import SOURCE, Request, Tensor
from tests.support.parity import Reference

PLAIN: dict[str, Any] = Reference("baichuan").record["config"]


@pytest.mark.parametrize(
    ("told", "normed"),
    [({}, False), ({"z_loss_weight": 0}, True), ({"vocab_size": 125696}, True), ({"vocab_size": 64000}, 0)],
)
def test_the_second_is_known_by_its_loss_or_its_vocabulary(told: dict[str, Any], normed: bool) -> None:
    assert describe({**PLAIN, **told}).config.unit_head == normed


def test_a_packed_head_is_normed_already() -> None:
    config = {**PLAIN, "z_loss_weight": 0}
    family = find_family(config)
    head = {"lm_head.weight": mx.full((2, 4), 3.0)}
    assert np.allclose(family.adapt(family.parse(config), head)["lm_head.weight"], 0.5)
    packed = {**head, "lm_head.scales": mx.ones((2, 1))}
    assert np.allclose(family.adapt(family.parse(config), packed)["lm_head.weight"], 3.0)


def test_no_head_is_packed_here() -> None:
    (row,) = find_family(PLAIN).checkpoint(PLAIN).rows
    assert row.offers == SOURCE
    assert row.when(Tensor("lm_head.weight", "BF16", (160, 64)), Request(FORMATS[0], 4))
