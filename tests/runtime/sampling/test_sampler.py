"""What a row draws is its own business: not its neighbours', not the block's, not the batch order's."""

import json
import math
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import BadTokenIds
from runtime.sampling.group import DrawInput, RowGroup
from runtime.sampling.kinds import DrawKind
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler

V = 300
ids = st.integers(0, V - 1)
params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 1, 7, 40, 1000]),
    typical_p=st.sampled_from([1.0, 1.0, 0.6]),
    top_p=st.sampled_from([1.0, 0.9, 0.4]),
    min_p=st.sampled_from([0.0, 0.0, 0.05]),
    repeat_penalty=st.sampled_from([1.0, 1.0, 1.4]),
    frequency_penalty=st.sampled_from([0.0, 0.3]),
    repeat_last_n=st.sampled_from([-1, 0, 3, 64]),
    top_n_sigma=st.sampled_from([0.0, 0.0, 0.0, 1.5]),
    dynatemp_range=st.sampled_from([0.0, 0.0, 0.0, 0.5]),
    xtc_probability=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
    xtc_threshold=st.sampled_from([0.1, 0.02]),
    dry_multiplier=st.sampled_from([0.0, 0.0, 2.0]),
    dry_allowed_length=st.sampled_from([1, 0]),
    ends=st.sampled_from([(), (5, 9, V + 3)]),
    ends_from=st.integers(0, 502),
    seed=st.integers(0, (1 << 64) - 1),
    logit_bias=st.sampled_from([{}, {}, {5: 4.0, 9: -100.0}]),
)
row = st.tuples(params, st.integers(1, 500), st.lists(ids, max_size=8))
Row = tuple[SamplingParams, int, list[int]]


def some_logits(seed: int, rows: int, columns: int) -> tuple[mx.array, mx.array]:
    rng = np.random.default_rng(seed)
    logits = (3 * rng.standard_normal((rows, columns, V))).astype(np.float32)
    return mx.array(logits), mx.array(rng.integers(0, V, (rows, columns)))


def draw(its: list[Row], logits: mx.array, inputs: mx.array, mask: mx.array | None = None) -> list[list[int]]:
    sampler = Sampler([p for p, _, _ in its])
    history = [past for _, _, past in its]
    tokens = sampler.sample(
        logits, [position for _, position, _ in its], history=history, inputs=inputs, mask=mask
    )
    assert tokens.dtype == mx.int32
    return tokens.tolist()  # pyright: ignore[reportReturnType]  # a nested list


@settings(max_examples=60)
@given(its=st.lists(row, min_size=1, max_size=5), seed=st.integers(0, 999))
def test_a_row_draws_the_same_alone_and_in_a_batch(its: list[Row], seed: int) -> None:
    logits, inputs = some_logits(seed, len(its), 1)
    together = draw(its, logits, inputs)
    alone = [draw([its[b]], logits[b : b + 1], inputs[b : b + 1])[0] for b in range(len(its))]
    assert together == alone


@settings(max_examples=60)
@given(its=st.lists(row, min_size=1, max_size=3), columns=st.integers(2, 4), seed=st.integers(0, 999))
def test_a_block_draws_what_single_steps_draw(its: list[Row], columns: int, seed: int) -> None:
    """Inputs before a column become its history, and its position is counted on."""
    logits, inputs = some_logits(seed, len(its), columns)
    block = draw(its, logits, inputs)
    for t in range(columns):
        past = np.array(inputs[:, :t])
        single: list[Row] = [
            (p, position + t, history + past[b].tolist()) for b, (p, position, history) in enumerate(its)
        ]
        alone = draw(single, logits[:, t : t + 1], inputs[:, t : t + 1])
        assert [row[t] for row in block] == [row[0] for row in alone]


@pytest.mark.parametrize(
    "its", [{}, {"top_k": 40, "top_p": 0.9}, {"top_p": 0.8}, {"typical_p": 0.7, "min_p": 0.001}], ids=str
)
def test_a_large_vocabulary_is_no_exception(its: dict[str, float]) -> None:
    """Its searches go other ways (column maxima, halves), and 20 011 does not divide into layers."""
    rng = np.random.default_rng(2)
    logits = mx.array((2 * rng.standard_normal((3, 3, 20_011))).astype(np.float32))
    p = [SamplingParams(seed=seed, **its) for seed in range(3)]  # pyright: ignore[reportArgumentType]  # a table
    block = Sampler(p).sample(logits, [7, 8, 9]).tolist()
    single = [
        [Sampler([p[b]]).sample(logits[b : b + 1, t : t + 1], [7 + b + t]).item() for t in range(3)]
        for b in range(3)
    ]
    assert block == single


def test_the_next_position_draws_with_other_noise() -> None:
    p = SamplingParams(seed=1)
    logits = mx.zeros((1, 1, V))
    assert len({Sampler([p]).sample(logits, [position]).item() for position in range(40)}) > 25


def test_another_seed_draws_other_tokens() -> None:
    logits = mx.zeros((40, 1, V))
    tokens = Sampler([SamplingParams(seed=seed) for seed in range(40)]).sample(logits, [3] * 40)
    assert len(set(tokens[:, 0].tolist())) > 25  # pyright: ignore[reportArgumentType]  # a list


