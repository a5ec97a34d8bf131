"""Texts that were typed: arguments, and lines of a terminal. They are UTF-8 in every locale.

Where the locale's own encoding has no place for a byte, Python puts half a surrogate pair for it, which is no
text. Names of files and folders stay so, since the system is asked for them in the same way.
"""

import os
from typing import Any

import click


def as_text(typed: str) -> str:
    """What was meant. Bytes that are not UTF-8 stay as they are, and whoever reads them refuses them."""
    try:
        typed.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(typed).decode()
        except UnicodeError:
            return typed
    return typed


class Typed(click.ParamType):
    """An argument or option that is a text."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return as_text(str(value))


TEXT = Typed()
