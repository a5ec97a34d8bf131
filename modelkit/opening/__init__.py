"""From a name or a path to a running engine.

read        opens it and checks it, loads nothing
unpackaged  folders, files and packages of other tools, which no `create` has made
opened      what was opened, as a value
start       settles limits from headers, loads weights and starts the engine
"""

from modelkit.opening.opened import Opened
from modelkit.opening.read import open_model
from modelkit.opening.start import Started, start_engine

__all__ = ["Opened", "Started", "open_model", "start_engine"]
