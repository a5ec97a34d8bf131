"""From a name or a path to a running engine: `read` opens it and checks it (`decided`: what no `create` has
made), `start` loads its weights."""

from modelkit.opening.opened import Opened
from modelkit.opening.read import open_model
from modelkit.opening.start import Started, start_engine

__all__ = ["Opened", "Started", "open_model", "start_engine"]
