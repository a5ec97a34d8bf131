"""The n-grams of LongCat-Flash-Lite: what ends a text is no part of what follows it."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.errors import UnsupportedModel
from runtime.models import describe
from tests.support.parity import Reference, cut_logits, full_logits

NAME = "longcat_ngram"


def _row(ids: list[int]) -> mx.array:
    return mx.array(ids, mx.int32)[None, :, None]


def test_tokens_behind_an_end_of_text_do_not_see_before_it(tmp_path: Path) -> None:
    """As its authors' class has it, and mlx-lm's has not."""
    reference = Reference(NAME)
    model = reference.load(tmp_path)
    tables = model.network.model.layers[0].ngram_embeddings
    found = [
        tables._followed({"ids": mx.zeros((1, 3, 1))}, _row([*before, 2, 9, 8, 7]), counts=None)[0]
        for before in ([5, 6], [11, 12])
    ]
    rows = [np.array(one)[0] for one in found]
    assert rows[0][2].tolist() == [2, 6, 5, 0]
    assert rows[0][3].tolist() == [9, 0, 0, 0]
    assert rows[0][5].tolist() == [7, 8, 9, 0]
    assert np.array_equal(rows[0][3:], rows[1][3:])


def test_an_end_of_text_counts_in_steps_as_at_once(tmp_path: Path) -> None:
    model = Reference(NAME).load(tmp_path)
    ids = np.array([3, 4, 2, 9, 8, 2, 2, 7, 6, 5], np.int32)
    assert np.abs(cut_logits(model, ids, [1]) - full_logits(model, ids)).max() < 1e-4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"emb_neighbor_num": 1}, "emb_neighbor_num"),
        ({"emb_split_num": 40}, "emb_split_num"),
        ({"eos_token_id": [2, 3]}, "eos_token_id"),
        ({"norm_topk_prob": True}, "norm_topk_prob"),
    ],
)
def test_what_is_refused_by_name(change: dict[str, object], said: str) -> None:
    with pytest.raises(UnsupportedModel, match=said):
        describe({**Reference(NAME).record["config"], **change})
