"""What several ranks should reach, and whether they did: for benchmarks/ranks.py.

    exchanges   one of the stream for a stage, two sums for a layer that is shared
    engine      what an engine takes for a step beyond a bare loop of steps: in one process, and one that
                leads where others follow
    memory      what weights take, beside the plan
    speed       n ranks of one thread each beside one process of n threads: the faster way to cut a model
                counts. In stages one sequence has one core at a time, so theirs is said beside one thread's

Each line has what was found, its bar, and "met" or "not met"; and mlx-lm's own figure where it was measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

ENGINE_MS, MEMORY, SPEED = 0.2, 0.05, 0.9
"""The bars: milliseconds of a step, a part of what the plan says, and of one process's speed."""
SINGLE, PEER = "one thread", "mlx-lm shards"
CHUNK = 8
"""Steps that are timed together: an answer of the engine, which has a token more."""
LONG = 4 * CHUNK

Rank = dict[str, float]
"""What one process found."""
Found = Mapping[str, Sequence[Sequence[Rank]]]
"""Of each way, of each round, what its ranks found."""


def goals(found: Found, ranks: int) -> Iterator[str]:
    """A line for each. Of rounds the one in the middle counts, and of speeds the best, on both sides."""
    several = [way for way in found if len(found[way][-1]) > 1 and way != PEER]
    for way in several:
        last = found[way][-1]
        sums, hops = (max(one[what] for one in last) for what in ("sums", "hops"))
        most = 0 if way == "stages" else max(2 * one["layers"] for one in last)
        limit = int(way != "shards")
        figure, bar = f"{sums:g} sums and {hops:g} of the stream", f"{most:g} and {limit}"
        if way == "shards" and PEER in found:
            figure += f" (mlx-lm: {found[PEER][-1][0]['sums']:g} sums)"
        yield _line(f"exchanges of a step, {way}", figure, f"<= {bar}", met=sums <= most and hops <= limit)
    for way in ("one", *several):
        more = median(rank["engine_ms"] - rank["step_ms"] for rank, *_ in found[way])
        own = median(rank["engine_thread_ms"] - rank["thread_ms"] for rank, *_ in found[way])
        figure = f"{more:+.2f} ms on {median(rank['step_ms'] for rank, *_ in found[way]):.2f}"
        figure += f", {own:+.2f} ms of its thread"
        yield _line(
            f"the engine's part of a step, {way}", figure, f"<= {ENGINE_MS} ms", met=more <= ENGINE_MS
        )
    for way in several:
        off = max(abs(one["held"] / one["planned"] - 1) for one in found[way][-1])
        yield _line(f"memory beside the plan, {way}", f"{off:.1%} off", f"<= {MEMORY:.0%}", met=off <= MEMORY)
    yield from _speeds([way for way in several if len(found[way][-1]) == ranks], found, ranks)


def _speeds(ways: Sequence[str], found: Found, ranks: int) -> Iterator[str]:
    """One sequence has one stage at a time; several, and the chunks of a prompt, have all of them."""
    for what, name in (("rate", "a sequence"), ("rows_rate", "eight rows"), ("read_rate", "a prompt")):
        fastest = {
            one: max(rank[what] for rank, *_ in found[one]) for one in found if what in found[one][0][0]
        }
        parts = {way: fastest[way] / fastest["one"] for way in ways}
        figure = ", ".join(f"{way} {part:.2f}" for way, part in parts.items())
        figure += f" (stages by one thread: {fastest['stages'] / fastest[SINGLE]:.2f})"
        if PEER in fastest:
            figure += f", mlx-lm {fastest[PEER] / fastest['one']:.2f}"
        met = max(parts.values()) >= SPEED
        yield _line(f"{name}, {ranks} ranks by {ranks} threads", figure, f">= {SPEED}", met=met)


def _line(name: str, figure: str, bar: str, *, met: bool) -> str:
    return f"{'met' if met else 'not met':<9}{name + ':':<40}{figure}; {bar}"


def counting(group: Any) -> Callable[[], dict[str, int]]:
    """Counts, from now on, sums that this rank takes part in, and what it sends but for them; what it returns
    says how many. To be called before the model is loaded.
    """
    from runtime.ranks.stage_rank import StageRank

    calls = {"sums": 0, "sends": 0}
    send, add_up, inside = group.send, StageRank.sum, False

    def sent(*given: Any) -> Any:
        calls["sends"] += not inside
        return send(*given)

    def added(seat: Any, x: Any) -> Any:
        nonlocal inside
        calls["sums"] += group.ring is None
        inside = True
        try:
            return add_up(seat, x)
        finally:
            inside = False

    group.send, StageRank.sum = sent, added
    # Nodes of ours count by themselves: many sums are a part of another one.
    return lambda: calls if group.ring is None else calls | {"sums": group.ring.summed}


def led(group: Any, model: Any, prompt: int, tokens: int, threads: int) -> Rank:
    """Milliseconds of a step of an engine that leads, and of its thread's processor time, which grows less
    where others use the machine; 0 for ranks that follow.
    """
    from runtime.engine.engine import Engine
    from runtime.engine.options import Options
    from runtime.ranks.follow import Follower
    from runtime.ranks.lead import Leading

    if group.rank:
        Follower(group, model).run()
        return {"engine_ms": 0.0, "engine_thread_ms": 0.0}
    options = Options(context_length=prompt + LONG + 1, threads=threads)
    engine = Engine(lambda: model, options, leading=None if group.size == 1 else Leading(group))
    try:
        answers = [
            (_answer(engine, prompt, CHUNK), _answer(engine, prompt, LONG))
            for _ in range(1 + tokens // CHUNK)
        ]
    finally:
        engine.close()
    # What begins and ends an answer is no part of a step.
    own_ms = median((long[1] - short[1]) / (LONG - CHUNK) for short, long in answers[1:]) * 1e3
    return {
        "engine_ms": median(short[0] for short, _ in answers[1:]) / CHUNK * 1e3,
        "engine_thread_ms": own_ms,
    }


def _answer(engine: Any, prompt: int, steps: int) -> tuple[float, float]:
    """Seconds of so many steps, and processor time of the engine's thread for all of the answer."""
    import time

    from runtime.engine.request import Request
    from runtime.sampling.params import SamplingParams

    before_s = engine.call(lambda _: time.thread_time())
    with engine.submit(Request((0,) * prompt, steps + 1, SamplingParams(temperature=0))) as stream:
        for _ in stream:
            pass
    assert stream.finish is not None
    return stream.finish.usage.decode_s, engine.call(lambda _: time.thread_time()) - before_s


def step_of(took_s: Sequence[float]) -> float:
    """Milliseconds of a step by what each took, as `led` has it: of a whole number of its answers."""
    chunks = [took_s[at : at + CHUNK] for at in range(0, len(took_s) - CHUNK + 1, CHUNK)]
    return median(map(sum, chunks)) / CHUNK * 1e3
