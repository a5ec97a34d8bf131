"""Conversations that clients leave here between their turns (`thread`): each request brings only what is new.

They are in memory only, and the oldest leave when there are too many. Anthropic's clients then send the whole
conversation again, by themselves: they look for the word `thread_not_found`. A thread that has gone on takes
the place of the one that it went on from.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from starlette.requests import Request

from modelkit.chat.message import Message
from modelkit.server.conversation import message_size
from modelkit.server.faults import Fault, Refused
from modelkit.server.fields import Fields
from runtime.quoting import quoted
from runtime.records import dataclass

MOST_THREADS = 256
MOST_BYTES = 64 * 1024 * 1024
KEPT = ("system", "tools")
Efforts = tuple[str | None, str | None]
"""The one that counts, and the one that will from the user's next words on."""


@dataclass(frozen=True, slots=True)
class Thread:
    """One conversation, up to a turn."""

    said: Sequence[Message] = ()
    """Without the system text."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`system` and `tools`, as they were sent."""
    changes: Sequence[Mapping[str, Any]] = ()
    """Of the tools, since: see `offered`."""
    efforts: Efforts = (None, None)
    """What system messages have set."""
    follows: str = ""
    """The id of the answer that this turn goes on from; "" for the first turn."""


class Threads:
    """keep: on the event loop's thread only."""

    def __init__(self, most: int = MOST_THREADS, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._threads: OrderedDict[str, tuple[Thread, int]] = OrderedDict()
        self._bytes = 0

    def of(self, body: Fields) -> Thread | None:
        """The one that a request goes on from; None for a request without. Raises Refused."""
        given = body.fields("thread")
        if given is None:
            return None
        kind = given.choice("type", ("create", "continue"))
        if kind is None:
            raise given.wrong("type", "create or continue")
        if kind == "create":
            return Thread()
        for name in KEPT:
            body.refuse(name, "a thread keeps what it was created with")
        id, where = given.needed_text("previous_message_id"), given.name("previous_message_id")  # noqa: A001
        found = self._threads.get(id)
        if found is None:
            said = f"{where}: no thread is kept here that ends with {quoted(id)}"
            raise Refused(Fault("not_found", said, where, code="thread_not_found"))
        return replace(found[0], follows=id)

    def keep(self, thread: Thread, id: str, answer: Message) -> None:  # noqa: A002
        """Under the answer's id. thread: with all that was said before it."""
        said = [*thread.said] if answer == Message("assistant") else [*thread.said, answer]
        nbytes = sum(map(message_size, said)) + len(str(thread.fields)) + len(str(thread.changes))
        self._drop(thread.follows)
        self._threads[id] = replace(thread, said=said), nbytes
        self._bytes += nbytes
        while len(self._threads) > self._most or self._bytes > self._most_bytes:
            self._drop(next(iter(self._threads)))

    def _drop(self, id: str) -> None:  # noqa: A002
        self._bytes -= self._threads.pop(id, (None, 0))[1]


def threads_of(request: Request) -> Threads:
    """The server's own."""
    state = request.app.state
    if not hasattr(state, "threads"):
        state.threads = Threads()
    return state.threads
