"""References into a schema (`#/properties/a`), led to definitions of their own.

Conditions and choices are written anew (`conditions`, `one_of`), and what a pointer leads to may be
elsewhere then. It may also stand where no draft has schemas (`#/components/schemas/A`), and nobody else here
looks.
So what is referred to is a definition before, as it stands there.
"""

import json
import re
from typing import Any
from urllib.parse import unquote

from modelkit.grammars.forms import MOST_CHARACTERS
from modelkit.grammars.schemas.traversal import Schema, subschemas
from modelkit.schema import target

_WHOLE = re.compile(r"#(/(\$defs|definitions)/[^/]+)?")


def is_to_definition(reference: Any) -> bool:
    """Does it lead where it did when schemas are written anew?"""
    return isinstance(reference, str) and bool(_WHOLE.fullmatch(reference) or not reference.startswith("#/"))


def with_definitions(root: Schema) -> bool:
    """Lead them there, in place, as far as they lead anywhere. Was there any?"""
    left = MOST_CHARACTERS["schema"]
    names, found = dict[str, str](), dict[str, Any]()
    taken = root.get("$defs")
    taken = taken if isinstance(taken, dict) else {}
    waiting = [schema for _, schema in subschemas(root)]
    while waiting:
        schema = waiting.pop()
        led = schema.get("$ref")
        if is_to_definition(led) or not isinstance(led, str):
            continue
        if led not in names:
            there = target(led, root)
            text = json.dumps(there)
            left -= len(text)
            if not isinstance(there, dict | bool) or left < 0:
                continue
            name = re.sub(r"[^\w.-]+", " ", f"at {unquote(led[2:])}")  # an address, too
            while name in taken or name in found:
                name += " again"
            names[led], found[name] = name, json.loads(text)
            waiting += [one for _, one in subschemas(found[name])] if isinstance(there, dict) else []
        schema["$ref"] = f"#/$defs/{names[led]}"
    if found:
        root["$defs"] = {**taken, **found}
    return bool(found)
