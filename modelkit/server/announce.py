"""How other commands find the server: `run/serve.json` under the home, readable by its owner alone.

Where two servers run, the file is the first one's, until that one has gone.
"""

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

from modelkit.store.disk import replace

_PATIENCE_S = 0.5


def announce(home: Path, address: str) -> Path | None:
    """Write the file. None where another server that runs has written it."""
    path = home / "run" / "serve.json"
    pid, url = _said_in(path)
    if pid is not None and pid != os.getpid() and _runs(pid) and url != address and _answers(url):
        return None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"serve.json.{token_hex(8)}")
    replace(path, json.dumps({"pid": os.getpid(), "url": address}).encode(), fresh, durable=False)
    return path


def withdraw(path: Path | None) -> None:
    """Remove the file, if it is still ours."""
    if path is not None and _said_in(path)[0] == os.getpid():
        with suppress(OSError):
            path.unlink()


def _said_in(path: Path) -> tuple[int | None, str]:
    """Who wrote the file, and where that one is."""
    try:
        said = json.loads(path.read_bytes()[:4096])
    except (OSError, ValueError, RecursionError):
        return None, ""
    pid, url = (said.get("pid"), said.get("url")) if isinstance(said, dict) else (None, "")
    number = pid if isinstance(pid, int) and not isinstance(pid, bool) and 0 < pid < 2**31 else None
    return number, url if isinstance(url, str) else ""


def _answers(url: str) -> bool:
    """Does anybody listen there? A server that was killed leaves its file, and its number may be that of
    another process by now.
    """
    try:
        if url.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(_PATIENCE_S)
                probe.connect(url.removeprefix("unix:"))
        else:
            found = urlsplit(url)
            socket.create_connection((found.hostname or "", found.port or 0), _PATIENCE_S).close()
    except (OSError, ValueError):
        return False
    return True


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
