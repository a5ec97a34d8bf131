"""What all answers begin and end with: a head once the model is there, and an answer that is whole."""

import hashlib
from time import time
from typing import Any

from modelkit import __version__
from modelkit.answers.generation import Finish, Generation
from modelkit.server.ask import Started
from modelkit.server.faults import Refused
from modelkit.server.openai.errors import cancelled
from modelkit.server.openai.wire import Head


def head_of(id: str, model: str, started: Started) -> Head:  # noqa: A002
    """model: as the client named it."""
    return Head(id, model or started.model.name, int(started.created_s), _fingerprint(started))


def read_so_far(started: Started) -> dict[str, Any]:
    """Of all prompts together, in tokens, in llama.cpp's words."""
    read = [one.progress for one in started.streams]
    return {
        "total": sum(one.total for one in read if one),
        "cache": sum(one.cached for one in read if one),
        "processed": sum(one.read for one in read if one),
        "time_ms": round((time() - started.created_s) * 1000),
    }


def whole_answer(event: Finish) -> Generation:
    """The answer, as far as the model or a limit has ended it. Raises Refused where the server has."""
    if event.answer.reason == "cancelled":
        raise Refused(cancelled())
    return event.answer


def _fingerprint(started: Started) -> str:
    content = started.digest or started.model.name
    return "fp_" + hashlib.sha256(f"{__version__} {content}".encode()).hexdigest()[:12]
