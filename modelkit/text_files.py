"""Texts of people, as they are read from files and pipes: UTF-8, and no larger than they may be."""

from typing import BinaryIO

UTF_8 = "utf-8-sig"
"""A byte order mark, as editors of Windows put in front, is none of the text."""


def read_text(file: BinaryIO, most_bytes: int) -> str:
    """All of it; of a device, which has no end, no more than is needed to refuse it.

    Raises OSError, and ValueError for a larger file and for bytes that are no letters; `python_faults.unread`
    has words for both.
    """
    data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes:,} bytes")
    return data.decode(UTF_8)
