"""References by names (`$id`, `$anchor`, `$dynamicRef`, `$recursiveRef`) as references into the schema.

    {"$id": "https://a.b/tree", "$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}}
        = {"items": {"$ref": "#"}}

A schema may be several with addresses of their own, bundled: each `$id` begins one, from which its references
lead on, and nobody else here looks at that. What a dynamic reference leads to depends on the way by which it
was come to: the outermost schema on that way that has its name. So what is referred to is written once for
each such way that makes a difference, as a definition of the root. A schema of which one reference leads out
of it stays as it was written: the library knows some, and says of the others what is wrong.
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urljoin

from modelkit.grammars.schemas.traversal import Schema, children, pointer_escaped
from modelkit.schema import target
from runtime.records import dataclass

_NAMED = re.compile(r'"\$(?:dynamicRef|dynamicAnchor|recursiveRef|recursiveAnchor)"|"\$ref"\s*:\s*"(?!#/|#")')
_OLD = re.compile(r"draft-0[3467]/")
_LED = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
_AROUND = frozenset({*_NAMES, "$defs", "definitions"})
_MOST_DEFINITIONS = 4_000
_MOST_KEYWORDS = 100_000  # in all that is written
_ITSELF = ""
"""The name of what `$recursiveAnchor` marks."""

_Scope = frozenset[tuple[str, str]]
"""Of dynamic names what the outermost schema on the way has for each: a pointer."""


class _Astray(Exception):
    """A reference leads out of the schema, or there are too many ways."""


def with_local_references(text: str) -> str:
    """A text that is not a JSON object comes back as it is."""
    if not _NAMED.search(text) and text.count('"$id"') < 2:
        return text
    root = json.loads(text)
    if not isinstance(root, dict):
        return text
    try:
        return json.dumps(_Linking(root).written())
    except (_Astray, TypeError, AttributeError, ValueError):  # as it is: the library says what is wrong
        return text


@dataclass(frozen=True, slots=True)
class _Resource:
    """A schema with an address, as far as no other begins in it."""

    at: str
    """Its JSON pointer, without a hash."""
    names: dict[str, str]
    """Anchors, and the pointers to what they name."""
    dynamic: dict[str, str]
    """Those of them that are dynamic."""


class _Linking:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._old = bool(_OLD.search(str(root.get("$schema", ""))))
        self._resources: dict[str, _Resource] = {}
        self._bases: dict[str, str] = {}
        """By the pointers to schemas: the address of what they stand in."""
        self._left = _MOST_KEYWORDS
        self._times: dict[str, int] = {}
        self._definitions: dict[str, Any] = {}
        self._known: dict[tuple[str, _Scope], str] = {}
        self._waiting: list[tuple[str, str, _Scope]] = []
        self._find()

    def written(self) -> Schema:
        """The root and its definitions."""
        scope = self._entered(frozenset(), "")
        self._known["", scope] = "#"
        found = self._rewritten(self._root, "", scope)
        while self._waiting:
            name, at, scope = self._waiting.pop()
            self._definitions[name] = self._rewritten(self._at(at), at, scope)
        return {**found, "$defs": self._definitions} if self._definitions else found

    def _find(self) -> None:
        left = [("", self._root, "")]
        while left:
            at, schema, base = left.pop()
            base = self._named(at, schema, base)
            self._bases[at] = base
            left += [(one, its, base) for (one, its), _ in children(at, schema)]

    def _named(self, at: str, schema: Schema, base: str) -> str:
        """The address of what the schema stands in, which may begin with it."""
        said = schema.get("$id", schema.get("id") if self._old else None)
        own = said if isinstance(said, str) and not (self._old and "$ref" in schema) else ""
        address, _, anchor = own.partition("#")
        if address or not at:
            base = urljoin(base, address)
            self._resources[base] = _Resource(at, {}, {})
        resource = self._resources[base]
        names = [anchor if self._old else "", schema.get("$anchor"), schema.get("$dynamicAnchor")]
        resource.names.update((one, at) for one in names if isinstance(one, str) and one)
        if isinstance(names[2], str):
            resource.dynamic[names[2]] = at
        if schema.get("$recursiveAnchor") is True and resource.at == at:
            resource.dynamic[_ITSELF] = at
        return base

    def _entered(self, scope: _Scope, at: str) -> _Scope:
        """Those behind the beginning of what a schema stands in."""
        known = {name for name, _ in scope}
        dynamic = self._resources[self._base(at)].dynamic
        return scope | {(name, there) for name, there in dynamic.items() if name not in known}

    def _base(self, at: str) -> str:
        while at not in self._bases:  # it stands where no schema does
            at = at.rpartition("/")[0]
        return self._bases[at]

    def _at(self, at: str) -> Any:
        found = target(f"#{at}", self._root)
        if not isinstance(found, dict | bool):
            raise _Astray
        return found

    def _rewritten(self, schema: Any, at: str, scope: _Scope) -> Any:
        if not isinstance(schema, dict):
            return schema
        self._left -= len(schema)
        if self._left < 0:
            raise _Astray
        scope = self._entered(scope, at)
        found: Schema = {key: value for key, value in schema.items() if key not in _AROUND}
        for one, its in (one for one, defines in children(at, schema) if not defines):
            _put(found, one[len(at) :], self._rewritten(its, one, scope))
        led = [self._reference(*self._led(key, str(schema[key]), at, scope)) for key in _LED if key in schema]
        for key in _LED:
            found.pop(key, None)
        if led:
            found["$ref"] = led[0]
        if led[1:]:
            found["allOf"] = [*found.get("allOf", ()), *({"$ref": one} for one in led[1:])]
        return found

    def _led(self, key: str, reference: str, at: str, scope: _Scope) -> tuple[str, _Scope]:
        """(where a reference leads to, the ways there)."""
        address, _, name = reference.partition("#")
        base = self._base(at)
        resource = self._resources.get(urljoin(base, address) if address else base)
        if resource is None:
            raise _Astray
        name = unquote(name)
        there = resource.names.get(name) if name and name[0] != "/" else resource.at + name
        if there is None:
            raise _Astray
        dynamic = _ITSELF if key == "$recursiveRef" else name
        if key != "$ref" and resource.dynamic.get(dynamic) == there:
            there = dict(scope).get(dynamic, there)
        return there, scope

    def _reference(self, at: str, scope: _Scope) -> str:
        scope = self._entered(scope, at)
        if (at, scope) not in self._known:
            self._at(at)
            place, _, own = at.rpartition("/")
            name = (
                own.replace("~1", "/").replace("~0", "~")
                if place in ("/$defs", "/definitions")
                else f"at {at[1:]}"
            )
            name = re.sub(r"[^\w.-]+", " ", name) or "at"
            times = self._times[name] = self._times.get(name, 0) + 1
            name = name if times == 1 else f"{name} ({times})"
            if name in self._definitions or len(self._definitions) > _MOST_DEFINITIONS:
                raise _Astray
            self._definitions[name] = True
            self._known[at, scope] = f"#/$defs/{pointer_escaped(name)}"
            self._waiting.append((name, at, scope))
        return self._known[at, scope]


def _put(schema: Schema, path: str, value: Any) -> None:
    """In the place of what stands there, in copies of what is on the way."""
    key, _, rest = path[1:].partition("/")
    if not rest:
        schema[key] = value
        return
    held: Mapping[str, Any] | list[Any] = schema[key]
    if isinstance(held, list):
        schema[key] = [value if str(place) == rest else one for place, one in enumerate(held)]
    else:
        name = rest.replace("~1", "/").replace("~0", "~")
        schema[key] = {**held, name: value}
