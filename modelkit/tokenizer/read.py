"""The JSON files of a tokenizer, which are untrusted text.

Sizes are bounded before reading, and JSON is read strictly (`modelkit.json_text`): two readers must not see
two different tokenizers in one file.
"""

import os
from pathlib import Path
from typing import Any

from modelkit.errors import TokenizerError
from modelkit.json_text import parse_strictly
from modelkit.python_faults import fault, unread


def read_object(path: Path, name: str, *, limit_bytes: int) -> dict[str, Any]:
    """The JSON object in the file at `path`. Errors call it `name`, as the model does: in a store it lies
    under its digest. Raises TokenizerError.
    """
    return parse_object(read_text(path, name, limit_bytes=limit_bytes), name)


def read_text(path: Path, name: str, *, limit_bytes: int) -> str:
    """The UTF-8 text of a regular file of at most `limit_bytes`. Raises TokenizerError."""
    try:
        if not path.is_file():
            raise TokenizerError(f"{name} is not a regular file")
        with open(path, "rb", opener=_open_at_once) as file:
            there = min(os.fstat(file.fileno()).st_size, limit_bytes)  # all that is asked for is allocated
            data: Any = file.read(there + 1)
        if data is None:  # a file of /proc that calls itself regular
            raise TokenizerError(f"{name} cannot be read: nothing can be read from it now")
        text = data.decode("utf-8")
    except OSError as error:
        raise TokenizerError(f"{name} cannot be read: {unread(error)}") from error
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{name} cannot be read: {unread(error)}") from error
    if len(data) > limit_bytes:
        raise TokenizerError(f"{name} is larger than {limit_bytes:,} bytes, the most that is read of it")
    return text


def _open_at_once(path: str, flags: int) -> int:
    """Without waiting, even where the file has just been replaced by a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse_object(text: str, name: str) -> dict[str, Any]:
    """The JSON object that `text` spells; `name` is the file to blame. Raises TokenizerError."""
    try:
        value = parse_strictly(text)
    except RecursionError as error:
        raise TokenizerError(f"{name} is nested too deeply") from error
    except ValueError as error:
        raise TokenizerError(f"{name} is not valid JSON: {fault(error)}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{name} holds no JSON object")
    return value
