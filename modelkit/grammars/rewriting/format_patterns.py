"""Patterns beside formats of texts, as zod writes them: it has a format for each of its checks
(`starts_with`, `ulid`, `cidrv4`), and says what that means in a pattern.

So a format that is not known says nothing there that its pattern does not. Some patterns look ahead from
their middle on, or compare properties of characters, which no grammar holds: what stands for these here takes
nothing that they do not.
"""

from typing import Any

from modelkit.grammars.patterns.formats import FORMATS
from modelkit.grammars.schemas.traversal import Schema, subschemas

_LABELS = (
    r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$"
)
_HELD: dict[str, dict[str, Any]] = {
    r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$": {
        "pattern": f"^({FORMATS['duration']})$"
    },
    rf"^(?=.{{1,253}}\.?$){_LABELS}": {"pattern": f"^{_LABELS}", "maxLength": 253},
    r"^(?=[\s\S]*[\p{Extended_Pictographic}\p{Regional_Indicator}\u20E3])"
    r"[\p{Extended_Pictographic}\p{Emoji_Component}]+$": {"pattern": r"^\p{Emoji_Presentation}+$"},
}


def with_enforced_patterns(root: Schema) -> bool:
    """Write them so, in place. Was there any?"""
    found = False
    for _, schema in subschemas(root):
        pattern, name = schema.get("pattern"), schema.get("format")
        if not isinstance(pattern, str) or not isinstance(name, str):
            continue
        if name not in FORMATS:
            del schema["format"]
            found = True
        if pattern in _HELD and not schema.keys() & {"maxLength", "minLength"}:
            schema |= _HELD[pattern]
            found = True
    return found
