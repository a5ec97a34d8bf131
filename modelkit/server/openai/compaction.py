"""A conversation made short: the model writes a summary, and the item that holds it stands for all of it.

`input_items` reads that item as a system text. It stands alone where OpenAI gives the user's messages back in
front of it: many templates take no two messages of the user in a row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from modelkit.chat.message import Message
from modelkit.server.faults import refused
from modelkit.server.openai.response_items import SEAL
from modelkit.server.openai.response_written import ResponseStream
from modelkit.server.openai.wire import new_id

_ASKED = (
    "Write a summary of the conversation up to here. It takes the place of the conversation, so put into it "
    "what was asked for, what was found, decided and done, with names and numbers as they are, and what is "
    "still to do. Answer with the summary alone."
)


def asking(messages: Sequence[Message], wish: str = "") -> list[Message]:
    """The conversation with the wish for a summary of it; "" for our own words."""
    last, wish = messages[-1], wish or _ASKED
    if last.role == "user":
        return [*messages[:-1], replace(last, content=f"{last.content}\n\n{wish}")]
    return [*messages, Message("user", wish)]


class Compaction(ResponseStream):
    """A Writer, of an answer that is a summary."""

    def whole(self) -> dict[str, Any]:
        """Raises Refused where the summary has no end: what it leaves out would be lost."""
        made = super().whole()
        messages = [item for item in made["output"] if item["type"] == "message"]
        text = "".join(part["text"] for item in messages for part in item["content"])
        if made["status"] != "completed" or not text.strip():
            why = "the model wrote no whole summary of the conversation"
            hint = "max_output_tokens says how long it may be, and it has to fit into the context, too"
            raise refused("invalid_request", f"{why}; {hint}", "max_output_tokens")
        item = {"type": "compaction", "id": new_id("cmp_"), "encrypted_content": SEAL + text}
        return {
            "id": made["id"],
            "object": "response.compaction",
            "created_at": made["created_at"],
            "output": [item],
            "usage": made["usage"],
        }
