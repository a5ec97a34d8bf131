"""A draft model proposes what it would say itself, whatever it had to take back before."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate import draft_model
from runtime.speculate.chain import within
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Rows
from tests.support.parity import Reference, full_logits
from tests.support.tiny import write_model

GREEDY = SamplingParams(temperature=0)
WARM = SamplingParams(temperature=0.9, top_k=20, repeat_penalty=1.2, repeat_last_n=-1, seed=3)


@pytest.fixture(scope="module", params=["llama", "mistral_window", "mamba2", "qwen3_5"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return Reference(request.param).load(tmp_path_factory.mktemp("draft"))


def alone(model: LoadedModel, ids: list[int], params: SamplingParams, depth: int) -> list[int]:
    """What the model draws after `ids`, everything computed anew for each token."""
    grown = list(ids)
    for _ in range(depth):
        logits = mx.array(full_logits(model, np.array(grown)))[None, -1:]
        newest = mx.array([grown[-1:]], dtype=mx.int32)
        token = Sampler([params]).sample(logits, [len(grown)], history=[grown[:-1]], inputs=newest)
        grown.append(int(token.item()))
    return grown[len(ids) :]


def proposed(
    drafter: ModelDrafter, texts: list[list[int]], params: SamplingParams, depth: int
) -> list[list[int]]:
    """Asked until all rows have been caught up with."""
    rows = Rows(texts, Sampler([params] * len(texts)))
    proposal = drafter.propose(rows, depth)
    while proposal is not None and 0 in proposal.counts:
        assert proposal.reading
        drafter.settle([len(text) - 1 for text in texts])
        proposal = drafter.propose(rows, depth)
    assert proposal is not None
    assert proposal.counts == (depth,) * len(texts)
    drafts: Any = proposal.tokens.tolist()
    return drafts


@settings(max_examples=6)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    rounds=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=4),
    warm=st.booleans(),
)
@example(lengths=[1], rounds=[(3, 0)], warm=False)
def test_proposals_are_what_it_says_alone(
    model: LoadedModel, lengths: list[int], rounds: list[tuple[int, int]], warm: bool
) -> None:
    rng, params = np.random.default_rng(0), WARM if warm else SamplingParams(temperature=0)
    texts = [[int(token) for token in rng.integers(3, 150, length)] for length in lengths]
    drafter = ModelDrafter(model, limit=5)
    drafter.resize(len(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft_model, "CHUNK", 12)
        for depth, keep in rounds:
            drafts = proposed(drafter, texts, params, depth)
            assert drafts == [alone(model, text, params, depth) for text in texts]
            kept = [(keep + row) % (depth + 1) for row in range(len(texts))]
            drafter.settle([len(text) + count for text, count in zip(texts, kept, strict=True)])
            for text, draft, count in zip(texts, drafts, kept, strict=True):
                text += [*draft[:count], int(rng.integers(3, 150))]


def test_rows_move(model: LoadedModel) -> None:
    greedy, drafter = SamplingParams(temperature=0), ModelDrafter(model)
    drafter.resize(2)
    texts = [[5, 9, 4], [8, 30, 7, 7, 21]]
    proposed(drafter, texts, greedy, 2)
    drafter.settle([3, 5])
    drafter.clear(0)
    drafter.move(1, 0)
    text = [*texts[1], 12]
    assert proposed(drafter, [text], greedy, 2) == [alone(model, text, greedy, 2)]


def test_no_proposal_beyond_its_context(model: LoadedModel) -> None:
    text = [5] * (model.context_length - 1)
    assert ModelDrafter(model).propose(Rows([text], Sampler([WARM])), 2) is None


def test_a_row_beyond_its_context_does_not_silence_the_others(model: LoadedModel) -> None:
    greedy, drafter = SamplingParams(temperature=0), ModelDrafter(model)
    drafter.resize(2)
    long, short = [5] * (model.context_length - 1), [8, 30, 7]
    proposal = drafter.propose(Rows([long, short], Sampler([greedy, greedy])), 2)
    assert proposal is not None
    assert proposal.counts == (0, 2)
    assert proposal.tokens.tolist()[1] == alone(model, short, greedy, 2)


@pytest.mark.parametrize(("own", "targets"), [(320, 300), (300, 320)], ids=["wider", "narrower"])
def test_vocabularies_padded_to_different_sizes(own: int, targets: int, tmp_path: Path) -> None:
    """No id is drawn that the target lacks, and one that the draft lacks is read without harm."""
    write_model(tmp_path, vocab_size=own, tie_word_embeddings=False)
    config = {**_config(tmp_path), "vocab_size": own}
    model = load_model(config, [tmp_path / "model.safetensors"])
    drafter = ModelDrafter(model, vocab_size=targets)
    biased = SamplingParams(temperature=2.0, seed=1, logit_bias={targets - 1: 3.0})
    for ids in ([4, 5, targets - 1], [6] * 20):
        drafts = proposed(drafter, [ids], biased, 8)[0]
        assert max(drafts) < targets
        drafter.clear(0)


def _config(folder: Path) -> dict[str, Any]:
    import json

    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def test_logits_over_the_targets_ids() -> None:
    logits = mx.arange(6, dtype=mx.float32).reshape(1, 1, 6)
    assert within(logits, 6) is logits
    assert within(logits, 4).tolist() == [[[0, 1, 2, 3]]]
    assert within(logits, 7).tolist() == [[[0, 1, 2, 3, 4, 5, -float("inf")]]]
