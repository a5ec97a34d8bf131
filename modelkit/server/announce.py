"""How other commands find the server: `run/serve.json` under the home, readable by its owner alone.

Where two servers run, the file is the first one's, until that one has gone.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex


def announce(home: Path, address: str) -> Path | None:
    """Write the file. None where another server that runs has written it."""
    path = home / "run" / "serve.json"
    if (other := _pid_in(path)) is not None and other != os.getpid() and _runs(other):
        return None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"serve.json.{token_hex(8)}")
    with os.fdopen(
        os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        json.dump({"pid": os.getpid(), "url": address}, file)
    fresh.replace(path)
    return path


def withdraw(path: Path | None) -> None:
    """Remove the file, if it is still ours."""
    if path is not None and _pid_in(path) == os.getpid():
        with suppress(OSError):
            path.unlink()


def _pid_in(path: Path) -> int | None:
    try:
        said = json.loads(path.read_bytes()[:4096])
    except (OSError, ValueError, RecursionError):
        return None
    pid = said.get("pid") if isinstance(said, dict) else None
    return pid if isinstance(pid, int) and not isinstance(pid, bool) and 0 < pid < 2**31 else None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