def test_logits_in_half_precision_are_drawn_too() -> None:
    logits, _ = some_logits(3, 2, 1)
    half = logits.astype(mx.bfloat16)
    its = [SamplingParams(temperature=0), SamplingParams(seed=3, top_p=0.9)]
    same = Sampler(its).sample(half.astype(mx.float32), [1, 1])
    assert Sampler(its).sample(half, [1, 1]).tolist() == same.tolist()


def test_nothing_is_computed_before_the_tokens_are_read() -> None:
    """400 columns would take half a megabyte for the logits alone."""
    logits = mx.zeros((1, 1, V))
    before = mx.get_active_memory()
    tokens = Sampler([SamplingParams(top_p=0.9, repeat_penalty=1.2)]).sample(
        mx.broadcast_to(logits, (1, 400, V)) * 2,
        [0],
        history=[[1]],
        inputs=mx.zeros((1, 400), dtype=mx.int32),
    )
    assert mx.get_active_memory() - before < 400 * V
    assert tokens.shape == (1, 400)


@pytest.mark.parametrize("form", ["allowed", "added"])
def test_a_mask_forbids_before_anything_is_chosen(form: str) -> None:
    """The best ids are forbidden; greedy, top-k and plain rows all stay inside what is left."""
    logits, _ = some_logits(5, 3, 2)
    allowed = mx.array(np.random.default_rng(1).random((3, 2, V)).astype(np.float32)) < 0.05
    mask = allowed if form == "allowed" else mx.where(allowed, 0.0, -mx.inf)
    its = [SamplingParams(temperature=0), SamplingParams(top_k=40), SamplingParams()]
    tokens = Sampler(its).sample(logits, [1, 2, 3], mask=mask)
    assert mx.take_along_axis(allowed, tokens[..., None], axis=-1).all().item()
    masked = np.where(np.array(allowed[0]), np.array(logits[0]), -np.inf)
    assert tokens[0].tolist() == masked.argmax(-1).tolist()


def test_one_allowed_id_is_drawn_at_any_setting() -> None:
    its = [
        SamplingParams(top_k=5, top_p=0.5, min_p=0.1, typical_p=0.5),
        SamplingParams(typical_p=0.9),
        SamplingParams(xtc_probability=1.0, xtc_threshold=0.0),
        SamplingParams(xtc_probability=1.0, top_k=5, top_n_sigma=0.01),
        SamplingParams(temperature=0.3, dynatemp_range=0.3),
        SamplingParams(ends=(17, 3), ends_from=100),
        SamplingParams(temperature=0, ends=(17,), ends_from=100, logit_bias={17: -50.0}),
    ]
    logits, _ = some_logits(6, len(its), 1)
    mask = mx.broadcast_to(mx.arange(V)[None, None] == 17, (len(its), 1, V))
    assert Sampler(its).sample(logits, [1] * len(its), mask=mask).tolist() == [[17]] * len(its)


def test_the_coin_of_xtc_is_tossed_by_seed_and_position_apart_from_the_draw() -> None:
    """Two ids, the first of which is all but sure; where XTC acts, the other one is drawn."""
    logits = mx.broadcast_to(mx.array([20.0, 19.0, *[0.0] * 8]), (1, 4000, 10))
    cold = SamplingParams(temperature=0.05, seed=3, xtc_probability=0.3)
    drawn = np.array(Sampler([cold]).sample(logits, [0]))[0]
    assert set(drawn.tolist()) == {0, 1}
    assert 0.27 < (drawn == 1).mean() < 0.33
    later = np.array(Sampler([cold]).sample(logits[:, :50], [1000]))[0]
    assert later.tolist() == drawn[1000:1050].tolist()
    warm = SamplingParams(temperature=1.0, seed=3)
    plain = np.array(Sampler([warm]).sample(logits, [0]))[0]
    assert abs(np.corrcoef(plain == 1, drawn == 1)[0, 1]) < 0.08


def test_a_temperature_of_0_takes_the_likeliest_whatever_xtc_says() -> None:
    logits = mx.array([[[3.0, 2.9, 0.0]]])
    assert Sampler([SamplingParams(temperature=0, xtc_probability=1.0)]).sample(logits, [0]).item() == 0


def test_a_range_around_a_temperature_of_0_is_drawn_from() -> None:
    logits = mx.zeros((1, 300, V))
    tokens = Sampler([SamplingParams(temperature=0, dynatemp_range=1.0, seed=5)]).sample(logits, [0])
    assert len(set(tokens[0].tolist())) > 50  # pyright: ignore[reportArgumentType]  # a list


def test_a_text_does_not_end_before_it_may() -> None:
    logits = mx.broadcast_to(mx.array([9.0, 0.0, 1.0, 8.0]), (1, 6, 4))
    its = SamplingParams(temperature=0, ends=(0, 3), ends_from=12)
    assert Sampler([its]).sample(logits, [9]).tolist() == [[2, 2, 2, 0, 0, 0]]


