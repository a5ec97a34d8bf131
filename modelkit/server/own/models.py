"""Which models are loaded, loading one, letting one go, and what a client has to know of one.

    GET  /modelkit/v1/ps                             {"models": [...]}: in memory, or on their way
    GET  /modelkit/v1/find?model=NAME                {"name", "digest", "loaded": bool}; loads nothing
    POST /modelkit/v1/load {"model", "keep_alive"}   loads it; {"model": as in ps, "facts": {...}}
    POST /modelkit/v1/stop {"model", "now"}          it leaves once it is idle, or at once; {"stopped": bool}
    POST /modelkit/v1/prefixes {"model"}             {"prefixes": [...]}, what is kept of earlier prompts
    POST /modelkit/v1/decode {"model", "ids"}        {"text"}

A name may have adapters behind it, NAME+ADAPTER, as where something is asked of the model: which they are is
looked at, and it comes and leaves with all that it has.

Whoever leaves while a model loads does not wait for it any more, and a load that nobody waits for ends.
"""

from dataclasses import asdict
from datetime import UTC, datetime
from time import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modelkit.durations import FOR_EVER
from modelkit.model import Model
from modelkit.modelfile import PARAMETERS
from modelkit.server.adapter_choice import choosing, split_adapters
from modelkit.server.calling import call, check_open, note_lease, unless_gone
from modelkit.server.dialect import Dialect
from modelkit.server.faults import refused
from modelkit.server.http.body import read_json
from modelkit.server.http.own_headers import with_ignored
from modelkit.server.http.writing import json_response
from modelkit.server.models.pool_entry import Shown
from modelkit.server.own.lines import word
from modelkit.server.serving import serving_of, trace_of
from modelkit.store.name import as_name

_MOST_IDS = 1_000_000


async def ps(request: Request) -> Response:
    """All models that are in memory, or on their way."""
    shown = serving_of(request).pool.shown()
    return JSONResponse({"models": [row(one, time()) for one in shown]})


async def find(request: Request) -> Response:
    """What a name stands for."""
    name = request.query_params.get("model")
    if not name:
        raise refused("invalid_request", "model is missing, expected a name", "model")
    pool = serving_of(request).pool
    found = pool.find(split_adapters(name)[0])
    loaded = any(one.digest == found.digest and one.state == "ready" for one in pool.shown())
    return JSONResponse({"name": found.name, "digest": found.digest, "loaded": loaded})


async def load(request: Request) -> Response:
    """Load a model, and say what it is."""
    body, pool = await read_json(request), serving_of(request).pool
    name, keep_alive = body.needed_text("model"), body.duration("keep_alive")
    model, adapters = split_adapters(name)
    check_open(serving_of(request))

    async def loaded() -> dict[str, Any]:
        async with pool.acquire(model, keep_alive, turn=False) as lease:
            note_lease(trace_of(request), name, lease)
            choosing(lease.model, adapters)
            said = facts(lease.model, str(as_name(model)), lease.digest, lease.load_s)
        shown = next(one for one in pool.shown() if one.digest == lease.digest)
        return {"model": row(shown, time()), "facts": said}

    return with_ignored(
        JSONResponse(await unless_gone(request, loaded())), body.unknown({"model", "keep_alive"})
    )


async def stop(request: Request) -> Response:
    """Let a model go."""
    body = await read_json(request)
    name, now = body.needed_text("model"), body.flag("now", False)
    model, adapters = split_adapters(name)
    stopped = serving_of(request).pool.stop(model, adapters=adapters, now=now)
    return with_ignored(JSONResponse({"stopped": stopped}), body.unknown({"model", "now"}))


async def prefixes(request: Request) -> Response:
    """What is kept in memory of earlier prompts."""
    body = await read_json(request)
    name = body.needed_text("model")
    found = await call(request, name, lambda model: [asdict(one) for one in model.prefixes()])
    return with_ignored(await json_response(request, {"prefixes": found}), body.unknown({"model"}))


async def decode(request: Request) -> Response:
    """The text of ids, special tokens left out."""
    body = await read_json(request)
    if not body.has("ids"):
        raise body.wrong("ids", "a list of token ids")
    ids = body.items("ids", _MOST_IDS)
    text = await call(request, body.needed_text("model"), lambda one: one.decode(ids))
    return with_ignored(JSONResponse({"text": text}), body.unknown({"model", "ids"}))


def row(shown: Shown, now_s: float) -> dict[str, Any]:
    """A model of the pool as JSON. Bytes; expires_at is null while it is in use, "never" for one that
    stays.
    """
    left_s = shown.expires_in_s
    if left_s is None or left_s == FOR_EVER:
        expires: str | None = None if left_s is None else "never"
    else:
        expires = datetime.fromtimestamp(now_s + left_s, UTC).isoformat(timespec="seconds")
    sizes = {"size_bytes": shown.size_bytes, "taken_bytes": shown.taken_bytes}
    fields = {**asdict(shown), **sizes, "expires_at": expires}
    return {**fields, "expires_in_s": _finite(left_s), "keep_alive_s": _finite(shown.keep_alive_s)}


def _finite(seconds: float | None) -> float | None:
    """JSON has no infinity."""
    return None if seconds == FOR_EVER else seconds


def facts(model: Model, name: str, digest: str, load_s: float) -> dict[str, Any]:
    """What a client that works with the model has to know of it. name: one of its names, by which the client
    has asked for it. load_s: what it waited for it.
    """
    resolved = model.defaults.resolved()
    return {
        "name": name,
        "digest": digest,
        "load_s": load_s,
        "notes": list(model.notes),
        "context_length": model.context_length,
        "memory": asdict(model.memory),
        "defaults": {name: _plain(value) for name, value in model.defaults.items()},
        "settled": {name: getattr(resolved, name) for name, row in PARAMETERS.items() if row.at_load},
        "has_template": model.has_template,
        "writes": model.writes,
        "adapters": list(model.adapters),
        "start_id": model.start_id,
    }


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


DIALECT = Dialect(
    "modelkit",
    (
        Route("/modelkit/v1/ps", ps),
        Route("/modelkit/v1/find", find),
        Route("/modelkit/v1/load", load, methods=["POST"]),
        Route("/modelkit/v1/stop", stop, methods=["POST"]),
        Route("/modelkit/v1/prefixes", prefixes, methods=["POST"]),
        Route("/modelkit/v1/decode", decode, methods=["POST"]),
    ),
    ("/modelkit",),
    word,
)
