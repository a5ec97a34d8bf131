"""The messages of a conversation, oldest first, and how they are taken back."""

from collections.abc import Sequence

from modelkit.chat.message import Message


class Conversation:
    """Turns begin with a message of the user's."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages: list[Message] = [*messages]

    def __bool__(self) -> bool:
        return bool(self.messages)

    @property
    def question(self) -> str | None:
        """The user's last message."""
        at = self._last_turn()
        return None if at is None else self.messages[at].content

    def add(self, *messages: Message) -> None:
        self.messages += messages

    def undo(self) -> list[Message]:
        """Take the last turn back; what it was."""
        at = self._last_turn()
        if at is None:
            return []
        gone = self.messages[at:]
        del self.messages[at:]
        return gone

    def drop_oldest(self) -> int:
        """Leave the oldest turn out; how many messages that were."""
        turns = [place for place, message in enumerate(self.messages) if message.role == "user"]
        if len(turns) < 2:
            return 0
        start = turns[0]
        del self.messages[start : turns[1]]
        return turns[1] - start

    def clear(self) -> None:
        self.messages.clear()

    def _last_turn(self) -> int | None:
        places = (n for n in reversed(range(len(self.messages))) if self.messages[n].role == "user")
        return next(places, None)
