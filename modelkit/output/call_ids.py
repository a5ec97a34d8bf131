"""Ids of calls, as each style needs them: they tie a tool's result to its call."""

import re
import secrets
import string
from typing import Literal

_WRITTEN = re.compile(r"[\w.:/@$+-]{1,280}")
_LETTERS = string.ascii_letters + string.digits


class CallIds:
    """Those of one answer. earlier: how many calls the conversation has had before."""

    def __init__(self, kind: Literal["own", "mistral9", "kimi"], earlier: int = 0) -> None:
        self._kind = kind
        self._count = earlier
        self._told = set[str]()

    @property
    def whole_head(self) -> bool:
        """Is a call's head itself its id?"""
        return self._kind == "kimi"

    def of(self, name: str, written: str | None) -> str:
        """That of the next call. written: what the model wrote for one; one that it wrote before is none, for
        nobody could tell the two calls' results apart.
        """
        number, self._count = self._count, self._count + 1
        found = written if written and _WRITTEN.fullmatch(written) else self._made(name, number)
        while found in self._told:
            found = self._made(name, number)
            number += 1
        self._told.add(found)
        return found

    def _made(self, name: str, number: int) -> str:
        if self._kind == "kimi":
            return f"functions.{name}:{number}"
        return _drawn(9) if self._kind == "mistral9" else f"call_{_drawn(24)}"


def _drawn(count: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(count))
