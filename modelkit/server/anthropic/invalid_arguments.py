"""Arguments of a call that are no JSON: an `input` is an object all the same, and one without a trace of what
went wrong looks like a call that is meant so.

Anthropic's documentation has clients hand such arguments back as one member of an object, `INVALID_JSON`.
Here they come so: what the client already has of them is brought to an end, and that member is the last.
"""

import json

INVALID = "INVALID_JSON"
_ENDS = (
    *("", '"', "null", ": null", '": null', '"": null', "0"),
    *("rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l"),
    *('\\"', '0"', '00"', '000"', '0000"', '\\": null'),
)
"""What may be missing of a value or a name, where a text of JSON breaks off."""


def ended(written: str, rest: str) -> str:
    """What makes an object of `written`, the sound beginning of one, with all in it that the model wrote,
    `rest` too. "" where that cannot be.
    """
    member = f"{json.dumps(INVALID)}: {json.dumps(written + rest)}}}"
    if not written.strip():
        return "{" + member
    open_ = _open(written)
    if not open_.endswith("}"):
        return ""
    for end in _ENDS:
        for comma in (", ", ""):
            tail = f"{end}{open_[:-1]}{comma}{member}"
            if _sound(written + tail):
                return tail
    return ""


def _open(written: str) -> str:
    """What closes the objects and lists that are open, the innermost first."""
    closers, inside, escaped = list[str](), False, False
    for char in written:
        if inside:
            inside, escaped = escaped or char != '"', char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in "{[":
            closers.append("}" if char == "{" else "]")
        elif char in "}]" and closers:
            closers.pop()
    return "".join(reversed(closers))


def _sound(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
