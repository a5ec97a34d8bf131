"""What every answer of this dialect begins with, and the end of a stream."""

import secrets
import string
from typing import Any

from runtime.records import dataclass

DONE = b"data: [DONE]\n\n"
_LETTERS = (string.ascii_letters + string.digits).encode()
_OF_BYTES = bytes(_LETTERS[byte % len(_LETTERS)] for byte in range(256))


def new_id(prefix: str) -> str:
    """What clients tell answers and items apart by."""
    return prefix + secrets.token_bytes(24).translate(_OF_BYTES).decode()


@dataclass(frozen=True, slots=True)
class Head:
    """What is the same in everything that is said of one answer."""

    id: str
    model: str
    """As the client named it."""
    created: int
    """Seconds since 1970."""
    fingerprint: str
    """Changes when the same seed may give another text: with the package and with this program."""

    def completion(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """An object of that kind, or a chunk of one, without what is said at its end."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }
