"""Threads for products: as many as others leave cores free; and what an engine asks for reaches the BLAS."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.cpu import bind, native, thread_count, threads
from runtime.cpu.bind import report
from runtime.cpu.thread_limits import VARIABLES, as_allowed
from runtime.cpu.threads import QUIET_LOOKS, STALE_S, WINDOW_S, Choice, Crowd, Threads
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from runtime.host import ProcessorTimes
from runtime.sampling.params import SamplingParams
from tests.support.parity import Reference

CORES = 4
START = ProcessorTimes(at_s=100.0, idle_s=1000.0, own_s=50.0, processors=CORES, running=1)


@pytest.fixture(autouse=True)
def _free() -> Iterator[None]:
    """An engine's thread keeps off the core that computes; here it is the tests' own, which others need."""
    yield
    if native.kernels is not None:
        native.kernels.let_back()


class Machine:
    """What is seen of a machine on which others keep `others` cores busy and this process `own`."""

    def __init__(self) -> None:
        self.now = START

    def after(self, seconds: float = WINDOW_S, *, others: float, own: float = 1.0) -> ProcessorTimes:
        idle = max(0.0, CORES - others - own)
        self.now = replace(
            self.now,
            at_s=self.now.at_s + seconds,
            idle_s=self.now.idle_s + idle * seconds,
            own_s=self.now.own_s + (CORES - others - idle) * seconds,
        )
        return self.now


def crowd_at(start: ProcessorTimes = START) -> tuple[Crowd, Machine]:
    crowd, machine = Crowd(CORES), Machine()
    crowd.see(start)
    return crowd, machine


@pytest.mark.parametrize(
    ("others", "count"), [(0.0, 4), (0.3, 4), (0.5, 3), (1.0, 3), (2.2, 2), (3.0, 1), (4.0, 1)]
)
@pytest.mark.parametrize("own", [0.5, 4.0])
def test_as_many_as_others_leave_free(others: float, count: int, own: float) -> None:
    crowd, machine = crowd_at()
    crowd.see(machine.after(others=others, own=own))
    assert crowd.threads == count
    assert crowd.others == pytest.approx(others)


def test_threads_that_wait_keep_no_cores_busy() -> None:
    """`other programs keep 19.0 cores busy` was said on a machine that has two."""
    crowd, _ = crowd_at(replace(START, running=20))
    assert (crowd.threads, crowd.others) == (1, CORES)


def test_fewer_at_once_and_more_only_when_others_stay_away() -> None:
    crowd, machine = crowd_at()
    seen: list[int] = []
    for others in (3.0, 0.0, 3.0, *[0.0] * QUIET_LOOKS):
        crowd.see(machine.after(others=others))
        seen.append(crowd.threads)
    assert seen == [1, 1, 1, *[1] * (QUIET_LOOKS - 1), 4]


def test_the_least_of_the_quiet_looks_counts() -> None:
    crowd, machine = crowd_at()
    for others in (3.0, 0.0, 2.0):
        crowd.see(machine.after(others=others))
    assert crowd.threads == 2


@pytest.mark.parametrize(("running", "count"), [(1, 4), (2, 3), (25, 1)])
def test_what_runs_now_counts_at_the_start_and_after_a_pause(running: int, count: int) -> None:
    start = replace(START, running=running)
    crowd, machine = crowd_at(start)
    assert crowd.threads == count
    crowd.see(machine.after(others=0.0))
    crowd.see(replace(machine.after(STALE_S * 3, others=4.0), running=running))
    assert crowd.threads == count


def test_a_system_that_does_not_say_changes_nothing() -> None:
    crowd, machine = crowd_at()
    crowd.see(machine.after(others=3.0))
    crowd.see(None)
    assert crowd.threads == 1
    crowd = Crowd(CORES)
    crowd.see(None)
    assert crowd.threads == CORES


def test_one_core_is_not_looked_at() -> None:
    assert not Crowd(1).due(1e9)
    crowd, _ = crowd_at()
    assert not crowd.due(START.at_s + WINDOW_S / 2)
    assert crowd.due(START.at_s + WINDOW_S)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(-1, 9), st.floats(-1, 9)), max_size=20))
def test_there_is_always_a_thread_and_never_more_than_cores(looks: list[tuple[float, float, float]]) -> None:
    """Whatever the counters do: they are coarse, and some hosts make them up."""
    crowd, now = Crowd(CORES), START
    for passed, idle, own in looks:
        now = replace(now, at_s=now.at_s + passed, idle_s=now.idle_s + idle, own_s=now.own_s + own)
        crowd.see(now)
        assert 1 <= crowd.threads <= CORES


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "most_threads", lambda: CORES)
    monkeypatch.setattr(threads, "_working", type(threads._working)())


@pytest.mark.usefixtures("four_cores")
def test_engines_at_work_divide_the_cores_and_those_at_rest_do_not() -> None:
    one, other = Threads(look=lambda: START), Threads(look=lambda: START)
    for engine in (one, other, one):
        engine.before_step(START.at_s)
    assert (one.choice.threads, other.choice.threads) == (2, 2)
    other.rest()
    one.before_step(START.at_s)
    assert one.choice.threads == CORES
    other.before_step(START.at_s)
    del other  # as an engine that was closed in the middle of its work
    one.before_step(START.at_s)
    assert one.choice.threads == CORES


@pytest.mark.usefixtures("four_cores")
def test_a_number_that_was_asked_for_holds_whatever_others_do() -> None:
    asked = Threads(3, look=lambda: replace(START, running=99))
    asked.before_step(START.at_s)
    assert asked.choice == Choice(3, CORES, wanted=True)


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (1, "4 threads, all that there are cores for"),
        (2, "2 threads of 4: 2 ranks share this machine"),
        (9, "1 thread of 4: 9 ranks share this machine"),
    ],
)
def test_ranks_keep_an_equal_part_of_a_machine_each(
    ranks: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "limiting", lambda: None)
    its = Threads(ranks=ranks, look=lambda: replace(START, running=99))
    its.before_step(START.at_s)
    assert str(its.choice) == said


@pytest.mark.usefixtures("four_cores")
def test_a_thread_that_prepares_short_steps_all_the_time_has_a_core() -> None:
    short, long = Threads(look=lambda: START), Threads(look=lambda: START)
    for _ in range(40):
        short.stepped(0.0002, 0.0003)
        long.stepped(0.0005, 0.004)
    short.before_step(START.at_s, beside=True)
    assert (short.choice.threads, short.choice.host) == (CORES - 1, True)
    short.before_step(START.at_s)
    assert short.choice.threads == CORES, "nothing is prepared beside a prompt, or drafts that are waited for"
    short.rest()
    long.before_step(START.at_s, beside=True)
    assert (long.choice.threads, long.choice.host) == (CORES, False)


@pytest.mark.usefixtures("four_cores")
def test_where_others_leave_one_core_that_is_the_reason() -> None:
    its = Threads(look=lambda: replace(START, running=CORES))
    for _ in range(40):
        its.stepped(1.0, 1.0)
    its.before_step(START.at_s, beside=True)
    assert (its.choice.threads, its.choice.host) == (1, False)


def test_only_plain_steps_behind_each_other_are_prepared_beside_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[bool] = []
    before = Threads.before_step

    def look(its: Threads, now_s: float, *, beside: bool = False) -> None:
        asked.append(beside)
        before(its, now_s, beside=beside)

    monkeypatch.setattr(Threads, "before_step", look)
    reference = Reference("qwen3")
    engine = Engine(lambda: reference.load(tmp_path), Options(64, threads=1))
    list(engine.submit(Request((5, 6, 7), 6, SamplingParams(temperature=0))))
    engine.close()
    plain = asked.index(True)
    assert plain == 2, "behind the prompt, and a step that was not in a row yet"
    assert all(asked[plain : plain + 4])


def test_why_is_said() -> None:
    assert str(Choice(4, 4, 0.1)) == "4 threads, all that there are cores for"
    assert str(Choice(1, 4, 2.96)) == "1 thread of 4: other programs keep 3.0 cores busy"
    assert str(Choice(2, 4, 0.0, engines=2)) == "2 threads of 4: 2 models are at work"
    assert str(Choice(3, 4, 0.0, host=True)) == "3 threads of 4: preparing such short steps needs a core"
    assert str(Choice(9, 4, wanted=True)) == "9 threads, as asked for"
    assert str(Choice(2, 2, 0.1, said_by="OMP_NUM_THREADS")) == "2 threads, as OMP_NUM_THREADS says"


def test_a_variable_that_leaves_cores_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads.host, "cores", lambda: 4)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "9")
    assert Threads().choice.said_by is None, "there are no more than four"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert Threads().choice.said_by == "OMP_NUM_THREADS"
    assert Threads(2).choice.said_by is None, "a number that was asked for needs no more reason"


@pytest.mark.skipif(not thread_count(), reason="there are neither kernels nor a bound BLAS")
def test_each_engine_s_own_number_reaches_pool_and_library(tmp_path: Path) -> None:
    reference = Reference("qwen3")
    seen: list[int] = []
    request = Request((5, 6, 7), 2, SamplingParams(temperature=0))
    engines = [Engine(lambda i=i: reference.load(tmp_path / str(i)), Options(64, threads=i)) for i in (1, 2)]
    for engine in (*engines, *engines):
        list(engine.submit(request))
        seen.append(thread_count())
        assert report().threads in (0, seen[-1])
        assert engine.call(lambda _model: thread_count()) == seen[-1]
    for engine in engines:
        engine.close()
    assert seen == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("variables", "most"),
    [
        ({}, 4),
        ({"OPENBLAS_NUM_THREADS": "3", "OMP_NUM_THREADS": "1"}, 3),
        ({"OMP_NUM_THREADS": "2"}, 2),
        ({"OPENBLAS_NUM_THREADS": "99"}, 4),
        ({"OPENBLAS_NUM_THREADS": "0"}, 4),
        ({"OMP_NUM_THREADS": "2,1"}, 4),
    ],
)
def test_variables_of_other_programs_are_a_limit(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], most: int
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert as_allowed(4) == most


@pytest.mark.parametrize("bound", [0, 4])
def test_without_kernels_the_number_is_the_library_s(monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    monkeypatch.setattr(native, "kernels", None)
    monkeypatch.setattr(bind, "report", lambda: bind.BlasReport("some", threads=bound))
    monkeypatch.setattr(bind, "most_threads", lambda: bound or 1)
    assert (thread_count(), threads.most_threads()) == (bound, bound or 1)


def test_a_machine_that_has_just_become_quiet_is_not_called_busy() -> None:
    assert "quiet" in str(Choice(1, 2, 0.1))
    assert "1.5 cores busy" in str(Choice(1, 2, 1.5))
