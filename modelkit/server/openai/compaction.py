"""A conversation made short: the model writes a summary, and the item that holds it stands for all of it.

`input_items` reads that item as a system text. It stands alone where OpenAI gives the user's messages back in
front of it: many templates take no two messages of the user in a row.
"""

from typing import Any

from modelkit.server.faults import refused
from modelkit.server.openai.response_items import SEAL
from modelkit.server.openai.response_writer import ResponseStream
from modelkit.server.openai.wire import new_id


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
