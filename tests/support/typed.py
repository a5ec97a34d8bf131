"""A person at the conversation in the terminal."""

from collections.abc import Callable

LEAVE = EOFError()
"""Typed as Ctrl-D."""


def typed(*lines: str | BaseException) -> Callable[[str], str]:
    """A person who types these lines, and then leaves. An error among them is raised in its place."""
    rest = iter([*lines, LEAVE])

    def read(_prompt: str) -> str:
        line = next(rest)
        if isinstance(line, BaseException):
            raise line
        return line

    return read
