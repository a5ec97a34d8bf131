"""The paths of this dialect."""

from modelkit.server.dialect import Dialect
from modelkit.server.ollama import answers, embedding, package_routes

_STORING = ("/api/copy", "/api/delete", "/api/pull", "/api/push", "/api/create", "/api/blobs")

_ROUTES = (*answers.ROUTES, *embedding.ROUTES, *package_routes.ROUTES)

DIALECT = Dialect("ollama", _ROUTES, ("/api",), storing=_STORING)
