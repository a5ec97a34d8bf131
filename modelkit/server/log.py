"""One line per request, at its end; and what went wrong inside.

No text of prompts or answers, no keys, and no control characters: a client's words cannot make lines of their
own. As text for people, or one JSON object a line.
"""

import json
import os
import stat
import sys
import threading
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from modelkit.errors import ModelkitError
from modelkit.python_faults import os_reason
from modelkit.server.json_parts import in_parts
from modelkit.server.trace import Trace
from modelkit.store.layout import refuse_inside

if TYPE_CHECKING:
    from modelkit.model import Model

_LONGEST = 200


class Lines(Protocol):
    """Where lines go, each written whole."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class Log:
    """Any thread may write. stream: standard error by default. as_json: one object a line."""

    def __init__(self, stream: Lines | None = None, *, as_json: bool = False) -> None:
        self._stream, self._as_json = stream, as_json
        self._lock = threading.Lock()

    def request(self, trace: Trace) -> None:
        """The line of a request that has ended."""
        self.line("request", **fields_of(trace))

    def notes(self, model: "Model") -> None:
        """What its user should know of a model that was loaded."""
        for note in model.notes:
            self.line("note", model=model.name, said=note)

    def failure(self, trace: Trace, error: BaseException) -> None:
        """An error that nobody foresaw, with where it came from."""
        where = "".join(traceback.format_exception(error))
        self.line("failure", id=trace.id, path=trace.path, error=repr(error)[:_LONGEST], where=where)

    def line(self, event: str, **fields: Any) -> None:
        """One line."""
        now = _now()
        if self._as_json:
            text = json.dumps({"time": now, "event": event, **fields})
        else:
            pairs = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
            text = f"{now} {event} {pairs}"
        stream = self._stream or sys.stderr
        # Who read it may have gone, or the disk be full: that is no reason not to answer, nor not to stop.
        with self._lock, suppress(OSError, ValueError):
            stream.write(text + "\n")
            stream.flush()


class PromptLog:
    """What clients ask, word for word, one JSON object a line: for whoever wants to know what a program
    sends. The file is its owner's alone. Any thread may write. Raises ModelkitError where it cannot be
    opened. fault: why what was asked last is not in it.
    """

    def __init__(self, path: Path) -> None:
        refuse_inside(path)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            number = os.open(path, flags, 0o600)
            if not stat.S_ISREG(os.fstat(number).st_mode):  # a device is everybody's, and keeps its mode
                os.close(number)
                raise ModelkitError(f"cannot write {path}: it is not a file")
            os.fchmod(number, 0o600)
        except OSError as error:
            raise ModelkitError(f"cannot write {path}: {os_reason(error)}") from error
        self._number, self._lock = number, threading.Lock()
        self._cut = False  # does the file end within a line?
        self.fault: str | None = None

    def write(self, trace: Trace, body: object) -> bool:
        """What a request asks. False where that went wrong for the first time, and `fault` is new: the
        request is answered all the same.
        """
        line = in_parts({"time": _now(), "id": trace.id, "path": trace.path, "body": body}) + b"\n"
        with self._lock:
            known, data = self.fault is not None, b"\n" * self._cut + line
            written, self.fault = 0, None
            try:
                while written < len(data):
                    written += os.write(self._number, data[written:])
            except OSError as error:
                self.fault = os_reason(error)
            if written:
                self._cut = data[written - 1 : written] != b"\n"
            return known or self.fault is None

    def close(self) -> None:
        with self._lock, suppress(OSError):
            os.close(self._number)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def fields_of(trace: Trace) -> dict[str, Any]:
    """What a line says of a request. Times are milliseconds."""
    usage = trace.usage
    fields: dict[str, Any] = {
        "id": trace.id,
        "client": trace.client,
        "dialect": trace.dialect,
        "method": trace.method[:_LONGEST],
        "path": trace.path[:_LONGEST],
        "status": trace.status,
        "ms": round(trace.total_s * 1000),
    }
    if trace.model:
        fields["model"] = trace.asked[:_LONGEST]
    if trace.usages:
        fields |= {
            "prompt": usage.prompt_tokens,
            "cached": usage.cached_tokens,
            "generated": usage.generated_tokens,
            "drafted": usage.drafted_tokens,
            "accepted": usage.accepted_tokens,
            "load_ms": round(trace.load_s * 1000),
            "queue_ms": round((trace.queued_s + usage.wait_s) * 1000),
            "prefill_ms": round(usage.prefill_s * 1000),
            "decode_ms": round(usage.decode_s * 1000),
        }
    if trace.finish:
        fields["finish"] = trace.finish
    if trace.error:
        fields["error"] = trace.error
    if trace.why:
        fields["why"] = trace.why
    return fields


def _plain(value: object) -> str:
    """A value of a text line: quoted where it has blanks or anything else that could look like a field."""
    text = str(value)
    if text and text.isascii() and text.isprintable() and not set(text) & set(' "=\\'):
        return text
    return json.dumps(text)
