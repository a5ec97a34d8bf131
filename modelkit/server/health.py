"""Is the server there, can it answer, and what has it done? /livez and /health are small and need no key."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from modelkit.errors import ModelClosed
from modelkit.model import Model
from modelkit.ranks.current import current_group
from modelkit.server.dialect import Dialect
from modelkit.server.metrics import Labels
from modelkit.server.serving import Serving, serving_of


async def livez(request: Request) -> Response:
    """The event loop turns."""
    return JSONResponse({"status": "ok"})


async def health(request: Request) -> Response:
    """Would a new request be answered?"""
    said = stage(serving_of(request))
    return JSONResponse({"status": said}, 200 if said == "ok" else 503)


def stage(serving: Serving) -> str:
    """ "ok", or what is in the way."""
    if serving.state.draining:
        return "draining"
    rank_group = current_group()
    if rank_group is not None and rank_group.lost:
        return "ranks lost"
    if serving.state.loading:
        return "loading"
    slowest_s = max((_step_s(model) for model in serving.pool.models()), default=0.0)
    return "ok" if slowest_s < serving.limits.stalled_s else "stalled"


async def metrics(request: Request) -> Response:
    """For Prometheus."""
    serving = serving_of(request)
    text = serving.metrics.text(gauges(serving), serving.pool.tally.counts())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def gauges(serving: Serving) -> Mapping[str, Mapping[Labels, float]]:
    """What is true at this moment."""
    models, underway = serving.pool.models(), serving.state.underway
    # Of a loaded model always a number: a series that is missing is not 0 to who watches it.
    running: dict[Labels, float] = {(("model", one.name),): 0 for one in models}
    waiting = dict(running)
    for trace in (one.trace for one in underway):
        counts, labels = waiting if trace.first_token_s is None else running, (("model", trace.model),)
        counts[labels] = counts.get(labels, 0) + 1
    memory: dict[Labels, float] = {}
    for one in serving.pool.shown():
        for kind, taken in (
            ("weights", one.weight_bytes),
            ("draft", one.draft_bytes),
            ("context", one.context_bytes),
            ("prefix", one.prefix_bytes),
        ):
            labels = ("model", one.name), ("kind", kind)
            memory[labels] = memory.get(labels, 0) + taken
    return {
        "modelkit_requests_running": running,
        "modelkit_requests_waiting": waiting,
        "modelkit_models_loaded": {(): len(models)},
        "modelkit_memory_bytes": memory,
        "modelkit_engine_step_seconds": {(("model", one.name),): _step_s(one) for one in models},
    }


def _step_s(model: Model) -> float:
    try:
        return model.step_s
    except ModelClosed:
        return 0.0


DIALECT = Dialect(
    "health",
    (Route("/livez", livez), Route("/health", health), Route("/metrics", metrics)),
    ("/livez", "/health", "/metrics"),
    open_paths=frozenset({"/livez", "/health"}),
)
