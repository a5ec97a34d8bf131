"""What goes wrong with a request: one value, which each dialect words in its own shape.

`fault_of` tells what an error means to whoever asked: a status of HTTP and a kind. The kinds are the same for
all dialects, so that a formatter needs a table and no guesses.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Literal

from starlette.exceptions import HTTPException

from modelkit.disk_faults import no_room
from modelkit.errors import (
    Busy,
    DiskDenied,
    DiskFull,
    FetchError,
    InvalidName,
    LoadError,
    ModelClosed,
    ModelfileError,
    ModelkitError,
    ModelNotFound,
    ParameterError,
    PlanError,
    PromptTooLong,
    RanksLost,
    RequestError,
    TemplateError,
)
from runtime.records import dataclass

Kind = Literal[
    "invalid_request",
    "too_long",
    "authentication",
    "permission",
    "not_found",
    "model_not_found",
    "method",
    "timeout",
    "too_large",
    "headers",
    "media_type",
    "busy",
    "ranks_lost",
    "draining",
    "gone",
    "upstream",
    "disk_full",
    "disk_denied",
    "internal",
]

STATUSES: dict[Kind, int] = {
    "invalid_request": 400,
    "too_long": 400,
    "authentication": 401,
    "permission": 403,
    "not_found": 404,
    "model_not_found": 404,
    "method": 405,
    "timeout": 408,
    "too_large": 413,
    "headers": 431,
    "media_type": 415,
    "busy": 503,
    "ranks_lost": 503,
    "draining": 503,
    "gone": 499,
    "upstream": 502,
    "disk_full": 507,
    "disk_denied": 500,
    "internal": 500,
}
RETRY_AFTER_S = 1
TOLD_IN_THE_LOG: frozenset[Kind] = frozenset({"permission", "disk_full", "disk_denied"})
"""What whoever runs the server can mend: the log has the words that the client gets."""
LASTING: frozenset[Kind] = frozenset({"internal", "disk_full", "disk_denied"})
"""What would only fail again in a moment, although its status says that the server is at fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as a client is told of it."""

    kind: Kind
    message: str
    """In plain words: what is, what was expected, what to do."""
    param: str | None = None
    """The field of the request that it is about, such as `messages[2].content`."""
    retry_after_s: int | None = None
    """When to try again; None where that would not help."""
    allow: str | None = None
    """The methods that there are, for the kind "method"."""
    code: str | None = None
    """A word that clients look for, where the kind's own say too little."""

    @property
    def status(self) -> int:
        """Of HTTP, where the dialect has no other."""
        return STATUSES[self.kind]

    @property
    def phrase(self) -> str:
        """The status in words."""
        return "Client Closed Request" if self.status == 499 else HTTPStatus(self.status).phrase


class Refused(ModelkitError):
    """A request that is refused before a model sees it, or instead of an answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def refused(kind: Kind, message: str, param: str | None = None) -> Refused:
    """An error to raise."""
    return Refused(Fault(kind, message, param))


def client_gone() -> Refused:
    """To raise where nobody reads the answer any more."""
    return refused("gone", "the client has left")


_WRONG_ASKING = (
    RequestError,
    ParameterError,
    TemplateError,
    ModelfileError,
    PlanError,
)


def renamed(error: ModelkitError, names: Mapping[str, str]) -> Refused | None:
    """What a model refuses, with the client's name for what it is about. names: of our keywords, with which
    messages begin; None for an error that begins with none of them.
    """
    word = re.match(r"[a-z_]*", error.message)[0]  # pyright: ignore[reportOptionalSubscript]
    if not isinstance(error, _WRONG_ASKING) or word not in names:
        return None
    said = str(error).removeprefix(word).replace(f"Leave {word} out", f"Leave {names[word]} out")
    return refused("invalid_request", names[word] + said, names[word])


def fault_of(error: BaseException) -> Fault:
    """What it means to whoever asked. What is not ours says no more than that it failed."""
    if isinstance(error, Refused):
        return error.fault
    if isinstance(error, HTTPException):
        return _of_starlette(error)
    if no_room(error) and not isinstance(error, DiskFull):  # of a library that writes by itself
        return Fault("disk_full", "there is no room on the server's disk for what this request needs")
    if not isinstance(error, ModelkitError):
        return Fault("internal", "the server failed to answer this request; see its log")
    if isinstance(error, Busy):
        return Fault("busy", str(error), retry_after_s=error.retry_after_s)
    if isinstance(error, ModelNotFound):
        return Fault("model_not_found", str(error), "model")
    if isinstance(error, InvalidName):
        return Fault("invalid_request", str(error), "model")
    if isinstance(error, RanksLost):  # nothing to try again here: the server has to be started anew
        return Fault("ranks_lost", str(error))
    if isinstance(error, ModelClosed):
        return Fault("busy", str(error), retry_after_s=RETRY_AFTER_S)
    if isinstance(error, PromptTooLong):
        return Fault("too_long", str(error))
    if isinstance(error, _WRONG_ASKING):
        return Fault("invalid_request", str(error))
    if isinstance(error, FetchError):
        return Fault("upstream", str(error))
    if isinstance(error, DiskFull):
        return Fault("disk_full", str(error))
    if isinstance(error, DiskDenied):
        return Fault("disk_denied", str(error))
    if isinstance(error, LoadError):
        return Fault("internal", str(error), "model")
    return Fault("internal", str(error))


def _of_starlette(error: HTTPException) -> Fault:
    """What the router itself refuses: unknown paths and wrong methods."""
    if error.status_code == 404:
        return Fault("not_found", "there is no such path here")
    if error.status_code == 405:
        allow = (error.headers or {}).get("Allow")
        return Fault("method", f"this path takes {allow or 'another method'}", allow=allow)
    return Fault("invalid_request" if error.status_code < 500 else "internal", error.detail)
