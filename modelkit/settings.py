"""Environment and folders, read once into a frozen value. No other room reads os.environ."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from modelkit.errors import ModelkitError

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?([KMGT])?B?")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the surroundings decide.

    `home` holds the store and modelkit's own state: MODELKIT_HOME, else ~/.modelkit. `cache_memory_bytes`
    bounds what
    is kept of earlier prompts while a model is loaded: MODELKIT_CACHE_MEMORY, such as 2GB; 0 keeps nothing,
    None leaves it to the memory that is there.
    """

    home: Path
    cache_memory_bytes: int | None = None

    @classmethod
    def from_environment(cls, environment: dict[str, str] | None = None) -> "Settings":
        env = dict(os.environ) if environment is None else environment
        given = env.get("MODELKIT_HOME", "")
        try:
            home = Path(given).expanduser() if given else Path.home() / ".modelkit"
        except RuntimeError as error:  # no home directory for this user
            raise ModelkitError(
                f"cannot tell where the store lives: {error}", hint="Set MODELKIT_HOME to a folder."
            ) from error
        return cls(home=home.absolute(), cache_memory_bytes=_bytes(env.get("MODELKIT_CACHE_MEMORY", "")))


def _bytes(text: str) -> int | None:
    """ "2GB", "500 MB" or a plain number of bytes; None for nothing."""
    if not text.strip():
        return None
    found = _SIZE.fullmatch(text.strip().upper())
    if found is None:
        raise ModelkitError(
            f"MODELKIT_CACHE_MEMORY is {text!r:.40}, expected a number of bytes",
            hint="Examples: 2GB, 500MB, 0.",
        )
    return int(float(found[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}[found[2] or ""])
