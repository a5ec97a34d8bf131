"""What errors mean to clients: a status and a kind for each, and every dialect has a word for every kind."""

from typing import get_args

import pytest

from modelkit.chat.styles.thinking import no_thinking
from modelkit.errors import (
    Busy,
    DiskDenied,
    DiskFull,
    FetchError,
    LoadError,
    ModelNotFound,
    PromptTooLong,
    RequestError,
    StoreError,
)
from modelkit.server.anthropic.answers import DIALECT as ANTHROPIC
from modelkit.server.faults import STATUSES, Fault, Kind, fault_of, renamed
from modelkit.server.openai import DIALECT as OPENAI


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError("no"), 400),
        (PromptTooLong("no", prompt_tokens=9, context_tokens=4), 400),
        (ModelNotFound("no"), 404),
        (Busy("no", waiting=1), 503),
        (FetchError("the host does not answer"), 502),
        (LoadError("no"), 500),
        (DiskFull("no space left on device"), 507),
        (DiskDenied("read-only file system"), 500),
        (StoreError("damaged"), 500),
        (ValueError("a secret path"), 500),
        (OSError(28, "No space left on device", "a secret path"), 507),
    ],
)
def test_what_an_error_means(error: Exception, status: int) -> None:
    fault = fault_of(error)
    assert fault.status == status
    assert ("secret" in fault.message) is False


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_dialect_words_every_kind(kind: Kind) -> None:
    assert kind in STATUSES
    for dialect in (OPENAI, ANTHROPIC):
        said = dialect.word(Fault(kind, "it is so"), "req_1")["error"]
        assert said["message"] == "it is so"
        assert isinstance(said["type"], str)


def test_advice_names_the_clients_own_field() -> None:
    told = renamed(no_thinking("think_tokens cannot be 8"), {"think_tokens": "reasoning_budget"})
    assert told is not None
    assert told.fault.message.startswith("reasoning_budget cannot be 8: ")
    assert told.fault.message.endswith("\nLeave reasoning_budget out.")
