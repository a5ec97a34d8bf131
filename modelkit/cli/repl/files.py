"""Text files in a message: `/read FILE` sends one, and @FILE anywhere in a message brings one with it."""

import os
import re
from pathlib import Path

from modelkit import text_files
from modelkit.arguments import on_disk
from modelkit.errors import RequestError, SourceError
from modelkit.python_faults import unread
from modelkit.source.tree import open_regular

MOST_BYTES = 1_000_000
_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_ENDS = ".,;:!?)"
_ENDING = re.compile(r"\.[A-Za-z]\w{0,4}$")


def read_text(name: str) -> str:
    """The text of a file. Raises RequestError."""
    path = Path(os.path.expanduser(on_disk(name)))
    try:
        with open_regular(path, name) as file:
            return text_files.read_text(file, MOST_BYTES)
    except SourceError as error:
        raise RequestError(error.message) from error
    except (OSError, ValueError) as error:
        raise RequestError(f"{name} cannot be read: {unread(error)}") from error


def with_files(text: str) -> tuple[str, list[str]]:
    """The message with the files behind it that it mentions, and their names. What names no file is text, as
    it stands; a name with a slash in it, or in quotes, is meant, so one that is missing is an error.
    """
    names: list[str] = []
    for found in _MENTION.finditer(text):
        name = found[1] or found[2]
        meant = _file_of(name)
        if meant:
            names.append(meant)
        elif "/" in name or found[1]:
            raise RequestError(
                f"there is no file {name.rstrip(_ENDS)}", hint="Without the @ it is plain text."
            )
    names = list(dict.fromkeys(names))
    return "\n\n".join([text, *(fenced(name, read_text(name)) for name in names)]), names


def unfound(text: str) -> list[str]:
    """Names that it mentions and that look like those of files (`@notes.txt`), where there is no such file.
    Of a message of several lines none: code that was pasted has decorators.
    """
    names = [] if "\n" in text else [found[2].rstrip(_ENDS) for found in _MENTION.finditer(text) if found[2]]
    return [name for name in names if _ENDING.search(name) and _file_of(name) is None]


def _file_of(name: str) -> str | None:
    """The file that a mention names, whose last character may be the sentence's."""
    there = (one for one in (name, name.rstrip(_ENDS)) if os.path.isfile(os.path.expanduser(on_disk(one))))
    return next(there, None)


def fenced(name: str, text: str) -> str:
    """A file's text in a message: between marks that the text itself does not have."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{name}:\n{fence}\n{text.removesuffix(chr(10))}\n{fence}"
