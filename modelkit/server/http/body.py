"""The body of a request: bounded in size, time, depth and extent before anything is made of it.

JSON is read strictly (`modelkit.json_text`). Large bodies are read in a worker thread, so that the event loop
goes on.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import ClientDisconnect, Request

from modelkit.errors import MalformedFile
from modelkit.server.calling import check_open
from modelkit.server.extent import at_most, extent
from modelkit.server.faults import Fault, Refused, client_gone, refused
from modelkit.server.fields import Fields
from modelkit.server.limits import SMALL_BODY_BYTES, Limits
from modelkit.server.serving import serving_of, trace_of
from modelkit.source.strict_json import parse_json
from runtime.quoting import quoted

_QUICK_BYTES = 32 * 1024  # parsing that many takes well below a millisecond


async def read_body(request: Request, most_bytes: int | None = None) -> bytes:
    """All of it. Raises Refused: 413 above the limit, 415 where it is compressed, 408 where it does not
    come.
    """
    limits = serving_of(request).limits
    most = limits.body_bytes if most_bytes is None else most_bytes
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise refused("media_type", f"the body is encoded as {quoted(encoding)}; send it as it is")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise _too_large(most)
    async with _in_time(request, "the body has not come within"):
        return await _collected(request, most)


async def parts_of(request: Request) -> AsyncGenerator[bytes]:
    """A body of any size, as it comes. Raises Refused where nothing of it comes for as long as a whole one
    may take.
    """
    parts = request.stream()
    while True:
        async with _in_time(request, "nothing of the body has come for"):
            part = await anext(parts, None)
        if part is None:
            return
        yield part


@asynccontextmanager
async def _in_time(request: Request, late: str) -> AsyncGenerator[None]:
    """Around what waits for a body. Raises Refused where that takes too long, which `late` begins to say,
    where the client leaves, and where the server stops.
    """
    serving = serving_of(request)
    patience_s, arriving = serving.limits.body_s, serving.state.arriving
    time = asyncio.timeout(0 if serving.state.draining else patience_s)
    try:
        async with time:
            arriving.add(time)
            yield
    except TimeoutError as error:
        check_open(serving)
        raise refused("timeout", f"{late} {patience_s:g} seconds") from error
    except ClientDisconnect as error:
        raise client_gone() from error
    finally:
        arriving.discard(time)


async def read_json(request: Request, most_bytes: int | None = None) -> Fields:
    """The JSON object that the body holds."""
    limits, data = serving_of(request).limits, await read_body(request, most_bytes)
    _check_type(request)
    if not data.strip():
        raise refused("invalid_request", "the body is missing, expected a JSON object")
    if len(data) <= _QUICK_BYTES:
        value = _parsed(data, limits)
    else:
        value = await asyncio.to_thread(_parsed, data, limits)
    await _write_down(request, value)
    return Fields(value)


async def _write_down(request: Request, value: Any) -> None:
    """For --log-prompts. The log says where that is in vain, once."""
    serving = serving_of(request)
    if serving.prompts is None:
        return
    if not await asyncio.to_thread(serving.prompts.write, trace_of(request), value):
        serving.log.line("prompts", lost=serving.prompts.fault)


def _parsed(data: bytes, limits: Limits) -> Any:
    most = limits.extent
    if not at_most(data).within(most) and not extent(data).within(most):
        said = f"{most.parts:,} fields, lists and objects, or than {most.values:,} values"
        raise refused("too_large", f"the body holds more than {said}")
    try:
        return parse_json(data, "the body", depth=limits.depth)
    except MalformedFile as error:
        raise refused("invalid_request", error.message) from error


async def _collected(request: Request, most: int) -> bytes:
    """Counted as it comes, until the request has ended (`gate`): what is made of it is kept as long."""
    serving, trace = serving_of(request), trace_of(request)
    limits, state = serving.limits, serving.state
    parts: list[bytes] = []
    async for part in request.stream():
        trace.body_bytes += len(part)
        state.body_bytes += len(part)
        if trace.body_bytes > most:
            raise _too_large(most)
        if trace.body_bytes > SMALL_BODY_BYTES and state.body_bytes > limits.bodies * limits.body_bytes:
            said = "the server has no memory for another large body; try again when others are answered"
            raise Refused(Fault("busy", said, retry_after_s=5))
        parts.append(part)
    return b"".join(parts)


# What programs send that say nothing: none, curl's own for -d, and aiohttp's for bytes (litellm to Ollama).
_UNSAID = ("", "application/x-www-form-urlencoded", "application/octet-stream")


def _check_type(request: Request) -> None:
    """A page of another site can send text/plain without asking, and cannot send JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/json", "application/x-ndjson") or kind.endswith("+json"):
        return
    origin = "origin" in request.headers or "sec-fetch-site" in request.headers
    if origin or kind not in _UNSAID:
        raise refused("media_type", f"the body is {quoted(kind)}; expected application/json")


def _too_large(most: int) -> Exception:
    return refused("too_large", f"the body is larger than {most:,} bytes")
