"""One line per request, at its end; and what went wrong inside.

No text of prompts or answers, no keys, and no control characters: a client's words cannot make lines of their
own. As text for people, or one JSON object a line.
"""

import json
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import IO, Any

from modelkit.server.trace import Trace

_LONGEST = 200


class Log:
    """Any thread may write. as_json: one object a line. quiet: no lines of requests that went well."""

    def __init__(self, stream: IO[str] | None = None, *, as_json: bool = False) -> None:
        self._stream, self._as_json = stream, as_json
        self._lock = threading.Lock()

    def request(self, trace: Trace) -> None:
        """The line of a request that has ended."""
        self.line("request", **fields_of(trace))

    def failure(self, trace: Trace, error: BaseException) -> None:
        """An error that nobody foresaw, with where it came from."""
        where = "".join(traceback.format_exception(error))
        self.line("failure", id=trace.id, path=trace.path, error=repr(error)[:_LONGEST], where=where)

    def line(self, event: str, **fields: Any) -> None:
        """One line."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._as_json:
            text = json.dumps({"time": now, "event": event, **fields})
        else:
            pairs = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
            text = f"{now} {event} {pairs}"
        stream = self._stream or sys.stderr
        with self._lock:
            stream.write(text + "\n")
            stream.flush()


def fields_of(trace: Trace) -> dict[str, Any]:
    """What a line says of a request. Times are milliseconds."""
    usage = trace.usage
    fields: dict[str, Any] = {
        "id": trace.id,
        "client": trace.client,
        "dialect": trace.dialect,
        "method": trace.method,
        "path": trace.path[:_LONGEST],
        "status": trace.status,
        "ms": round(trace.total_s * 1000),
    }
    if trace.model:
        fields["model"] = trace.model
    if trace.usages:
        fields |= {
            "prompt": usage.prompt_tokens,
            "cached": usage.cached_tokens,
            "generated": usage.generated_tokens,
            "drafted": usage.drafted_tokens,
            "accepted": usage.accepted_tokens,
            "load_ms": round(trace.load_s * 1000),
            "queue_ms": round(usage.wait_s * 1000),
            "prefill_ms": round(usage.prefill_s * 1000),
            "decode_ms": round(usage.decode_s * 1000),
        }
    if trace.finish:
        fields["finish"] = trace.finish
    if trace.error:
        fields["error"] = trace.error
    return fields


def _plain(value: object) -> str:
    """A value of a text line: quoted where it has blanks or anything else that could look like a field."""
    text = str(value)
    if text and text.isascii() and text.isprintable() and not set(text) & set(' "=\\'):
        return text
    return json.dumps(text)
