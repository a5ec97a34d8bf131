"""Rejection sampling keeps the odds: whatever was drafted, tokens are drawn as the target alone draws them.

The target and the draft are tables: the odds of a token depend on the token before it. Thousands of rows,
each with a seed of its own, play rounds like the engine's; the counts of their first two tokens are held
against the exact odds by Pearson's chi-square. Seeds are fixed, so the statistic is the same in every run.
"""

import math

import mlx.core as mx
import numpy as np
import pytest

from runtime.sampling import group as group_room
from runtime.sampling import noise
from runtime.sampling.distribution import Distribution
from runtime.sampling.group import DrawInput, RowGroup
from runtime.sampling.kinds import DrawKind
from runtime.sampling.params import SamplingParams
from runtime.sampling.rejection import Guesses
from runtime.sampling.sampler import Sampler

V = 6
ROWS = 2500
FIRST = 2  # the token that every row begins with
rng = np.random.default_rng(3)
TARGET = mx.array((1.5 * rng.standard_normal((V, V))).astype(np.float32))
DRAFT = mx.array((1.5 * rng.standard_normal((V, V))).astype(np.float32))

FILTERS = {
    "plain": {},
    "cold": {"temperature": 0.6},
    "hot": {"temperature": 1.8},
    "top_k": {"top_k": 3},
    "nucleus": {"top_p": 0.8, "min_p": 0.05},
    "typical": {"typical_p": 0.7},
    "biased": {"logit_bias": {1: 1.5}, "suppressed": (4,)},
}


def params(settings: dict[str, object], seed: int = 0) -> SamplingParams:
    return SamplingParams(seed=seed, draft_acceptance="rejection", **settings)  # pyright: ignore


def exact(settings: dict[str, object]) -> np.ndarray:
    """Probabilities [V, V] of each token after each token."""
    its = params(settings)
    group = RowGroup(DrawKind.of(its), [its])
    adjusted = group.adjusted(DrawInput(TARGET[None], [0]))
    return np.exp(np.array(group.distribution(adjusted, [0]).dense(V)))[0]


def play(
    settings: dict[str, object], depth: int, *, certain: bool = False, draft: mx.array = DRAFT
) -> tuple[np.ndarray, float]:
    """The first two tokens of every row [ROWS, 2], and which share of the judged drafts stood.

    certain: the drafter says that its drafts were not drawn by chance.
    """
    sampler = Sampler([params(settings, seed) for seed in range(ROWS)])
    emitted = [[FIRST] for _ in range(ROWS)]
    judged = stood = 0
    while min(map(len, emitted)) < 3:
        newest = mx.array([[ids[-1]] for ids in emitted])
        positions = [len(ids) for ids in emitted]
        drawn, odds = [newest], list[list[mx.array | None]]()
        for ahead in range(depth):
            tokens, its = sampler.draft(draft[drawn[-1]], [at + ahead for at in positions])
            drawn.append(tokens)
            odds.append(its)
        inputs = mx.concatenate(drawn, axis=1)
        joined = [
            mx.concatenate([one for one in its if one is not None], axis=1) for its in zip(*odds, strict=True)
        ]
        guesses = Guesses([depth] * ROWS, () if certain else joined)
        tokens = sampler.sample(TARGET[inputs], positions, inputs=inputs, guesses=guesses)
        for ids, said, guessed in zip(emitted, tokens.tolist(), inputs[:, 1:].tolist(), strict=True):
            kept = next((at for at in range(depth) if said[at] != guessed[at]), depth)
            judged, stood = judged + min(kept + 1, depth), stood + kept
            ids.extend(said[: kept + 1])
    return np.array([ids[1:3] for ids in emitted]), stood / judged


def statistic(pairs: np.ndarray, odds: np.ndarray) -> tuple[float, float]:
    """Pearson's chi-square of the joint counts, and what chance exceeds once in ten thousand times.

    Cells that expect fewer than five are counted as one. The limit is Wilson and Hilferty's approximation.
    """
    expected = (ROWS * odds[FIRST][:, None] * odds).ravel()
    counts = np.bincount(pairs[:, 0] * V + pairs[:, 1], minlength=V * V)
    assert counts[expected == 0].sum() == 0
    rare = expected < 5
    observed = [*counts[~rare], counts[rare].sum()] if expected[rare].sum() > 0 else counts[~rare]
    wanted = [*expected[~rare], expected[rare].sum()] if expected[rare].sum() > 0 else expected[~rare]
    value = float(sum((o - e) ** 2 / e for o, e in zip(observed, wanted, strict=True)))
    freedom = len(wanted) - 1
    spread = 2 / (9 * freedom)
    return value, freedom * (1 - spread + 3.719 * math.sqrt(spread)) ** 3


@pytest.mark.parametrize(("name", "depth"), [*((name, 2) for name in FILTERS), ("plain", 1), ("top_k", 3)])
def test_the_first_two_tokens_have_the_targets_odds(name: str, depth: int) -> None:
    pairs, _ = play(FILTERS[name], depth)
    value, limit = statistic(pairs, exact(FILTERS[name]))
    assert value < limit


def test_drafts_that_count_as_certain_keep_the_odds_too() -> None:
    pairs, _ = play({}, 2, certain=True)
    value, limit = statistic(pairs, exact({}))
    assert value < limit


