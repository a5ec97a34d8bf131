"""What takes minutes (pull, push, create), told in lines of progress while a thread of its own does it.

A client that leaves stops it, and so does the end of the server: the next time that the work reports, it ends
as an interrupted command does, with no name changed.
What fails before the first line has a status; after it, a line says so.
"""

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from modelkit.server.calling import check_open, note_failure, unless_gone
from modelkit.server.faults import Fault, Refused, client_gone, refused
from modelkit.server.ollama.wire import line
from modelkit.server.serving import Job, serving_of, trace_of

Work = Callable[["TaskProgress"], None]
Line = dict[str, Any]
MOST_AT_ONCE = 4
_EVERY_S = 0.1
_SUCCESS: Line = {"status": "success"}
_running = threading.BoundedSemaphore(MOST_AT_ONCE)


class TaskProgress:
    """Hears of the work on its thread, and passes it on to the event loop. A Job of the server's state."""

    def __init__(self, emit: Callable[[Line], None]) -> None:
        self._fault: Fault | None = None
        self._emit, self._lock = emit, threading.Lock()
        self._label, self._total, self._done, self._told_s = "", 0, 0, 0.0

    def stop(self, fault: Fault) -> None:
        self._fault = self._fault or fault

    def say(self, sentence: str) -> None:
        self._check()
        self._emit({"status": sentence})

    def begin(self, label: str, total_bytes: int) -> None:
        self._check()
        with self._lock:
            self._label, self._total, self._done = label, total_bytes, 0
            self._tell()

    def advance(self, done_bytes: int) -> None:
        self._check()
        with self._lock:
            self._done += done_bytes
            if time.monotonic() >= self._told_s + _EVERY_S:
                self._tell()

    def finish(self) -> None:
        with self._lock:
            self._tell()

    def _tell(self) -> None:
        self._told_s = time.monotonic()
        # Clients keep one bar per digest, and cut pieces out of it.
        digest = "sha256:" + hashlib.sha256(self._label.encode()).hexdigest()
        progress = {"digest": digest, "total": self._total, "completed": max(0, self._done)}
        self._emit({"status": self._label, **progress})

    def _check(self) -> None:
        if self._fault is not None:
            raise Refused(self._fault)


async def run_task(request: Request, work: Work, *, streamed: bool) -> Response:
    """Raises what went wrong before the first line, or where one answer is wanted, at all."""
    state = serving_of(request).state
    check_open(serving_of(request))
    if not _running.acquire(blocking=False):
        raise refused("busy", f"{MOST_AT_ONCE} models are being fetched or made; try again later")
    lines = _lines(work, state.jobs)
    try:
        first = await unless_gone(request, anext(lines) if streamed else _last(lines))
    except BaseException:
        await lines.aclose()
        raise
    if not streamed:
        return JSONResponse(first)
    return StreamingResponse(_written(request, first, lines), media_type="application/x-ndjson")


async def _lines(work: Work, jobs: set[Job]) -> AsyncGenerator[Line]:
    """What is told, to its end. The semaphore is the thread's, and given back when that ends."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[Line | BaseException | None]()

    def put(one: Line | BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop has ended before the work has
            loop.call_soon_threadsafe(queue.put_nowait, one)

    progress = TaskProgress(put)
    jobs.add(progress)

    def run() -> None:
        try:
            work(progress)
            put(None)
        except BaseException as error:  # noqa: BLE001 -- told to the client, whatever it is
            put(error)
        finally:
            _running.release()
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(jobs.discard, progress)

    threading.Thread(target=run, name="modelkit-task", daemon=True).start()
    try:
        while (one := await queue.get()) is not None:
            if isinstance(one, BaseException):
                raise one
            yield one
        yield _SUCCESS
    finally:
        progress.stop(client_gone().fault)


async def _written(request: Request, first: Line, lines: AsyncGenerator[Line]) -> AsyncIterator[bytes]:
    try:
        yield line(first)
        async for one in lines:
            yield line(one)
    except Exception as error:  # noqa: BLE001 -- the status has gone out already
        fault = note_failure(serving_of(request), trace_of(request), error)
        yield line({"error": fault.message})
    finally:
        await lines.aclose()


async def _last(lines: AsyncGenerator[Line]) -> Line:
    last = _SUCCESS
    async for one in lines:
        last = one
    return last