def test_who_may_end_by_now_is_drawn_as_if_nothing_had_been() -> None:
    sampler = Sampler([SamplingParams(ends=(3,), ends_from=12)])
    assert sampler.plainly([11], [], ()) is None
    assert sampler.plainly([12], [], ()) is not None


def test_rows_that_one_operation_draws_are_drawn_so_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row with XTC does not make the rest wait for one pass per kind."""
    its = [
        SamplingParams(seed=1, xtc_probability=0.5),
        *(SamplingParams(seed=s, top_k=s) for s in range(3, 7)),
    ]
    groups = list[int]()
    plain = RowGroup.at_once

    def counted(self: RowGroup, block: DrawInput) -> mx.array | None:
        groups.append(block.logits.shape[0])
        return plain(self, block)

    monkeypatch.setattr(RowGroup, "at_once", counted)
    logits, _ = some_logits(4, 5, 1)
    Sampler(its).sample(logits, [1] * 5)
    assert groups == [4]


def test_a_bias_moves_only_its_row() -> None:
    logits = mx.zeros((2, 1, V))
    its = [SamplingParams(temperature=0, logit_bias={123: 5.0}), SamplingParams(temperature=0)]
    assert Sampler(its).sample(logits, [1, 1]).tolist() == [[123], [0]]


def test_suppressed_ids_are_never_drawn_beside_rows_with_a_bias() -> None:
    never = tuple(token for token in range(V) if token not in (5, 7, 9))
    biases = {7: -200.0, 5: 200.0, 30: 300.0}
    its = [
        SamplingParams(temperature=2.0, seed=1, suppressed=never),
        SamplingParams(temperature=2.0, seed=2, suppressed=never, logit_bias=biases),
        SamplingParams(temperature=2.0, seed=3, logit_bias={30: 300.0}),
    ]
    logits, _ = some_logits(3, len(its), 8)
    drawn = [set(row) for row in np.array(Sampler(its).sample(logits, [0, 5, 9])).tolist()]
    assert drawn[0] <= {5, 7, 9}
    assert drawn[1:] == [{5}, {30}]


def test_rows_of_one_model_share_what_it_suppresses() -> None:
    """Tens of thousands of ids, where a GGUF file fills its vocabulary up."""
    never = tuple(range(30_000))
    its = [SamplingParams(seed=seed, suppressed=never) for seed in range(8)]
    biased = RowGroup(DrawKind.of(its[0]), its).biased
    assert biased is not None
    assert all(ids is never for ids in biased.ids)
    assert len({id(values) for values in biased.values}) == 1


def test_a_bias_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(BadTokenIds, match=f"id {V}"):
        Sampler([SamplingParams(logit_bias={V: 1.0})]).sample(mx.zeros((1, 1, V)), [0])


def test_penalties_want_a_history() -> None:
    sampler = Sampler([SamplingParams(repeat_penalty=1.1)])
    assert sampler.wants_history
    with pytest.raises(ValueError, match="history"):
        sampler.sample(mx.zeros((1, 1, V)), [0])


def reference(shared_data: Path) -> list[tuple[SamplingParams, np.ndarray, np.ndarray]]:
    arrays = np.load(shared_data / "sampler_ref.npz")
    table = json.loads((shared_data / "sampler_ref.json").read_text())
    return [
        (
            SamplingParams(**{name: value for name, value in entry.items() if name not in ("i", "support")}),
            arrays["logits"],
            arrays[f"p{entry['i']}"],
        )
        for entry in table
    ]


def test_probabilities_are_the_reference_ones(shared_data: Path) -> None:
    for p, logits, expected in reference(shared_data):
        if p.greedy:
            assert Sampler([p]).sample(mx.array(logits)[None, None], [0]).item() == expected.argmax()
            continue
        group = RowGroup(DrawKind.of(p), [p])
        block = DrawInput(mx.array(logits)[None, None], [0])
        found = np.exp(np.array(group.distribution(group.adjusted(block), [0]).dense(logits.size)))[0, 0]
        np.testing.assert_allclose(found, expected, atol=2e-7)


def test_draws_are_distributed_as_the_reference_is(shared_data: Path) -> None:
    """Chi-square over 20 000 positions, cells of at least 5 expected draws; the bound is a 0.1 % point."""
    draws = 20_000
    for p, logits, expected in reference(shared_data):
        block = mx.broadcast_to(mx.array(logits), (1, draws, logits.size))
        tokens = np.array(Sampler([p]).sample(block, [0]))[0]
        counts = np.bincount(tokens, minlength=logits.size)
        assert counts[expected == 0].sum() == 0
        cells = draws * expected >= 5
        observed = np.append(counts[cells], counts[~cells].sum())
        wanted = np.append(draws * expected[cells], draws * expected[~cells].sum())
        used = wanted > 0
        freedom = int(used.sum()) - 1
        statistic = ((observed - wanted)[used] ** 2 / wanted[used]).sum()
        # Wilson-Hilferty's approximation of the chi-square quantile at z = 3.09
        bound = (
            freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3 if freedom else 1e-9
        )
        assert statistic <= bound, p