@pytest.mark.parametrize("name", ["plain", "top_k"])
def test_a_draft_whose_odds_are_no_numbers_changes_none(name: str) -> None:
    pairs, _ = play(FILTERS[name], 2, draft=mx.where(mx.arange(V)[:, None] == 3, DRAFT, mx.nan))
    value, limit = statistic(pairs, exact(FILTERS[name]))
    assert value < limit


def test_the_statistic_sees_a_wrong_remainder(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(own: mx.array, drawn: mx.array, drafts: mx.array, guesses: Guesses, *rest: object) -> mx.array:
        """What falls is drawn from the target's own odds, not from what they have over the draft's."""
        del rest
        seeds = list(range(ROWS))
        odds = np.exp(np.array(guesses.dense(drafts, V)))
        share = np.take_along_axis(np.exp(np.array(own))[:, :-1] / odds, np.array(drafts)[..., None], -1)[
            ..., 0
        ]
        stands = mx.array(np.random.default_rng(1).random(share.shape) < share)
        other = Distribution(own[:, :-1]).draw(
            noise.keys(seeds, [9] * ROWS, drafts.shape[1], stream=noise.REST)
        )
        return mx.concatenate([mx.where(stands, drafts, other), drawn[:, -1:]], axis=1)

    monkeypatch.setattr(group_room, "judge", wrong)
    pairs, _ = play({}, 1)
    value, limit = statistic(pairs, exact({}))
    assert value > 2 * limit


def test_as_many_stand_as_the_two_odds_have_in_common() -> None:
    _, share = play({}, 1)
    p, q = (np.array(mx.softmax(table, axis=-1)) for table in (TARGET, DRAFT))
    common = np.minimum(p, q).sum(axis=-1)
    # Rows are judged at the tokens they come through, so the mean lies between the extremes.
    assert common.min() < share < common.max()
    _, certain = play({}, 1, certain=True)
    assert certain < share


def test_a_draft_with_the_targets_own_odds_always_stands() -> None:
    sampler = Sampler([params({"top_p": 0.9}, seed) for seed in range(200)])
    positions = [7] * 200
    logits = mx.broadcast_to(TARGET[FIRST], (200, 1, V))
    drafts, odds = sampler.draft(logits, positions)
    inputs = mx.concatenate([mx.full((200, 1), FIRST), drafts], axis=1)
    guesses = Guesses([1] * 200, odds)
    said = sampler.sample(mx.broadcast_to(logits, (200, 2, V)), positions, inputs=inputs, guesses=guesses)
    assert said[:, :1].tolist() == drafts.tolist()


def test_a_draft_that_a_mask_forbids_falls() -> None:
    sampler = Sampler([params({}, seed) for seed in range(200)])
    logits = mx.broadcast_to(TARGET[FIRST], (200, 2, V))
    inputs = mx.broadcast_to(mx.array([FIRST, 3]), (200, 2))
    mask = mx.broadcast_to(mx.arange(V) != 3, (200, 2, V))
    said = sampler.sample(logits, [7] * 200, inputs=inputs, mask=mask, guesses=Guesses([1] * 200))
    assert 3 not in np.array(said)


def test_places_without_a_draft_are_drawn_plainly() -> None:
    sampler = Sampler([params({}, seed) for seed in range(50)])
    logits = mx.broadcast_to(TARGET[FIRST], (50, 3, V))
    inputs = mx.broadcast_to(mx.array([FIRST, 3, 1]), (50, 3))
    plain = sampler.sample(logits, [7] * 50)
    said = sampler.sample(logits, [7] * 50, inputs=inputs, guesses=Guesses([0] * 50))
    assert said.tolist() == plain.tolist()


def test_rows_that_do_not_reject_do_not_notice_drafts() -> None:
    mixed = [
        SamplingParams(seed=4),
        params({}, 5),
        SamplingParams(temperature=0),
        params({"temperature": 0}, 6),
    ]
    logits = mx.broadcast_to(TARGET[FIRST], (4, 2, V))
    inputs = mx.broadcast_to(mx.array([FIRST, 3]), (4, 2))
    sampler = Sampler(mixed)
    plain = sampler.sample(logits, [7] * 4).tolist()
    said = sampler.sample(logits, [7] * 4, inputs=inputs, guesses=Guesses([1] * 4)).tolist()
    assert [said[row] for row in (0, 2, 3)] == [plain[row] for row in (0, 2, 3)]
    assert [one is None for one in sampler.draft(logits[:, :1], [7] * 4)[1]] == [True, False, True, True]


def test_uniform_noise_is_uniform_and_of_its_own() -> None:
    seeds = list(range(2000))
    streams = [
        np.array(noise.uniform(noise.keys(seeds, [5] * 2000, 4, stream=stream))).ravel()
        for stream in (noise.DRAW, noise.ACCEPT, noise.REST)
    ]
    for values in streams:
        assert 0 < values.min() < values.max() < 1
        assert abs(values.mean() - 0.5) < 0.01
        assert abs(values.var() - 1 / 12) < 0.005
    assert abs(np.corrcoef(streams)[np.triu_indices(3, 1)]).max() < 0.04
