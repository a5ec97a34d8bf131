"""Errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`.

Clients read `message` as a text, and agents act on `code`: "context_length_exceeded" makes them shorten the
conversation.
"""

from typing import Any

from modelkit.server.faults import Fault, Kind
from modelkit.server.streaming import sse

_TYPES: dict[Kind, tuple[str, str | None]] = {
    "invalid_request": ("invalid_request_error", None),
    "too_long": ("invalid_request_error", "context_length_exceeded"),
    "authentication": ("authentication_error", "invalid_api_key"),
    "permission": ("permission_error", None),
    "not_found": ("invalid_request_error", "not_found"),
    "model_not_found": ("invalid_request_error", "model_not_found"),
    "method": ("invalid_request_error", "method_not_allowed"),
    "timeout": ("timeout_error", None),
    "too_large": ("invalid_request_error", "request_too_large"),
    "headers": ("invalid_request_error", "request_header_fields_too_large"),
    "media_type": ("invalid_request_error", None),
    "busy": ("server_error", "overloaded"),
    "ranks_lost": ("server_error", "ranks_lost"),
    "draining": ("server_error", "overloaded"),
    "gone": ("server_error", "client_gone"),
    "upstream": ("server_error", "upstream_error"),
    "disk_full": ("server_error", "disk_full"),
    "disk_denied": ("server_error", "disk_denied"),
    "internal": ("server_error", None),
}


def word(fault: Fault, request_id: str) -> dict[str, Any]:
    """What a Dialect needs: the JSON of an error. The request's id is in a header."""
    kind, code = _TYPES[fault.kind]
    return {"error": {"message": fault.message, "type": kind, "param": fault.param, "code": code}}


def error_event(fault: Fault) -> bytes:
    """In the middle of a stream. Nothing follows it."""
    return sse(word(fault, ""))


def cancelled() -> Fault:
    """An answer that the server itself has ended."""
    return Fault("draining", "the server has ended this answer before it was whole")
