"""The items of a response's input as they are listed again: each whole, and with an id."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from modelkit.server.openai.response_store import Items
from modelkit.server.openai.wire import new_id
from runtime.quoting import quoted

MOST_LISTED = 100
_PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "function_call_output": "fco_",
    "custom_tool_call_output": "ctco_",
    "compaction": "cmp_",
    "additional_tools": "at_",
    "configuration_update": "cu_",
}
_SEALED = "encrypted_content"


def with_ids(earlier: Items, given: Iterable[Mapping[str, Any]]) -> Items:
    """The conversation up to here, and what was sent behind it. Ids that are there already are made anew:
    clients give one to many items where they know none.
    """
    items = dict(earlier)
    for one in given:
        whole = _whole(one)
        if not isinstance(whole["id"], str) or not whole["id"] or whole["id"] in items:
            whole["id"] = new_id(_PREFIXES[whole["type"]])
        items[whole["id"]] = json.dumps(whole).encode()
    return items


def page(items: Items, query: Fields, include: Sequence[str]) -> dict[str, Any]:
    """Some of them, as OpenAI pages a list: the latest first, unless `order` is asc. Raises Refused."""
    order = query.choice("order", ("asc", "desc"), "desc")
    limit, after = query.whole("limit", 1, MOST_LISTED, default=20), query.text("after")
    ids = list(items) if order == "asc" else list(items)[::-1]
    if after is not None and after not in items:
        raise refused(
            "invalid_request", f"after: no item of this response has the id {quoted(after)}", "after"
        )
    left = ids[ids.index(after) + 1 :] if after is not None else ids
    data = [_as_included(json.loads(items[one]), include) for one in left[:limit]]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(left) > limit,
    }


def _whole(given: Mapping[str, Any]) -> dict[str, Any]:
    kind = given.get("type") or "message"
    whole = {"id": None, **given, "type": kind}
    if kind == "message":
        whole["content"] = _parts(given.get("content"), answered=given["role"] == "assistant")
    elif kind == "reasoning":
        whole["summary"] = given.get("summary") or []
    if kind not in ("reasoning", "compaction", "additional_tools", "configuration_update"):
        whole["status"] = given.get("status") or "completed"
    return whole


def _parts(content: Any, *, answered: bool) -> list[dict[str, Any]]:
    kind = "output_text" if answered else "input_text"
    more: dict[str, Any] = {"annotations": [], "logprobs": []} if answered else {}
    parts = [content or ""] if content is None or isinstance(content, str) else content
    texts = ({"text": one} if isinstance(one, str) else one for one in parts)
    return [one if "refusal" in one else {**more, **one, "type": kind} for one in texts]


def _as_included(item: dict[str, Any], include: Sequence[str]) -> dict[str, Any]:
    """Sealed thinking is told to who asks for it."""
    if item["type"] == "reasoning" and f"reasoning.{_SEALED}" not in include:
        item.pop(_SEALED, None)
    return item
