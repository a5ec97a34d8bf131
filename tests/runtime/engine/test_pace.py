"""How much of a prompt is read in one step, beside rows that write and alone, from given times."""

import pytest

from runtime.engine.pace import ALONE_S, FIRST, GAP_S, LEAST, LEAST_ALONE, Pace


def read(pace: Pace, token_s: float, *, written_s: float = 0.0, times: int = 20) -> Pace:
    for _ in range(times):
        tokens = pace.beside
        pace.read(tokens, tokens * token_s + written_s, wrote=written_s > 0)
    return pace


@pytest.mark.parametrize("token_s", [0.0002, 0.0007, 0.002])
def test_reading_adds_no_more_than_a_short_gap(token_s: float) -> None:
    tokens = read(Pace(), token_s).beside
    assert 0.8 * GAP_S <= tokens * token_s <= GAP_S


def test_what_rows_write_is_no_time_of_reading() -> None:
    pace = Pace()
    for _ in range(20):
        pace.wrote(0.03)
    assert read(pace, 0.001, written_s=0.03).beside * 0.001 == pytest.approx(GAP_S, rel=0.2)


def test_beside_a_slow_step_as_much_is_read_as_that_takes() -> None:
    pace = Pace()
    for _ in range(20):
        pace.wrote(0.8)
    assert read(pace, 0.01, written_s=0.8).beside * 0.01 == pytest.approx(0.8, rel=0.2)


def test_before_anything_was_timed_a_little_is_read() -> None:
    assert Pace().beside == FIRST
    assert Pace().alone == LEAST_ALONE


def test_however_slow_it_is_reading_goes_on() -> None:
    assert read(Pace(), 3.0).beside == LEAST
    assert read(Pace(), 3.0).alone == LEAST_ALONE


@pytest.mark.parametrize("token_s", [0.00002, 0.0002, 0.001])
def test_a_step_that_reads_alone_is_no_long_wait(token_s: float) -> None:
    tokens = read(Pace(), token_s).alone
    assert 0.75 * ALONE_S <= tokens * token_s <= ALONE_S


def test_where_chunks_change_bits_no_clock_decides_on_them() -> None:
    assert read(Pace(steady=False), 3.0).alone == Pace(steady=False).alone > 1 << 30


def test_after_a_stall_it_reads_as_before() -> None:
    pace = read(Pace(), 0.001)
    before = pace.beside
    pace.read(before, 10.0, wrote=False)
    assert pace.beside < before
    assert read(pace, 0.001).beside == before


@pytest.mark.parametrize("stalls", [1, 3])
def test_a_stall_while_rows_wrote_lengthens_no_gap_of_a_prompt(stalls: int) -> None:
    pace = read(Pace(), 0.001, written_s=0.01)
    for seconds in [0.01] * 20 + [2.0] * stalls:
        pace.wrote(seconds)
    assert pace.beside * 0.001 <= GAP_S


def test_a_few_tokens_before_a_mark_make_no_later_step_shorter() -> None:
    pace = read(Pace(), 0.001)
    before = pace.beside, pace.alone
    pace.read(2, 0.1, wrote=False)
    assert (pace.beside, pace.alone) == before


def test_a_clock_that_stands_still_is_no_fault() -> None:
    pace = Pace()
    pace.read(64, 0.0, wrote=False)
    assert pace.beside >= LEAST
