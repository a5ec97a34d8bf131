"""Environment and folders, read once into a frozen value. No room but these reads os.environ.

serving      where the server is, and what opens it
terminal     what a terminal can show
places       where other programs keep models and credentials
launchers    what launchers of several processes say
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast, get_args

from modelkit.arguments import absolute, path
from modelkit.durations import read_keep_alive
from modelkit.errors import ModelkitError, ParameterError
from modelkit.units import read_size
from runtime.quoting import quoted
from runtime.records import dataclass

Operations = Literal["plain", "cpu", "blas", "gpu"]
_KERNELS = {
    "MODELKIT_KERNELS": ("off", "required", "plain", "avx2", "avxvnni", "avx512", "neon", "dotprod", "i8mm"),
    "MODELKIT_KERNELS_ACTIVATIONS": ("i16", "f32"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the surroundings decide."""

    home: Path
    """Holds the store and modelkit's own state: MODELKIT_HOME, else ~/.modelkit."""
    cache_memory_bytes: int | None = None
    """Limit of what is kept of earlier prompts while a model is loaded: MODELKIT_CACHE_MEMORY, such as 2GB.
    0 keeps nothing, None leaves it to the memory that is there.
    """
    cache_disk_bytes: int = 0
    """Limit of what is kept of them on disk, of all models together: MODELKIT_CACHE_DISK. 0 keeps nothing
    there.
    """
    operations: Operations | None = None
    """The column of `runtime.nn.operations.ops` that models compute by: MODELKIT_OPS. "plain" is every
    operation as it is defined, to tell a wrong kernel from a wrong model; None leaves it to the device.
    """
    shards: int = 1
    """Where several machines run a model: among how many of them each layer is shared. `load` says it."""
    max_waiting: int = 512
    """How many requests may wait for a loaded model; `load` can say another number."""
    keep_alive_s: float = 300.0
    """How long a server keeps a model that nobody uses, where a request does not say: MODELKIT_KEEP_ALIVE,
    such as 10m; infinity is for ever.
    """

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> "Settings":
        given = env.get("MODELKIT_HOME", "")
        try:
            home = Path(given).expanduser() if given else Path.home() / ".modelkit"
        except RuntimeError as error:  # no home directory for this user
            raise ModelkitError(
                f"the store's folder is unknown: {error}", hint="Set MODELKIT_HOME to a folder."
            ) from error
        for name, words in _KERNELS.items():  # `runtime.cpu.native` reads them, and would pass over others
            _word_in(env, name, words)
        return cls(
            home=absolute(home),
            cache_memory_bytes=_size_in(env, "MODELKIT_CACHE_MEMORY"),
            cache_disk_bytes=_size_in(env, "MODELKIT_CACHE_DISK") or 0,
            operations=_operations_in(env, "MODELKIT_OPS"),
            keep_alive_s=_keep_alive_in(env, "MODELKIT_KEEP_ALIVE"),
        )


def settings_at(home: str | os.PathLike[str] | None) -> Settings:
    """What the surroundings decide, but for the folder where a caller names another."""
    surroundings = Settings.from_environment()
    return surroundings if home is None else replace(surroundings, home=absolute(path(home, "home")))


def _size_in(env: Mapping[str, str], name: str) -> int | None:
    """None where the variable is not set, or blank."""
    text = env.get(name, "")
    return read_size(text, name) if text.strip() else None


def _keep_alive_in(env: Mapping[str, str], name: str) -> float:
    text = env.get(name, "").strip()
    return read_keep_alive(text, name) if text else Settings.__dataclass_fields__["keep_alive_s"].default


def _operations_in(env: Mapping[str, str], name: str) -> Operations | None:
    """None where the variable is not set, or blank."""
    return cast("Operations | None", _word_in(env, name, get_args(Operations)))


def _word_in(env: Mapping[str, str], name: str, words: tuple[str, ...]) -> str | None:
    """One of the words; None where the variable is not set, or blank."""
    text = env.get(name, "").strip().lower()
    if text and text not in words:
        raise ParameterError(
            f"{name} is {quoted(env[name])}, expected one of {', '.join(words)}",
            hint="Leave it unset to compute in the fastest way on this machine.",
        )
    return text or None
