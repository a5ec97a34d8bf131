"""Programs that keep passwords for Docker and its relatives: `docker-credential-NAME`.

The protocol (docker-credential-helpers): the action is the argument, the server's name goes to standard
input, a JSON object with ServerURL, Username and Secret comes back. Nothing of it is ever shown.
"""

import json
import re
import shutil
import subprocess

from modelkit.errors import FetchError
from runtime.quoting import quoted

_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_PATIENCE_S = 10.0
_LIMIT_BYTES = 1 << 20


def ask(program: str, server: str) -> tuple[str, str] | None:
    """The user's name and the secret that the program keeps for `server`; None where it has none.

    Raises FetchError where there is no such program, or it fails.
    """
    if not _NAME.fullmatch(program):
        raise FetchError(
            f"{quoted(program)} is not a name of a credential helper: a-z, 0-9, - and _ are expected"
        )
    path = shutil.which(f"docker-credential-{program}")
    if path is None:
        raise FetchError(f"docker-credential-{program}, which knows the password for {server}, is missing")
    try:
        done = subprocess.run(
            [path, "get"], input=server.encode(), capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        # Without a cause: its text would hold what the program has said.
        raise FetchError(
            f"docker-credential-{program} could not be run, or took over {_PATIENCE_S:.0f} s"
        ) from None
    if done.returncode:
        if b"credentials not found" in done.stdout + done.stderr:
            return None
        raise FetchError(f"docker-credential-{program} failed with exit code {done.returncode}")
    return _read(done.stdout, program)


def _read(raw: bytes, program: str) -> tuple[str, str]:
    try:
        value = json.loads(raw) if len(raw) <= _LIMIT_BYTES else None
    except (ValueError, RecursionError):
        value = None
    user, secret = (value.get("Username"), value.get("Secret")) if isinstance(value, dict) else (None, None)
    if not isinstance(user, str) or not isinstance(secret, str):
        raise FetchError(f"docker-credential-{program} answered what is not a name and secret")
    return user, secret
