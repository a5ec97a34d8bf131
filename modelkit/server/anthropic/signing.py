"""The signature of what a model thought: a block that comes back can be told from one that was edited.

The key is made once per store and lies there, readable by its owner alone. Nothing depends on it but the
signature: where it cannot be kept, one for the life of the process does.
"""

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path

_KEY_BYTES = 32
_FILE = "thinking.key"

Sign = Callable[[str], str]
"""The signature of a text."""


def signer(home: Path) -> Sign:
    """For the server of that store."""
    key = _key(home / _FILE)

    def sign(text: str) -> str:
        digest = hmac.digest(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return base64.b64encode(digest).decode()

    return sign


def _key(file: Path) -> bytes:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = secrets.token_bytes(_KEY_BYTES)
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return secrets.token_bytes(_KEY_BYTES)
    try:
        os.fchmod(fd, 0o600)
        found = os.pread(fd, _KEY_BYTES, 0)
        if len(found) == _KEY_BYTES:
            return found
        os.pwrite(fd, fresh, 0)
    except OSError:
        pass
    finally:
        os.close(fd)
    return fresh
