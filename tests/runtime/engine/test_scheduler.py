"""The decision of what a step does, on counts alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.scheduler import Load, Work, budget, decide, passes

LOADS = st.builds(
    Load,
    decoding=st.integers(0, 64),
    prefilling=st.integers(0, 100_000),
    waiting=st.integers(0, 64),
    free_rows=st.integers(0, 64),
)


@pytest.mark.parametrize(
    ("load", "work"),
    [
        (Load(0, 0, 0, 8), Work()),
        (Load(0, 0, 2, 8), Work(admit=True)),
        (Load(3, 0, 1, 0), Work(decode=True)),
        (Load(3, 1000, 1, 4), Work(decode=True, prefill=509)),
        (Load(0, 100, 0, 8), Work(prefill=100)),
        (Load(3, 100, 1, 4, passing=True), Work(admit=True)),
        (Load(3, 100, 1, 0, passing=True), Work(decode=True, prefill=100)),
    ],
)
def test_examples(load: Load, work: Work) -> None:
    assert decide(load, 512, 4096) == work


@given(LOADS, st.integers(1, 4096), st.integers(1, 4096))
def test_work_is_done_whenever_there_is_some(load: Load, tokens: int, paced: int) -> None:
    nothing = not load.decoding and not load.prefilling and not (load.waiting and load.free_rows)
    assert decide(load, tokens, paced).idle == nothing


@given(LOADS, st.integers(1, 4096), st.integers(1, 4096))
def test_a_prefill_never_stalls_decoders(load: Load, tokens: int, paced: int) -> None:
    work = decide(load, tokens, paced)
    assert work.admit or work.decode == (load.decoding > 0)
    assert work.prefill <= max(min(tokens - load.decoding, paced), 1)


@pytest.mark.parametrize(
    ("tokens", "stages", "of_a_step"),
    [(512, 1, 512), (512, 2, 64), (512, 4, 64), (2048, 2, 256), (32, 2, 32), (64, 1, 64)],
)
def test_stages_read_a_prompt_in_smaller_chunks(tokens: int, stages: int, of_a_step: int) -> None:
    assert budget(tokens, stages) == of_a_step


@given(st.lists(st.integers(1, 60)), st.integers(1, 64))
def test_who_is_passed_gets_half_of_the_time(prompts: list[int], chunk: int) -> None:
    read = passed = 0
    while read < 400:
        read += chunk
        for prompt in [one for one in prompts if passes(one, read - passed, 400 - read)]:
            if passes(prompt, read - passed, 400 - read):
                passed += prompt
        assert passed <= read


@given(LOADS, st.integers(1, 4096), st.integers(1, 4096))
def test_one_prompt_is_read_at_a_time(load: Load, tokens: int, paced: int) -> None:
    assert not (decide(load, tokens, paced).admit and load.prefilling)


@given(LOADS, st.integers(1, 4096), st.integers(1, 4096))
def test_a_row_is_put_back_before_more_of_it_is_read(load: Load, tokens: int, paced: int) -> None:
    """Others write meanwhile, and nobody comes."""
    assert decide(replace(load, restoring=True), tokens, paced) == Work(load.decoding > 0, restore=True)
