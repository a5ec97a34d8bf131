"""JSON that is written many times with other values in the same places.

A stream of an answer is thousands of objects that differ in one text. Each is written once with marks, cut at
them, and from then on joined from bytes.
"""

import json
import secrets

MARK = secrets.token_hex(12)
"""Stands for a value, as a text of its own. Nothing that a client says can hold it."""
_WRITTEN = f'"{MARK}"'.encode()
_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})


class Frame:
    """written: one object whose values that change are MARK."""

    def __init__(self, written: bytes) -> None:
        self._first, *self._others = written.split(_WRITTEN)

    def filled(self, *values: bytes) -> bytes:
        """As many as there were marks, in their order, each as it stands in JSON."""
        written = self._first
        for value, part in zip(values, self._others, strict=True):
            written += value + part
        return written


def ascii_text(text: str) -> bytes:
    """A text as JSON, all but ASCII escaped."""
    return json.encoder.encode_basestring_ascii(text).encode()


def utf8_text(text: str) -> bytes:
    """A text as JSON, in UTF-8."""
    return in_line(json.encoder.encode_basestring(text))


def in_line(written: str) -> bytes:
    """JSON in UTF-8, with what JSON lets stand as it is and clients that read lines (httpx) end one at."""
    return written.translate(_ENDS).encode()
