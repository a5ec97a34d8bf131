"""Answers as JSON; large ones are written beside the event loop, and a part at a time."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from modelkit.server.json_parts import in_parts, large
from modelkit.server.serving import apart


async def json_response(request: Request, value: Any) -> Response:
    """As JSONResponse has it. Who has the value leaves it as it is meanwhile."""
    if not large(value):
        return JSONResponse(value)
    data = await apart(request, in_parts, value)
    return Response(data, media_type="application/json")
