"""Which route a path belongs to."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Match, Route
from starlette.testclient import TestClient

from modelkit.server.app import by_path


async def _said(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.scope['route'].name} {request.path_params}")


ROUTES = [
    Route("/models/{name:path}", _said, methods=["GET"], name="one model"),
    Route("/models", _said, methods=["GET"], name="models"),
    Route("/models/latest", _said, methods=["GET"], name="never reached"),
    Route("/models/latest", _said, methods=["POST"], name="second for its path"),
    Route("/alone", _said, methods=["PUT"], name="alone"),
]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize("path", ["/models", "/models/", "/models/latest", "/models/a", "/alone", "/nowhere"])
def test_a_path_is_answered_as_by_all_routes_in_a_row(method: str, path: str) -> None:
    app = Starlette(routes=ROUTES)
    app.router.redirect_slashes = False
    near = by_path(app.router)

    async def routed(scope: Any, receive: Any, send: Any) -> None:
        await near.get(scope["path"], app.router)(scope, receive, send)

    here, there = (TestClient(one).request(method, path) for one in (routed, app.router))
    assert (here.status_code, here.text, here.headers) == (there.status_code, there.text, there.headers)


def test_only_paths_without_parts_that_vary_have_a_router_of_their_own() -> None:
    near = by_path(Starlette(routes=ROUTES).router)
    assert sorted(near) == ["/alone", "/models", "/models/latest"]
    scope = {"type": "http", "method": "GET", "path": "/models"}
    assert [route.matches(scope)[0] for route in near["/models"].routes] == [Match.FULL]
