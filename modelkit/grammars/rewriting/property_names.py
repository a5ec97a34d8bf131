"""Objects whose names `propertyNames` describes, in the words that the library knows.

It lists them, as pydantic writes `dict[Literal["a", "b"], int]` and dicts by the members of an enumeration:
then each is a property that may be left out, with what `additionalProperties` says where it has nothing of
its own, and no other name is allowed. It has one pattern, format or length: then these are
`patternProperties`. It says of names that they are texts, as zod does for every record: then it goes.

Within one schema each means the same. Where it says anything else, or would make the schema too long, it
stays as it was written, and is refused for it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from modelkit.grammars.forms import MOST_CHARACTERS
from modelkit.grammars.patterns.formats import FORMATS
from modelkit.grammars.schemas.limits import MOST_OPTIONAL
from modelkit.grammars.schemas.loosening import parts_of
from modelkit.schema import target

_NAMES = "propertyNames"
_LISTS = frozenset({"enum", "const"})
_ANOTHER = 16  # characters of one more property, about
_SIZES = frozenset({"minLength", "maxLength"})
_OWN = frozenset({"properties", "patternProperties", "required"})
_SAYS_NOTHING = frozenset({"type", "title", "description", "$comment", "examples"})


def without_property_names(text: str) -> str:
    """The schema with such objects written out. A text that is not a JSON object comes back as it is."""
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
        names = schema.get(_NAMES)
        if names is True:
            names = {}
        if isinstance(names, dict) and names.keys() & _LISTS == set() and "$ref" in names:
            names = target(names["$ref"], self._root)
        if not isinstance(names, dict) or names.get("type", "string") != "string":
            return
        if id(names) not in self._lists:
            self._lists[id(names)] = _list_of(names)
        listed, pattern = self._lists[id(names)], _pattern_of(names)
        if listed is not None:
            self._list(schema, listed)
        elif not _constraints(names):
            del schema[_NAMES]
            self.changed = True
        elif pattern is not None and not schema.keys() & _OWN:
            del schema[_NAMES]
            schema["patternProperties"] = {pattern: schema.get("additionalProperties", True)}
            schema["additionalProperties"] = False
            self.changed = True

    def _list(self, schema: dict[str, Any], names: list[str]) -> None:
        own, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        if not isinstance(own, dict) or "patternProperties" in schema:
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


def _constraints(names: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in names.items() if key not in _SAYS_NOTHING}


def _list_of(names: Mapping[str, Any]) -> list[str] | None:
    match _constraints(names):
        case {"enum": [*listed], **more} if not more and len(listed) <= MOST_OPTIONAL:
            return listed if all(isinstance(name, str) for name in listed) else None
        case {"const": str(name), **more} if not more:
            return [name]
        case _:
            return None


def _pattern_of(names: Mapping[str, Any]) -> str | None:
    match _constraints(names):
        case {"pattern": str(pattern), **more} if not more:
            return pattern
        case {"format": str(name), **more} if not more and name in FORMATS:
            return f"^({FORMATS[name]})$"
        case {**said} if said.keys() <= _SIZES and all(type(one) is int for one in said.values()):
            return f"^[^]{{{said.get('minLength', 0)},{said.get('maxLength', '')}}}$"
        case _:
            return None
