"""Calls as the model itself would write them: the other way round of what a splitter does.

For templates that have no place for the calls of earlier answers, and to see whether a style that was derived
says what its template does.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from modelkit.chat.message import ToolCall
from modelkit.chat.styles.style import JsonCall, MarkedCall, PythonCall, Style, Tag


def write_calls(style: Style, calls: Sequence[ToolCall]) -> str:
    """The calls of one answer, from the first mark to the last. Raises ValueError for a style that has none,
    or that writes messages with headers, whose calls are messages of their own.
    """
    if style.form is None or style.header is not None:
        raise ValueError(f"style {style.name} writes no calls into an answer")
    before, behind = (style.call.open, style.call.close) if style.call else ("", "")
    text = style.joiner.join(before + _call(style.form, call) + behind for call in calls)
    if not isinstance(style.form, MarkedCall) and style.form.list:
        text = f"[{text}]"
    return style.section.open + text + style.section.close if style.section else text


def _call(form: JsonCall | MarkedCall | PythonCall, call: ToolCall) -> str:
    match form:
        case JsonCall(name_is_key=True):
            return _json({call.name: dict(call.arguments)})
        case JsonCall():
            named = {form.id: call.id} if form.id and call.id else {}
            return _json({**named, form.name: call.name, form.arguments: dict(call.arguments)})
        case PythonCall():
            given = (f"{key}={_python(value)}" for key, value in call.arguments.items())
            return f"{call.name}({', '.join(given)})"
        case MarkedCall():
            known = f"{call.id or ''}{form.id_before}" if form.id_before else ""
            head = form.prefix + known + call.name
            # Where a call's head is its id (Kimi), the id holds the name.
            said = (call.id or "").removeprefix(head + form.id_mark)
            head += form.id_mark + said if form.id_mark and said else ""
            name = head + form.suffix if form.named else ""
            return name + _arguments(form, call.arguments) + form.close


def _arguments(form: MarkedCall, arguments: Mapping[str, Any]) -> str:
    if form.tag is not None:
        return "".join(_tagged(form.tag, key, value) for key, value in arguments.items())
    return _dict(arguments, form.quote) if form.arguments == "dict" else _json(dict(arguments))


def _tagged(tag: Tag, key: str, value: Any) -> str:
    kind = ""
    if tag.type is not None:
        other = tag.type.other or _kind(value)
        kind = tag.type.open + (tag.type.text if isinstance(value, str) else other)
    return f"{tag.open}{key}{kind}{tag.name_end}{_value(tag, value)}{tag.close.replace('{name}', key)}"


def _value(tag: Tag, value: Any) -> str:
    if isinstance(value, str):
        return value
    if tag.nested and isinstance(value, dict):
        return "".join(_tagged(tag, key, one) for key, one in value.items())
    if tag.nested and isinstance(value, list):
        return "".join(_tagged(tag, tag.item, one) for one in value)
    return _json(value)


def _dict(value: Any, quote: str) -> str:
    """As Gemma writes values: keys without quotes, texts between two marks."""
    if isinstance(value, str):
        return quote + value + quote
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_dict(one, quote)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_dict(one, quote) for one in value) + "]"
    return _json(value)


def _python(value: Any) -> str:
    if isinstance(value, str):
        return _json(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_python, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(key)}: {_python(one)}" for key, one in value.items()) + "}"
    return repr(value)


def _kind(value: Any) -> str:
    """The JSON type's name."""
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "number", float: "number", dict: "object", list: "array"}
    return kinds.get(type(value), "string")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
