"""Answers that are left before their end, by any thread and in every way, and models that are closed."""

import copy
import gc
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import modelkit
from modelkit.answers.streams import GenerationStream
from modelkit.errors import ModelClosed, ModelkitError, RequestError
from tests.support.standing import standing
from tests.support.tiny import TEMPLATE, write_model

PATIENCE_S = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("leaving") / "model", template=TEMPLATE)


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[modelkit.Model]:
    with modelkit.load(folder) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def begin(model: modelkit.Model, count: int = 100) -> GenerationStream:
    return model.generate("Once", raw=True, seed=1, num_predict=count, stream=True)


def close_late(pieces: GenerationStream, wait: float) -> None:
    time.sleep(wait)
    pieces.close()


def test_what_works_here_alone_can_be_neither_copied_nor_sent(model: modelkit.Model) -> None:
    """A copy would be closed with what it was made of; and a process would wait for what it cannot read."""
    with begin(model, 1) as pieces:
        for one in (model, modelkit.AsyncModel(model), pieces):
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=f"a {type(one).__name__} cannot be copied or pickled"):
                    make(one)
        answer = pieces.whole()
    assert pickle.loads(pickle.dumps(answer)) == answer


def test_another_thread_ends_the_readers_loop(model: modelkit.Model, pool: ThreadPoolExecutor) -> None:
    whole = model.generate("Once", raw=True, seed=1, num_predict=100)
    for number in range(1000):
        rng = random.Random(number)
        pieces = begin(model, rng.choice((1, 3, 100)))
        reading = pool.submit("".join, pieces)
        closing = [pool.submit(close_late, pieces, rng.choice((0, 0, 1e-4, 2e-3))) for _ in range(2)]
        for job in closing:
            job.result(PATIENCE_S)
        text = reading.result(PATIENCE_S)
        assert text == pieces.result.text
        assert whole.text.startswith(text)
        assert pieces.result.ids == whole.ids[: len(pieces.result.ids)]
        assert pieces.result.reason in ("cancelled", "length")


def leave_by_break(pieces: GenerationStream) -> None:
    for _ in pieces:
        break


def leave_in_the_loop(pieces: GenerationStream) -> None:
    for _ in pieces:
        pieces.close()


def leave_by_error(pieces: GenerationStream) -> None:
    next(pieces)
    with suppress(KeyError), pieces:
        raise KeyError


@pytest.mark.parametrize("leave", [leave_in_the_loop, leave_by_error, GenerationStream.close])
def test_every_way_out_gives_a_result(
    model: modelkit.Model, leave: Callable[[GenerationStream], None]
) -> None:
    with standing(model):
        pieces = begin(model, 200)
        leave(pieces)
    assert pieces.result.reason == "cancelled"
    assert pieces.result.usage.prompt_tokens == 4
    assert list(pieces) == []


def test_a_stream_that_nobody_holds_any_more_stops(model: modelkit.Model) -> None:
    """Without a collection: nothing refers back to the stream."""
    gc.disable()
    try:
        with standing(model):
            inner = [begin(model, 200) for _ in range(3)]
            streams = [pieces._stream for pieces in inner]  # pyright: ignore[reportPrivateUsage]
            for pieces in inner:
                leave_by_break(pieces)
            del pieces, inner
        assert all(stream.cancelled for stream in streams)
    finally:
        gc.enable()
    assert all(stream.close().usage.generated_tokens < 200 for stream in streams)


def test_a_result_before_the_end_is_refused(model: modelkit.Model) -> None:
    with begin(model, 50) as pieces:
        next(pieces)
        with pytest.raises(RequestError, match="has not ended"):
            _ = pieces.result
    assert pieces.result.usage.generated_tokens == len(pieces.result.ids) > 0


