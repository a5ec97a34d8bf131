"""The paths of this dialect."""

from modelkit.server.dialect import Dialect
from modelkit.server.ollama.answers import ROUTES

DIALECT = Dialect("ollama", ROUTES, ("/api",))
