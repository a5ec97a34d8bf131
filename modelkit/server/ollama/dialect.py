"""The paths of this dialect."""

from modelkit.server.dialect import Dialect
from modelkit.server.ollama import answers, storing

_STORING = ("/api/copy", "/api/delete", "/api/pull", "/api/push", "/api/create", "/api/blobs")

DIALECT = Dialect("ollama", (*answers.ROUTES, *storing.ROUTES), ("/api",), storing=_STORING)