def test_closing_the_model_ends_all_streams(folder: Path, pool: ThreadPoolExecutor) -> None:
    model = modelkit.load(folder)
    streams = [begin(model, 250) for _ in range(6)]
    reading = [pool.submit("".join, pieces) for pieces in streams]
    closing = [pool.submit(model.close) for _ in range(2)]
    for job in closing:
        job.result(PATIENCE_S)
    texts = [job.result(PATIENCE_S) for job in reading]
    assert texts == [pieces.result.text for pieces in streams]
    assert {pieces.result.reason for pieces in streams} <= {"cancelled", "length"}


def test_an_engine_that_dies_is_told_to_readers_and_forgiven_to_those_who_left(folder: Path) -> None:
    with modelkit.load(folder) as model:
        reader, left = begin(model, 250), begin(model, 250)
        next(reader)
        left.cancel()

        def die(*_: object) -> None:
            raise SystemExit(3)

        engine = model._running.engine  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        engine._loop.work = engine._thread._work = die  # pyright: ignore
        with pytest.raises(ModelkitError, match="SystemExit"):
            list(reader)
        with pytest.raises(ModelkitError, match="SystemExit"):
            _ = reader.result
        assert left.result.reason == "cancelled"
        with pytest.raises(ModelClosed, match="SystemExit"):
            model.generate("Once")


