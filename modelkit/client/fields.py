"""A JSON object from a server, read field by field: a value of the wrong type is an error that names it."""

from collections.abc import Iterator
from typing import Any, TypeVar

from modelkit.errors import ModelkitError
from modelkit.json_text import is_number
from runtime.quoting import quoted

W = TypeVar("W", bound=str)
_MOST = 2**63


class Fields:
    """One object."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise ModelkitError(f"the server sends {quoted(value)} where an object should be")
        self.value: dict[str, Any] = value

    def text(self, name: str) -> str:
        value = self.value.get(name)
        return value if isinstance(value, str) else self._wrong(name)

    def maybe_text(self, name: str) -> str | None:
        return None if self.value.get(name) is None else self.text(name)

    def word(self, name: str, words: tuple[W, ...]) -> W:
        value = self.value.get(name)
        for word in words:
            if value == word:
                return word
        return self._wrong(name)

    def flag(self, name: str) -> bool:
        value = self.value.get(name)
        return value if isinstance(value, bool) else self._wrong(name)

    def whole(self, name: str) -> int:
        value = self.value.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST:
            return value
        return self._wrong(name)

    def number(self, name: str) -> float:
        value = self.value.get(name)
        if is_number(value):
            return float(value)
        return self._wrong(name)

    def ids(self, name: str) -> list[int]:
        found = self._list(name)
        if any(type(one) is not int or not 0 <= one < _MOST for one in found):
            return self._wrong(name)
        return found

    def texts(self, name: str) -> list[str]:
        found = self._list(name)
        return found if all(isinstance(one, str) for one in found) else self._wrong(name)

    def fields(self, name: str) -> "Fields":
        value = self.value.get(name)
        return Fields(value) if isinstance(value, dict) else self._wrong(name)

    def each(self, name: str) -> Iterator["Fields"]:
        return (Fields(one) for one in self._list(name))

    def _list(self, name: str) -> list[Any]:
        value = self.value.get(name, [])
        return value if isinstance(value, list) else self._wrong(name)

    def _wrong(self, name: str) -> Any:
        raise ModelkitError(
            f"the server sends {name} as {quoted(self.value.get(name))}; is it of another version?"
        )
