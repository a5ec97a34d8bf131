"""A large answer as JSON, written beside the event loop, and a part at a time.

The writer of JSON holds the interpreter's lock until a value is written, in whatever thread it runs: for 2048
vectors of 1024 numbers that is most of a second, in which no stream goes on.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from modelkit.server.serving import serving_of

_NUMBERS = 4096  # of a list, or texts: written in about a millisecond
_OBJECTS = 8  # or lists: a vector is one


async def written(request: Request, value: Any) -> Response:
    """As JSONResponse has it."""
    data = await asyncio.get_running_loop().run_in_executor(serving_of(request).workers, in_parts, value)
    return Response(data, media_type="application/json")


def in_parts(value: Any) -> bytes:
    """The JSON text of a value."""
    return "".join(_parts(value)).encode()


def _parts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for place, (field, inner) in enumerate(value.items()):
            yield f"{',' if place else ''}{_text(field)}:"
            yield from _parts(inner)
        yield "}"
    elif isinstance(value, list):
        step = _OBJECTS if isinstance(next(iter(value), None), dict | list) else _NUMBERS
        yield "["
        for start in range(0, len(value), step):
            yield "," * bool(start) + _text(value[start : start + step])[1:-1]
        yield "]"
    else:
        yield _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
