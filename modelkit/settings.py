"""Environment and folders, read once into a frozen value. No other room reads os.environ."""

import os
from dataclasses import dataclass
from pathlib import Path

from modelkit.errors import ModelkitError


@dataclass(frozen=True, slots=True)
class Settings:
    """What the surroundings decide.

    `home` holds the store and modelkit's own state: MODELKIT_HOME, else ~/.modelkit.
    """

    home: Path

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
        return cls(home=home.absolute())
