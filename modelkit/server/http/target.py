"""What a request line asks for, where it names the whole address: `GET http://host/path HTTP/1.1`.

Clients that take this server for a proxy write that, and RFC 9112 (3.2.2) has every server take it, the host
of the address in the place of the Host line. So that host is what the rules of `access` are asked about.
"""

import re
from urllib.parse import unquote

from starlette.types import Scope

_ABSOLUTE = re.compile(rb"https?://([^/?#]*)([^?#]*)", re.IGNORECASE)


def at_origin(scope: Scope) -> None:
    """Make the scope that of the short form: the path alone, and the address's host as the Host line."""
    found = _ABSOLUTE.match(scope.get("raw_path") or b"")
    if found is None:
        return
    host, path = found[1], found[2] or b"/"
    scope["raw_path"], scope["path"] = path, unquote(path.decode("ascii"))
    others = [(name, value) for name, value in scope["headers"] if name != b"host"]
    scope["headers"] = [(b"host", host), *others]
