"""What FROM, DRAFT and ADAPTER point at: something on this disk, an address, or a model's name.

A text that names an entry of the Modelfile's folder is that. An address (`modelkit.address`) is fetched. A
text that looks like a path (`looks_like_path`) must exist: a typing error in a path is never taken for a
name, and nothing is ever downloaded because of it. Any other text is a name; whether it is a good one, and
stored, the store will say.
"""

import os
from dataclasses import field
from pathlib import Path

from modelkit.address import Address, HubAddress, looks_like_path, read_address
from modelkit.arguments import absolute, on_disk
from modelkit.errors import InvalidName, ModelfileError
from modelkit.modelfile.syntax import ONE_LINE, Directive
from modelkit.python_faults import os_reason
from runtime.quoting import MOST_OF_A_PATH, quoted
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """What FROM, DRAFT or ADAPTER points at."""

    text: str
    """As it is written."""
    path: Path | None
    """Absolute; None when the text is a model's name or an address."""
    address: Address | None = None
    """Where to fetch it from; None when the text is a path or the name of a stored package."""
    line: int = field(default=0, compare=False)
    """Where it stands, from 1; 0 for a reference made in code."""
    column: int = field(default=0, compare=False)
    """From 1; 0 for a reference made in code."""


def resolve(directive: Directive, folder: Path, file: str, *, name_allowed: bool) -> Reference:
    """The reference that a directive's value makes in a Modelfile of `folder`.

    Raises ModelfileError for a path that is not there and for the home of an unknown user.
    """
    text = directive.value
    name = on_disk(text)

    def refuse(message: str, hint: str | None) -> ModelfileError:
        return ModelfileError(message, file=file, line=directive.line, column=directive.column, hint=hint)

    try:
        expanded = Path(name).expanduser() if name.startswith("~") else Path(name)
    except (RuntimeError, ValueError):
        hint = "For a file whose name begins with ~ write ./~name."
        raise refuse(f"{directive.keyword} {quoted(text, MOST_OF_A_PATH)}: no such user", hint) from None
    path = absolute(folder / expanded)
    problem = _problem(path)
    if problem is None:
        return Reference(text, path, None, directive.line, directive.column)
    try:
        address = read_address(text)
    except InvalidName as error:
        raise refuse(f"{directive.keyword}: {error.message}", error.hint) from error
    named = isinstance(address, HubAddress) or (name_allowed and (address or not looks_like_path(text)))
    if named:
        return Reference(text, None, address, directive.line, directive.column)
    message = (
        f"{directive.keyword} {quoted(text, MOST_OF_A_PATH)}: {problem} ({quoted(str(path), MOST_OF_A_PATH)})"
    )
    raise refuse(message, _hint(directive.keyword, text, name_allowed=name_allowed))


def _problem(path: Path) -> str | None:
    """Why nothing can be read at `path`; None when something is there."""
    try:
        path.stat()
    except ValueError:  # a NUL, or a character this system's file names cannot have
        return "not a possible file name"
    except OSError as error:
        return os_reason(error)
    return None


def _hint(keyword: str, text: str, *, name_allowed: bool) -> str:
    if text.endswith("\\"):
        return ONE_LINE
    if "\\" in text and os.sep == "/":
        return "Folders are separated by / here."
    hint = "A path counts from the Modelfile's folder and is never downloaded."
    return f"{hint} A stored model goes by its name: {keyword} my-model" if name_allowed else hint
