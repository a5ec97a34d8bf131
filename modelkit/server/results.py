"""Results of tools, and the calls that they belong to."""

from modelkit.chat.message import Message


class Calls:
    """Those of a conversation, as far as it was read. The services refuse a result that belongs to none:
    models were never trained on one, and a client that sends it has lost a part of the conversation.
    """

    def __init__(self) -> None:
        self._ids = set[str | None]()

    def lack(self, message: Message) -> bool:
        """Read one message more: is it a result without a call in front of it? A call that has no id, as
        older clients write it, may be any result's; and so may any call where the result has none.
        """
        self._ids.update(call.id or None for call in message.tool_calls)
        if message.role != "tool" or None in self._ids:
            return False
        return message.tool_call_id not in self._ids if message.tool_call_id else not self._ids