USES: dict[str, Callable[[modelkit.Model], object]] = {
    "generate": lambda model: model.generate("a"),
    "generate ids": lambda model: model.generate([1, 2], stream=True),
    "chat": lambda model: model.chat([{"role": "user", "content": "a"}]),
    "logits": lambda model: model.logits([1, 2]),
    "prefixes": lambda model: model.prefixes(),
    "encode": lambda model: model.encode("a"),
    "decode": lambda model: model.decode([1]),
    "prompt": lambda model: model.prompt([{"role": "user", "content": "a"}]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_closed_model_says_so(folder: Path, use: Callable[[modelkit.Model], object]) -> None:
    model = modelkit.load(folder)
    model.close()
    model.close()
    with pytest.raises(ModelClosed, match="is closed"):
        use(model)
    assert "closed" in repr(model)
    assert model.context_length == 256


def test_requests_that_race_with_closing_end_or_are_refused(folder: Path, pool: ThreadPoolExecutor) -> None:
    for wait in (0.0, 0.001, 0.005, 0.02):
        model = modelkit.load(folder)
        stop = threading.Event()

        def ask(model: modelkit.Model = model, stop: threading.Event = stop) -> str:
            try:
                while not stop.is_set():
                    model.generate("Once", raw=True, num_predict=5)
            except ModelClosed:
                return "closed"
            return "never"

        asking = [pool.submit(ask) for _ in range(4)]
        time.sleep(wait)
        model.close()
        assert {job.result(PATIENCE_S) for job in asking} == {"closed"}
        stop.set()


def test_a_model_that_nobody_holds_is_closed(folder: Path) -> None:
    model = modelkit.load(folder)
    engine = model._open.engine
    del model
    gc.collect()
    until = time.monotonic() + PATIENCE_S
    while engine.alive and time.monotonic() < until:
        time.sleep(0.01)
    assert not engine.alive


def test_an_answer_that_is_read_holds_its_model(model: modelkit.Model, folder: Path) -> None:
    pieces = begin(modelkit.load(folder))
    gc.collect()
    assert "".join(pieces) == begin(model).whole().text


def to_a_stop_string(pieces: GenerationStream) -> None:
    assert "".join(pieces)
    assert pieces.result.stop is not None


def to_a_stop_string_in_events(pieces: GenerationStream) -> None:
    while not pieces.ended:
        pieces.take_events()
    assert pieces.result.stop is not None


@pytest.mark.parametrize(
    "end", [to_a_stop_string, to_a_stop_string_in_events, GenerationStream.close, GenerationStream.cancel]
)
def test_an_answer_that_is_over_holds_no_model(
    model: modelkit.Model, folder: Path, end: Callable[[GenerationStream], None]
) -> None:
    stop = begin(model).whole().text[20]
    other = modelkit.load(folder)
    engine = other._open.engine
    pieces = other.generate("Once", raw=True, seed=1, num_predict=100, stream=True, stop=[stop])
    del other
    end(pieces)
    gc.collect()
    until = time.monotonic() + PATIENCE_S
    while engine.alive and time.monotonic() < until:
        time.sleep(0.01)
    assert not engine.alive
    assert pieces.result.ids is not None


FORKS = """
import os, signal, sys
import modelkit

model = modelkit.load(sys.argv[1])
if os.fork() == 0:
    signal.alarm(60)
    try:
        model.generate("Once", raw=True, num_predict=2)
    except modelkit.errors.ModelClosed as error:
        print(error.message, model.alive, model.close(), flush=True)
    sys.exit()
os.wait()
print(len(model.generate("Once", raw=True, num_predict=2).ids))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_forked_process_is_told_that_the_model_is_not_its_own(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, str(folder)], capture_output=True, text=True, check=True
    )
    said = "the model cannot answer any more: it runs in the process that this one was forked from"
    assert done.stdout == f"{said} False None\n2\n"


READS_IN_FORKS = """
import asyncio, os, signal, sys
import modelkit

async def follow(pieces):
    async for _ in pieces:
        pass

def in_a_fork(read):
    pieces = model.generate("Once", raw=True, num_predict=200, stream=True)
    if os.fork() == 0:
        signal.alarm(60)
        try:
            read(pieces)
        except modelkit.errors.ModelClosed as error:
            print(error.message.partition(":")[0], end=" ", flush=True)
        pieces.close()
        print(pieces.result.reason if read is type(pieces).close else "failed", flush=True)
        os._exit(0)
    os.wait()
    assert len([*pieces.pieces()]) > 0

model = modelkit.load(sys.argv[1])
for read in (list, lambda pieces: asyncio.run(follow(pieces)), modelkit.GenerationStream.close):
    in_a_fork(read)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_an_answer_ends_in_a_fork(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READS_IN_FORKS, str(folder)], capture_output=True, text=True
    )
    said = "the model cannot answer any more failed\n"
    assert done.stdout == f"{said}{said}cancelled\n", done.stderr


LOADS_IN_FORKS = """
import asyncio, os, signal, sys
import modelkit

async def ask():
    async with await modelkit.AsyncModel.load(sys.argv[1]) as model:
        return len((await model.generate("Once", raw=True, num_predict=2)).ids)

def in_a_fork():
    if os.fork() == 0:
        signal.alarm(60)
        try:
            print(asyncio.run(ask()), flush=True)
        except modelkit.errors.LoadError as error:
            print(error.message.partition(": ")[2].partition(",")[0], flush=True)
        os._exit(0)
    os.wait()

in_a_fork()
print(asyncio.run(ask()), flush=True)
in_a_fork()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_fork_of_a_process_that_has_computed_is_told_that_it_cannot(folder: Path) -> None:
    """It waited for MLX's threads, which it has not, without end; and for those of `AsyncModel`."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOADS_IN_FORKS, str(folder)], capture_output=True, text=True
    )
    said = "MLX has computed in the process that this one was forked from"
    assert done.stdout == f"2\n2\n{said}\n", done.stderr


def test_an_object_that_closes_its_model_when_the_program_ends(folder: Path) -> None:
    """No thread can begin then, who waits for one waits without end, and half of Python is gone."""
    program = """
import sys, modelkit
class Owner:
    def __init__(self):
        self.model = modelkit.load(sys.argv[1])
        self.pieces = self.model.generate("a", raw=True, stream=True)
    def __del__(self):
        self.pieces.close()
        self.model.close()
        print(self.pieces.result.reason, self.model.alive)
owner = Owner()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "cancelled False\n"), done.stderr


def test_threads_that_had_models_and_ended_do_not_abort_the_process_at_its_exit(folder: Path) -> None:
    """Of every thread that MLX computed for it keeps a worker, and of one that ended it cannot end that."""
    program = """
import sys, threading, modelkit
def use():
    model = modelkit.load(sys.argv[1])
    model.generate("a", raw=True, num_predict=2)
    model.close()
for _ in range(4):
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
