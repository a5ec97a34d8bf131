"""Prompt lookup finds what a naive search finds, and keeps up with what happens to rows."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate.drafter import Rows
from runtime.speculate.ngram import GRADES, NgramDrafter

Ids = list[int]


def naive(ids: Ids, longest: int, shortest: int, depth: int) -> Ids:
    """What followed the newest earlier occurrence of the longest suffix, by looking everywhere."""
    for size in range(min(longest, len(ids) - 1), shortest - 1, -1):
        for end in range(len(ids) - 1, size - 1, -1):
            if ids[end - size : end] == ids[-size:]:
                grown = list(ids)
                for ahead in range(depth):
                    grown.append(grown[end + ahead])
                return grown[len(ids) :]
    return []


def proposed(drafter: NgramDrafter, rows: list[Ids], depth: int) -> list[Ids]:
    proposal = drafter.propose(Rows(rows, Sampler([SamplingParams()] * len(rows))), depth)
    if proposal is None:
        return [[] for _ in rows]
    tokens: Any = proposal.tokens.tolist()
    assert all(len(row) == depth for row in tokens)
    return [row[:count] for row, count in zip(tokens, proposal.counts, strict=True)]


TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(ids=TEXTS, longest=st.integers(1, 4), depth=st.integers(1, 6), data=st.data())
def test_as_a_naive_search_however_the_text_grew(
    ids: Ids, longest: int, depth: int, data: st.DataObject
) -> None:
    shortest = data.draw(st.integers(1, longest))
    drafter = NgramDrafter(longest=longest, shortest=shortest)
    stops = data.draw(st.sets(st.integers(1, len(ids)), max_size=5)) | {len(ids)}
    for stop in sorted(stops):
        assert proposed(drafter, [ids[:stop]], depth) == [naive(ids[:stop], longest, shortest, depth)]


def test_a_repetition_goes_on() -> None:
    assert proposed(NgramDrafter(), [[9, 1, 2, 3, 1, 2, 3, 1, 2]], 7) == [[3, 1, 2, 3, 1, 2, 3]]


@given(
    texts=st.lists(TEXTS, min_size=3, max_size=3),
    moves=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=4),
)
def test_rows_move_with_what_is_known_of_them(texts: list[Ids], moves: list[tuple[int, int]]) -> None:
    drafter, rows = NgramDrafter(shortest=1), [list(text) for text in texts]
    proposed(drafter, rows, 3)
    for src, dst in moves:
        drafter.clear(dst) if src != dst else None
        drafter.move(src, dst)
        if src != dst:
            rows[dst], rows[src] = rows[src], [5]
        rows = [[*row, row[0]] for row in rows]
        assert proposed(drafter, rows, 3) == [naive(row, GRADES[-1], 1, 3) for row in rows]


def test_a_cleared_row_knows_nothing_of_the_one_before() -> None:
    drafter = NgramDrafter()
    proposed(drafter, [[1, 2, 3, 1, 2]], 2)
    drafter.clear(0)
    assert proposed(drafter, [[7, 8, 9, 4, 3, 1, 2]], 2) == [[]]


def test_nobody_knows_anything() -> None:
    assert NgramDrafter().propose(Rows([[1, 2, 3], [4]], Sampler([SamplingParams()] * 2)), 3) is None


def test_fewer_rows_than_before() -> None:
    drafter = NgramDrafter()
    drafter.resize(4)
    drafter.resize(1)
    assert proposed(drafter, [[1, 2, 3, 1, 2]], 1) == [[3]]


def test_a_longer_match_is_a_better_guess() -> None:
    text = list(range(100, 120))
    grades = [NgramDrafter().grade([[*text, 5, *text[10 - length : 10]]]) for length in (1, 2, 3, 4, 7, 8, 9)]
    assert grades == [0, 1, 1, 2, 2, 3, 3]


def test_the_best_guess_of_all_rows_counts() -> None:
    assert NgramDrafter().grade([[1, 2, 3], [1, 2, 3, 4, 5, 1, 2, 3, 4]]) == 2


def test_a_longer_match_further_back_wins_over_the_newest() -> None:
    assert proposed(NgramDrafter(), [[7, 1, 2, 8, 9, 1, 2, 5, 7, 1, 2]], 2) == [[8, 9]]


def test_one_row_without_a_match_does_not_silence_the_others() -> None:
    assert proposed(NgramDrafter(), [[1, 2, 3], [4, 5, 6, 4, 5]], 2) == [[], [6, 4]]


@given(ids=TEXTS, more=TEXTS)
def test_the_prompt_may_be_indexed_beforehand(ids: Ids, more: Ids) -> None:
    early, late = NgramDrafter(), NgramDrafter()
    early.begin(0, ids)
    early.grade([ids])
    assert proposed(early, [ids + more], 4) == proposed(late, [ids + more], 4)
