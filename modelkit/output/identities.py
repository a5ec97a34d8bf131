"""Ids of calls, as each style needs them: they tie a tool's result to its call."""

import re
import secrets
import string
from typing import Literal

_WRITTEN = re.compile(r"[\w.:/@$+-]{1,280}")
_LETTERS = string.ascii_letters + string.digits


class Identities:
    """Those of one answer. earlier: how many calls the conversation has had before."""

    def __init__(self, kind: Literal["own", "mistral9", "kimi"], earlier: int = 0) -> None:
        self._kind = kind
        self._count = earlier

    @property
    def whole_head(self) -> bool:
        """Is a call's head itself its id?"""
        return self._kind == "kimi"

    def of(self, name: str, written: str | None) -> str:
        """That of the next call. written: what the model wrote for one."""
        number, self._count = self._count, self._count + 1
        if written and _WRITTEN.fullmatch(written):
            return written
        if self._kind == "kimi":
            return f"functions.{name}:{number}"
        if self._kind == "mistral9":
            return _drawn(9)
        return f"call_{_drawn(24)}"


def _drawn(count: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(count))
