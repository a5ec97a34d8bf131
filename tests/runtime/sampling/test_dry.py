"""DRY against its definition, written out; and that it holds to what every sampler holds to."""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.sampling import dry
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler

V = 40
TEXT = [5, 6, 7, 8, 9, 5, 6, 7]


@dataclass(frozen=True)
class Ids:
    """These ids are breakers, each by itself."""

    them: frozenset[int]
    reach: int = 0

    def behind(self, ids: Sequence[int]) -> int:
        return next((n for n, one in enumerate(reversed(ids)) if one in self.them), len(ids))

    def breaks(self, token: int) -> bool:
        return token in self.them


params = st.builds(
    SamplingParams,
    temperature=st.just(0.0),
    dry_multiplier=st.sampled_from([0.8, 1e-300, 3.0, 100.0]),
    dry_base=st.sampled_from([1.0, 1.02, 1.75, 100.0]),
    dry_allowed_length=st.sampled_from([0, 1, 2, 3, 20]),
    dry_penalty_last_n=st.sampled_from([-1, -1, 1, 3, 10, 1000]),
    dry_breakers=st.sampled_from([None, None, Ids(frozenset({0})), Ids(frozenset({1, 2}))]),
)
texts = st.lists(st.integers(0, 4), min_size=1, max_size=60)


def by_definition(by: SamplingParams, text: Sequence[int]) -> dict[int, float]:
    """llama.cpp's, place by place: how far does what ends here equal what ends the text?"""
    window = list(text) if by.dry_penalty_last_n < 0 else list(text)[-by.dry_penalty_last_n :]
    limit = len(window) if by.dry_breakers is None else by.dry_breakers.behind(window)
    longest = dict[int, int]()
    for place in range(len(window) - 1):
        same = 0
        while same <= place and window[place - same] == window[-1 - same]:
            same += 1
        same = min(same, limit)
        follower = window[place + 1]
        if same >= by.dry_allowed_length:
            longest[follower] = max(longest.get(follower, 0), same)
    return {
        token: min(by.dry_multiplier * by.dry_base ** (n - by.dry_allowed_length), dry.LARGEST)
        for token, n in longest.items()
        if by.dry_breakers is None or not by.dry_breakers.breaks(token)
    }


def penalties(by: SamplingParams, text: Sequence[int], fed: int = 1) -> np.ndarray:
    """What the last `fed` columns lose, [fed, V]."""
    past, inputs = list(text[:-fed]), mx.array([list(text[-fed:])])
    return -np.array(dry.Repetitions([by]).apply(mx.zeros((1, fed, V)), [past], inputs))[0]


@settings(max_examples=150)
@given(by=params, text=texts)
def test_a_penalty_is_what_its_definition_says(by: SamplingParams, text: list[int]) -> None:
    expected = np.zeros(V)
    for token, lost in by_definition(by, text).items():
        expected[token] = lost
    np.testing.assert_allclose(penalties(by, text)[0], expected, rtol=1e-5, atol=1e-30)


@given(by=params, text=texts, fed=st.integers(1, 5))
def test_each_column_of_a_block_looks_back_from_its_own_place(
    by: SamplingParams, text: list[int], fed: int
) -> None:
    fed = min(fed, len(text))
    single = [penalties(by, text[: len(text) - fed + 1 + column])[0] for column in range(fed)]
    assert np.array_equal(penalties(by, text, fed), np.array(single))


def test_the_token_that_goes_on_loses_more_for_a_longer_repetition() -> None:
    by = SamplingParams(dry_multiplier=0.8)
    for count, lost in ((1, 0), (2, 0.8), (3, 0.8 * 1.75)):
        text = [5, 6, 7, 8, 9, *TEXT[3 - count : 3]] if count < 3 else TEXT
        assert penalties(by, text)[0].sum() == pytest.approx(lost)


def test_a_repetition_that_never_ends_costs_as_much_as_its_longest_that_counts() -> None:
    """The rounds of the search; a text of one word would else be compared with itself throughout."""
    by = SamplingParams(dry_multiplier=1e-9, dry_base=1.000001)
    assert dry.longest(by) == 1024
    assert dry.followers(np.full(20_000, 3, np.int32), by) == {3: 1024}
    assert dry.longest(SamplingParams(dry_multiplier=0.8)) < 40


def test_what_a_grammar_leaves_alone_can_be_drawn_at_any_penalty() -> None:
    by = SamplingParams(dry_multiplier=100.0, dry_base=100.0, seed=1, top_n_sigma=1.0)
    text = [3] * 500
    tokens = Sampler([by]).sample(
        mx.zeros((1, 1, V)),
        [500],
        history=[text[:-1]],
        inputs=mx.array([text[-1:]]),
        mask=mx.arange(V)[None, None] == 3,
    )
    assert tokens.item() == 3


def test_a_row_without_it_is_not_touched_beside_one_that_has_it() -> None:
    logits = mx.random.normal((2, 1, V), key=mx.random.key(3))
    its = [SamplingParams(dry_multiplier=5.0), SamplingParams()]
    found = dry.Repetitions(its).apply(logits, [TEXT[:-1]] * 2, mx.array([[7], [7]]))
    assert np.array_equal(np.array(found[1]), np.array(logits[1]))
    assert not np.array_equal(np.array(found[0]), np.array(logits[0]))


def test_it_wants_the_ids_before() -> None:
    sampler = Sampler([SamplingParams(dry_multiplier=1.0)])
    assert sampler.wants_history
    with pytest.raises(ValueError, match="history"):
        sampler.sample(mx.zeros((1, 1, V)), [0])


@pytest.mark.parametrize("off", [{"dry_multiplier": 0.0}, {"dry_penalty_last_n": 0}])
def test_it_is_off_without_a_multiplier_or_a_window(off: dict[str, float]) -> None:
    assert not Sampler([changed(SamplingParams(dry_multiplier=1.0), **off)]).wants_history  # pyright: ignore[reportArgumentType]  # a table


def test_a_single_operation_does_not_draw_it() -> None:
    assert Sampler([SamplingParams(dry_multiplier=1.0)]).plainly([8], [TEXT], [7]) is None
