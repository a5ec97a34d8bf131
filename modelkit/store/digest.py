"""Content addresses. `Digest` is the only value a blob's path is ever built from.

A digest that reaches this type has been checked, so no other room tests one again. Source: the OCI image
specification, descriptor.md (only sha256 is stored here).
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Self

from modelkit.errors import StoreError
from modelkit.progress import Advance
from runtime.quoting import quoted
from runtime.records import dataclass

PREFIX = "sha256:"
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A SHA-256 of some bytes. `str()` is the OCI spelling, `sha256:` and the digits."""

    hex: str
    """64 lower-case digits."""

    def __post_init__(self) -> None:
        if not _HEX.fullmatch(self.hex):
            raise StoreError(
                f"{quoted(self.hex)} is not a digest: 64 lower-case hexadecimal digits are expected"
            )

    @classmethod
    def parse(cls, text: object) -> Self:
        """The digest that `sha256:<64 hex>` spells. Anything else, of any type, is a StoreError."""
        if (
            not isinstance(text, str)
            or not text.startswith(PREFIX)
            or not _HEX.fullmatch(text[len(PREFIX) :])
        ):
            raise StoreError(
                f"{quoted(text)} is not a digest: `sha256:` and 64 lower-case hexadecimal digits are expected"
            )
        return cls(text[len(PREFIX) :])

    @classmethod
    def of(cls, data: bytes) -> Self:
        return cls(hashlib.sha256(data).hexdigest())

    @property
    def short(self) -> str:
        """The first 12 digits, as tables show it."""
        return self.hex[:12]

    def __str__(self) -> str:
        return PREFIX + self.hex


@dataclass(frozen=True, slots=True, order=True)
class Blob:
    """Some stored bytes: which, and how many."""

    digest: Digest
    size_bytes: int

    @classmethod
    def of(cls, pieces: Iterable[memoryview], progress: Advance | None = None) -> Self:
        """What all of the pieces are together. progress: told of each."""
        state, size_bytes = hashlib.sha256(), 0
        for piece in pieces:
            state.update(piece)
            size_bytes += len(piece)
            if progress:
                progress(len(piece))
        return cls(Digest(state.hexdigest()), size_bytes)
