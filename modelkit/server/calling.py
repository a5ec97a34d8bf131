"""A call on a model that is not a stream of events, and what all requests have in common: they end when the
client leaves, or the server, and what became of them is noted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from modelkit.interest import Interest
from modelkit.model import Model
from modelkit.server.adapter_choice import choosing, split_adapters
from modelkit.server.faults import TOLD_IN_THE_LOG, Fault, Refused, client_gone, fault_of
from modelkit.server.models.pool import Lease
from modelkit.server.serving import Serving, serving_of, threads_for, trace_of
from modelkit.server.trace import Trace

T = TypeVar("T")


async def call(
    request: Request,
    model: str,
    function: Callable[[Model], T],
    keep_alive: float | None = None,
    *,
    embeds: bool = False,
) -> T:
    """Run something else on a model, in a worker thread: tokenize, embed. Where its client leaves meanwhile,
    it ends with its present piece. model: as in Ask. embeds: it takes longer than a moment.
    """
    serving, trace, interest = serving_of(request), trace_of(request), Interest()
    check_open(serving)
    name, adapters = split_adapters(model)

    async def run() -> T:
        async with serving.pool.acquire(name, keep_alive, turn=False) as lease:
            note_lease(trace, model, lease)
            own = choosing(lease.model, adapters)
            work = partial(interest.work, partial(function, own))
            threads = threads_for(request, patient=embeds)
            return await asyncio.get_running_loop().run_in_executor(threads, work)

    try:
        return await unless_gone(request, run())
    finally:
        interest.end()


def note_lease(trace: Trace, asked: str, lease: Lease) -> None:
    """The request has its model, which it called so."""
    trace.model, trace.asked = lease.model.name, asked
    trace.load_s, trace.queued_s = lease.load_s, lease.queued_s


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """What the work gives. It is cancelled when the client leaves, or the server ends, and that is raised."""
    task, jobs = asyncio.ensure_future(work), serving_of(request).state.jobs
    watcher = asyncio.ensure_future(gone(request.receive))
    awaited = _Awaited(task)
    jobs.add(awaited)
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if awaited.fault is not None:
            raise Refused(awaited.fault)
        if not task.done():
            raise client_gone()
        return task.result()
    finally:
        jobs.discard(awaited)
        watcher.cancel()
        task.cancel()
        await asyncio.wait({task})


class _Awaited:
    """A Job of the server's state: work that a client waits for, other than an answer."""

    def __init__(self, task: asyncio.Future[Any]) -> None:
        self.fault: Fault | None = None
        self._task = task

    def stop(self, fault: Fault) -> None:
        if not self._task.done():
            self.fault = fault
            self._task.cancel()


async def gone(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def note_failure(serving: Serving, trace: Trace, error: Exception) -> Fault:
    """What to tell a client of an error; what nobody foresaw is in the log with its traceback."""
    fault = fault_of(error)
    trace.error, trace.finish = fault.kind, "cancelled" if fault.kind == "gone" else "error"
    if fault.kind == "internal":
        serving.log.failure(trace, error)
    if fault.kind in TOLD_IN_THE_LOG:
        trace.why = fault.message
    return fault


def check_open(serving: Serving) -> None:
    """Raises Refused where nothing new may begin."""
    if serving.state.draining:
        raise Refused(Fault("draining", "the server is stopping and takes no new requests", retry_after_s=5))
