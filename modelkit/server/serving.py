"""The one value that every route gets: who has the models, what is allowed, where to write what happened."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from starlette.requests import Request

from modelkit.server.access import Access
from modelkit.server.faults import Fault
from modelkit.server.limits import Limits
from modelkit.server.log import Log, PromptLog
from modelkit.server.metrics import Metrics
from modelkit.server.models.pool import Pool
from modelkit.server.trace import Trace
from modelkit.server.trimming import Trimming
from modelkit.settings import Settings
from runtime.records import dataclass

WORKERS = 8
LONG_BODY_BYTES = 256 * 1024  # a prompt of so much text takes a tenth of a second or more to become tokens

P = ParamSpec("P")
T = TypeVar("T")


class Stoppable(Protocol):
    """A request that has a model, or waits for one."""

    trace: Trace

    def stop(self, fault: Fault) -> None:
        """Want no more, for this reason. Returns at once."""


class Job(Protocol):
    """What is no answer and takes time: work that a client waits for, or on a thread of its own, which may
    outlive its request.
    """

    def stop(self, fault: Fault) -> None:
        """Want no more of it, for this reason. Returns at once."""
        ...


@dataclass(slots=True)
class State:
    """What changes while the server runs. On the event loop's thread only."""

    loading: bool = False
    """Models that were named at start are not loaded yet."""
    draining: bool = False
    """It was told to stop: what runs may end, and nothing new begins."""
    body_bytes: int = 0
    """Of all bodies of JSON that come, or whose requests have not ended."""
    underway: set[Stoppable] = field(default_factory=set["Stoppable"])
    """Every request that has a model, or waits for one."""
    arriving: set[asyncio.Timeout] = field(default_factory=set[asyncio.Timeout])
    """The patience with each body that has not come yet."""
    jobs: set[Job] = field(default_factory=set[Job])
    """Embeddings, loads and the like, as long as somebody waits for them; pulls, pushes and creates until
    their threads have ended.
    """


@dataclass(frozen=True, slots=True)
class Serving:
    """Made once at start."""

    pool: Pool
    """Models by name."""
    settings: Settings
    """Where the store is, and the limits of what is kept of prompts."""
    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    """Who may ask."""
    log: Log = field(default_factory=Log)
    metrics: Metrics = field(default_factory=Metrics)
    trimming: Trimming = field(default_factory=Trimming)
    state: State = field(default_factory=State)
    workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(WORKERS, thread_name_prefix="modelkit-request")
    )
    """For what takes longer than a millisecond: rendering, tokenizing, compiling a grammar."""
    patient: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(WORKERS, thread_name_prefix="modelkit-patient")
    )
    """For what takes as long as an answer does, embedding and scoring prompts: else nothing could begin while
    enough of that is done.
    """
    long_prompts: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="modelkit-long-prompt")
    )
    """For requests with much text, of which seconds may go by until it is in tokens: else nothing could begin
    while enough of them come. Few, as each keeps a processor busy.
    """
    default_model: str | None = None
    """Who answers where a client asks for a model of Anthropic's; None: the only loaded one that writes."""
    prompts: PromptLog | None = None
    """Where what clients ask is written down; None for nowhere."""


def serving_of(request: Request) -> Serving:
    """The server's value, for a handler."""
    return request.app.state.serving


async def apart(request: Request, function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """What a function of more than a millisecond returns, beside the event loop."""
    work = partial(function, *given, **named)
    return await asyncio.get_running_loop().run_in_executor(serving_of(request).workers, work)


def threads_for(request: Request, *, patient: bool) -> ThreadPoolExecutor:
    """Where what this request asks of a model is prepared or done. patient: it takes as long as an answer."""
    serving = serving_of(request)
    if patient:
        return serving.patient
    return serving.long_prompts if trace_of(request).body_bytes >= LONG_BODY_BYTES else serving.workers


def trace_of(request: Request) -> Trace:
    """What is noted of this request."""
    return request.scope["modelkit.trace"]
