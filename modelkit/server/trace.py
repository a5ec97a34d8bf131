"""What is known of one request while it runs; at its end it is one line of the log and a few numbers."""

import time
from collections import Counter
from dataclasses import field
from typing import Literal

from modelkit.server.cost import together
from runtime.engine.request import Usage
from runtime.records import dataclass

Outcome = Literal["ok", "unknown_name", "broken"]


@dataclass(slots=True)
class Trace:
    """Filled on the way, by the gate, the dialect and `underway`. Never holds text of prompts or answers."""

    id: str
    method: str
    path: str
    client: str
    dialect: str = "other"
    model: str = ""
    """The name of a model that there is, as it was loaded by; "" until one was found."""
    asked: str = ""
    """What the request called that model, which may be another of its names, with adapters behind it."""
    body_bytes: int = 0
    """Of its JSON, as far as it has come."""
    status: int = 0
    finish: str = ""
    """"stop", "length", "tool_calls", "cancelled" or "error"."""
    usages: list[Usage] = field(default_factory=list)
    """Of each row that has ended."""
    rows: int = 0
    first_token_s: float | None = None
    """From the request's arrival to the first piece of its answer."""
    piece_s: float | None = None
    """When the last piece of an answer came, on the monotonic clock."""
    tool_calls: Counter[Outcome] = field(default_factory=Counter[Outcome])
    """How often its answers call tools. "unknown_name": one that was not offered. "broken": with arguments
    that are not a JSON object.
    """
    load_s: float = 0.0
    """What it waited for the model to be loaded."""
    queued_s: float = 0.0
    """What it waited for a turn after that, before the engine had it."""
    error: str = ""
    """The kind of fault, where it failed."""
    why: str = ""
    """What was said of it where a name or a page was not let in: a browser does not show that to its page."""
    goes_on: bool = False
    """Its work does so behind its response: who does it notes the end."""
    began_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None

    @property
    def total_s(self) -> float:
        return (time.monotonic() if self.ended_s is None else self.ended_s) - self.began_s

    @property
    def usage(self) -> Usage:
        """Of all rows together."""
        return together(self.usages)
