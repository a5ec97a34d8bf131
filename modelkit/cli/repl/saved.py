"""Conversations on disk, so that `run NAME -c` goes on with the last one.

One file for each, under `sessions` in MODELKIT_HOME, for its owner only: a line of JSON that names the model,
then one for each message. A file is written whole and put in its place, so a crash leaves the one before. The
latest MOST_SAVED stay.
"""

import calendar
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from modelkit.chat.message import Message, read_messages
from modelkit.disk_faults import disk_fault
from modelkit.errors import RequestError
from modelkit.store.disk import replace
from runtime.records import dataclass

FOLDER = "sessions"
MOST_SAVED = 100
_MOST_BYTES = 64 << 20
_DAY = "%Y%m%d-%H%M%S"
_FORM = 1
_DAMAGED = (OSError, ValueError, TypeError, KeyError, AttributeError, RequestError, RecursionError)


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """A conversation on disk."""

    messages: tuple[Message, ...]
    system: str | None
    """The system message that the person had set."""
    path: Path


class ConversationFile:
    """The file of one conversation, which comes to be with its first message. Where it cannot be written, the
    conversation goes on, and all of it is written once there is room.
    """

    def __init__(self, home: Path, model: str, path: Path | None = None) -> None:
        self._folder, self._model, self._path = home / FOLDER, model, path
        self._lags = False

    def write(self, messages: Sequence[Message], system: str | None) -> str | None:
        """A sentence for the person where it begins to fail, and where it works again."""
        if not messages and self._path is None:
            return None
        lagged = self._lags
        try:
            self._write(messages, system)
        except OSError as error:
            self._lags = True
            fault = disk_fault(OSError(error.errno, error.strerror), self._folder).message
            return None if lagged else f"this conversation is not saved for now: {fault}"
        self._lags = False
        return "this conversation is saved again" if lagged else None

    def _write(self, messages: Sequence[Message], system: str | None) -> None:
        head = {"form": _FORM, "model": self._model, "system": system}
        lines = [json.dumps(one) for one in (head, *map(_as_json, messages))]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = self._path or self._folder / _new_name(self._folder)
        part = self._folder / f".{token_hex(8)}.part"
        replace(self._path, ("\n".join(lines) + "\n").encode(), part, durable=False)
        _prune(self._folder, self._path)

    def anew(self, model: str) -> None:
        """What follows is another conversation, with that model."""
        self._model, self._path = model, None


def last(home: Path, model: str) -> SavedConversation:
    """The latest conversation with the model. Raises RequestError where there is none."""
    with suppress(OSError):
        for path in sorted((home / FOLDER).glob("*.jsonl"), reverse=True):
            with suppress(*_DAMAGED):
                head, *lines = _read(path).splitlines()
                said = json.loads(head)
                if said["form"] == _FORM and said["model"] == model and lines:
                    system = said.get("system")
                    messages = read_messages(json.loads(line) for line in lines)
                    return SavedConversation(messages, system if isinstance(system, str) else None, path)
    raise RequestError(f"there is no earlier conversation with {model}", hint="Start one without -c.")


def _new_name(folder: Path) -> str:
    """Names sort in the order in which they were made, wherever the clock stands, and no two are alike."""
    newest = max((path.name for path in folder.glob("*.jsonl")), default="")
    now_ns = max(time.time_ns(), _moment_ns(newest) + 1)
    day = time.strftime(_DAY, time.gmtime(now_ns // 10**9))
    return f"{day}-{now_ns % 10**9:09}-{os.getpid()}.jsonl"


def _moment_ns(name: str) -> int:
    """When a conversation began, by its name; 0 for a name that does not say."""
    day, _, rest = name.rpartition("-")[0].rpartition("-")
    try:
        return calendar.timegm(time.strptime(day, _DAY)) * 10**9 + int(rest)
    except ValueError:
        return 0


def _as_json(message: Message) -> dict[str, Any]:
    made = message.as_template()
    made.pop("reasoning_content", None)
    return made


def _read(path: Path) -> str:
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError("too large")
    return path.read_text()


def _prune(folder: Path, written: Path) -> None:
    others = sorted(path for path in folder.glob("*.jsonl") if path != written)
    for path in others[: -(MOST_SAVED - 1)]:
        path.unlink(missing_ok=True)
