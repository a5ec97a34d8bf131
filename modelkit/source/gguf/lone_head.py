"""What is said of a GGUF file that has nothing but a draft head; `heads` puts it beside its model."""

from pathlib import Path
from typing import Any

from modelkit.errors import UnsupportedSource


class HeadAlone(UnsupportedSource):
    """A file that is neither a model nor a draft by itself."""

    path: Path
    upstream: Any = None
    """Where it was fetched from, as who fetched it says."""


def head_alone(path: Path, label: str, layers: int) -> HeadAlone:
    """layers: of its model."""
    error = HeadAlone(
        f"{label}: this is a draft head alone, without the {layers} layers of its model",
        hint="Name it as DRAFT beside FROM with its model's GGUF file, or take the file that has both.",
    )
    error.path = path
    return error
