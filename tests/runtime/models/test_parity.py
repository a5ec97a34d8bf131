"""Every family computes what transformers computes, however a prompt is cut into steps and whoever shares the
batch.

The references are float32; `test_half` has the same for checkpoints as they are published. How close they
must be follows the conditioning of each reference: 2e-5 to 7e-4 of the spread of its logits.
"""

from pathlib import Path

import mlx.nn as nn
import numpy as np
import pytest

from runtime.loaded import LoadedModel
from runtime.models import describe
from runtime.nn.operations import ops
from tests.support.checkpoints import legacy_config
from tests.support.parity import Reference, bar, cut_logits, full_logits, greedy, ragged_logits


@pytest.fixture(scope="module", params=Reference.names())
def reference(request: pytest.FixtureRequest) -> Reference:
    return Reference(request.param)


@pytest.fixture(scope="module")
def model(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return reference.load(tmp_path_factory.mktemp(reference.name))


def test_full(reference: Reference, model: LoadedModel) -> None:
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_legacy_spelling(reference: Reference, model: LoadedModel, tmp_path: Path) -> None:
    """What is described alike is the same model."""
    config = legacy_config(reference.record["config"])
    if describe(config) == model.described:
        return
    model = reference.load(tmp_path, config)
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


CUTS = [[1], [5], [29, 1], [7, 1, 1, 16, 3]]


def test_cut_into_steps(reference: Reference, model: LoadedModel) -> None:
    """Of one kind for one reference, of another for the next; by itself each token comes in `test_greedy`."""
    cuts = CUTS[Reference.names().index(reference.name) % len(CUTS)]
    assert reference.error(cut_logits(model, reference.answers["ids"], cuts)) < bar(reference)


@pytest.mark.slow
@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_cut_into_any_steps(reference: Reference, model: LoadedModel, cuts: list[int]) -> None:
    assert reference.error(cut_logits(model, reference.answers["ids"], cuts)) < bar(reference)


def test_by_plain_operations(reference: Reference, model: LoadedModel) -> None:
    """Many tokens from nothing, single ones, and many behind others: each way that an operation has."""
    with ops.using("plain"):
        got = cut_logits(model, reference.answers["ids"], [29, 1, 1, 17])
    assert reference.error(got) < bar(reference)


KINDS = (nn.Linear, nn.QuantizedLinear, nn.Embedding, nn.QuantizedEmbedding, nn.RMSNorm, nn.LayerNorm)


def test_no_layer_is_called_by_itself(
    reference: Reference, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks ask their layers through functions that see the step (`runtime.nn.linear`)."""
    called: list[str] = []
    for kind in KINDS:
        monkeypatch.setattr(kind, "__call__", lambda self, *_: called.append(type(self).__name__))
    monkeypatch.setattr(nn.Embedding, "as_linear", lambda *_: called.append("as_linear"))
    with ops.using("plain"):
        cut_logits(model, reference.answers["ids"][:3], [3])
    assert called == []


def test_ragged_batch(reference: Reference, model: LoadedModel) -> None:
    ids = reference.answers["ids"]
    rows = [ids, ids[:21], ids[:30]]
    for logits in ragged_logits(model, rows):
        assert reference.error(logits) < bar(reference)


def test_shown_more_than_is_seen(
    reference: Reference, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on CUDA, by a GPU's column: slots beside the visible ones are shown too, and masked."""
    ids = reference.answers["ids"]
    monkeypatch.setattr("runtime.cache.rows.shown_by", lambda: 8)
    with ops.using("gpu"):
        logits = cut_logits(model, ids, [29, 1, 3, 15], grain=12)
        for row in [logits, *ragged_logits(model, [ids, ids[:21], ids[:30]], grain=12)]:
            assert reference.error(row) < bar(reference)


def test_greedy(reference: Reference, model: LoadedModel) -> None:
    wanted, margin = reference.answers["greedy"], reference.answers["margin"] / reference.answers["std"]
    close = np.flatnonzero(margin < 4 * bar(reference))  # here two right computations may part
    sure = int(close[0]) if len(close) else len(wanted)
    assert greedy(model, reference.answers["ids"][:16], sure) == wanted[:sure].tolist()
