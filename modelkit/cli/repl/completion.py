"""What Tab offers: commands, what can be set, parameters and their words, models, and files."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from modelkit.cli.repl.commands import COMMANDS, LEAVING, PARTS
from modelkit.cli.repl.settings import SETTINGS
from modelkit.modelfile import PARAMETERS

_MOST = 200


def offers(line: str, names: Callable[[], Iterable[str]] = tuple) -> list[str]:
    """The words that may take the place of the last one of `line`. names: of models."""
    before, _, word = line.rpartition(" ")
    found = [one for one in _words(before.split(), names) if one.startswith(word)]
    if word.startswith("@"):
        found = [f"@{_quoted(one)}" for one in _files(word[1:])]
    elif before.split()[:1] == ["/read"]:
        found += map(_quoted, _files(word))
    elif before.split()[:1] == ["/tools"]:
        found += _files(word)
    return sorted(dict.fromkeys(found))[:_MOST]


def _words(before: list[str], names: Callable[[], Iterable[str]]) -> Iterable[str]:
    match before:
        case []:
            return [one for one in (*COMMANDS, *LEAVING) if one != "/?"]
        case ["/set"]:
            return SETTINGS
        case ["/set", "parameter"]:
            return [name for name, row in PARAMETERS.items() if not row.at_load]
        case ["/set", "parameter", name] if name in PARAMETERS:
            return PARAMETERS[name].choices
        case ["/set", "think"]:
            return PARAMETERS["think"].choices
        case ["/set", "thinking"]:
            return ("shown", "hidden")
        case ["/set", "format"]:
            return ("json",)
        case ["/show"]:
            return PARTS
        case ["/tools"]:
            return ("off",)
        case ["/load"]:
            return names()
        case _:
            return ()


def _quoted(name: str) -> str:
    """As a message and /read take a name with blanks in it."""
    return f'"{name}"' if " " in name and '"' not in name else name


def _files(begun: str) -> Iterator[str]:
    folder, name = os.path.split(begun)
    try:
        inside = sorted(Path(os.path.expanduser(folder) or ".").iterdir())
    except (OSError, ValueError):
        return
    for path in inside:
        if path.name.startswith(name) and (name.startswith(".") or not path.name.startswith(".")):
            yield os.path.join(folder, path.name) + ("/" if path.is_dir() else "")
