"""The paths of this dialect."""

from modelkit.server.dialect import Dialect
from modelkit.server.ollama import answers, storing

DIALECT = Dialect("ollama", (*answers.ROUTES, *storing.ROUTES), ("/api",))
