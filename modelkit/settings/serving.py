"""Where the server is, and what opens it."""

import os
import re
from collections.abc import Mapping

from modelkit.errors import ParameterError
from runtime.quoting import quoted

SERVER_HOST, SERVER_PORT = "127.0.0.1", 11434
_SERVER = re.compile(
    r"(?:https?://)?(?:\[([0-9A-Fa-f:.]{2,45})\]|((?:[\w-]{1,63}\.)*[\w-]{1,63}\.?))(?::([0-9]{1,5}))?/?",
    re.ASCII,
)


def server_address(env: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Host and port of the server, here or elsewhere: MODELKIT_HOST, such as 0.0.0.0:8080, [::1] or
    http://studio:11434. Raises ParameterError.
    """
    text = env.get("MODELKIT_HOST", "").strip()
    if not text:
        return SERVER_HOST, SERVER_PORT
    found = _SERVER.fullmatch(text)
    if found is None or (found[3] and int(found[3]) > 65535):
        raise ParameterError(
            f"MODELKIT_HOST is {quoted(text)}, expected a host and a port",
            hint="Examples: 127.0.0.1:8080, 0.0.0.0, [::1]:11434.",
        )
    return found[1] or found[2], int(found[3]) if found[3] else SERVER_PORT


def server_named(env: Mapping[str, str] = os.environ) -> str | None:
    """The server's address for its clients, where MODELKIT_HOST says one. Raises ParameterError."""
    if not env.get("MODELKIT_HOST", "").strip():
        return None
    host, port = server_address(env)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- every address, for a server
    scheme = "https" if env["MODELKIT_HOST"].strip().startswith("https:") else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def server_key(env: Mapping[str, str] = os.environ) -> str | None:
    """What clients of the server must send: MODELKIT_API_KEY; None for nothing. Raises ParameterError."""
    key = env.get("MODELKIT_API_KEY", "").strip()
    if not can_be_key(key):
        raise ParameterError(f"MODELKIT_API_KEY {NO_KEY}")
    return key or None


NO_KEY = "has several lines, or a control character, and no client could send that"


def can_be_key(text: str) -> bool:
    """Can a header carry it?"""
    return not any(ord(letter) < 32 or ord(letter) == 127 for letter in text)


def key_password(env: Mapping[str, str] = os.environ) -> str | None:
    """What opens the key of the server's certificate: MODELKIT_SSL_KEYFILE_PASSWORD; None for nothing."""
    return env.get("MODELKIT_SSL_KEYFILE_PASSWORD") or None
