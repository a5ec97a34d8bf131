"""Objects whose names `propertyNames` lists, as pydantic writes `dict[Literal["a", "b"], int]` and dicts by
the members of an enumeration: as objects with these properties, each of which may be left out. The library
knows no other way to say so.

Within one schema both mean the same: a name of the list that has no property of its own has what
`additionalProperties` says, and no other name is allowed. What would make the schema too long stays as it was
written, and is refused for it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from modelkit.grammars.forms import MOST_CHARACTERS
from modelkit.grammars.loosening import parts_of
from modelkit.grammars.sound import MOST_OPTIONAL
from modelkit.schema import target

_NAMES = "propertyNames"
_LISTS = frozenset({"enum", "const"})
_ANOTHER = 16  # characters of one more property, about
_SAYS_NO_MORE = _LISTS | {"type", "title", "description"}


def with_listed_names(text: str) -> str:
    """The schema with such objects written out. A text that is no JSON object comes back as it is."""
    if _NAMES not in text:
        return text
    root = json.loads(text)
    if not isinstance(root, dict):
        return text
    writing = _Writing(root)
    for schema in _inner_first(root):
        writing.write_out(schema)
    return json.dumps(root, allow_nan=False) if writing.changed else text


def _inner_first(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    found, left = list[dict[str, Any]](), [root]
    while left:
        schema = left.pop()
        found.append(schema)
        left += [inner for _, inner, _ in parts_of(schema)]
    return reversed(found)


class _Writing:
    """Changes schemas within `root`, in place."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.changed = False
        self._root, self._left = root, MOST_CHARACTERS["schema"]
        self._lists: dict[int, list[str] | None] = {}  # one enumeration may be referred to from everywhere

    def write_out(self, schema: dict[str, Any]) -> None:
        names = self._names(schema.get(_NAMES))
        own, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        if names is None or not isinstance(own, dict) or "patternProperties" in schema:
            return
        if self._left <= 0 or own.keys() - {*names}:
            return
        self._left -= (len(names) + 1) * (len(json.dumps(others)) + _ANOTHER)
        if self._left <= 0:
            return
        missing = [] if others is False else [name for name in names if name not in own]
        del schema[_NAMES]
        schema["properties"] = {**own, **dict.fromkeys(missing, others)}
        schema["additionalProperties"] = False
        self.changed = True

    def _names(self, schema: Any) -> list[str] | None:
        """Those that a schema of names lists; None where it says anything else of them."""
        if isinstance(schema, dict) and schema.keys() & _LISTS == set() and "$ref" in schema:
            schema = target(schema["$ref"], self._root)
        if not isinstance(schema, dict):
            return None
        if id(schema) not in self._lists:
            self._lists[id(schema)] = _list_of(schema)
        return self._lists[id(schema)]


def _list_of(schema: Mapping[str, Any]) -> list[str] | None:
    if schema.keys() - _SAYS_NO_MORE or len(schema.keys() & _LISTS) != 1:
        return None
    listed = schema["enum"] if "enum" in schema else [schema["const"]]
    if schema.get("type", "string") != "string" or not isinstance(listed, list):
        return None
    if len(listed) > MOST_OPTIONAL or not all(isinstance(name, str) for name in listed):
        return None
    return listed
