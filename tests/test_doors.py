"""The docstring of a room's `__init__` says what is in the room: every module, and none that has left it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for package in ("runtime", "modelkit")
    for path in (ROOT / package).rglob("__init__.py")
)
# Where most files are alike (one for each family, architecture or command) the door names the others alone.
# That of `modelkit` is what `help(modelkit)` shows to users; docs/design.md has its rooms.
ALIKE = {"modelkit", "modelkit.cli", "runtime.models", "modelkit.source.gguf.architectures"}
_ROW = re.compile(r"\s*([a-z_0-9]+/?(?:, *[a-z_0-9]+/?)*),?(?:\s{2,}\S|$)")
_WORD = re.compile(r"[a-z_0-9]+")


@cache
def door(room: str) -> str:
    return ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""


def inside(room: str) -> set[str]:
    """Modules and rooms of this room."""
    found = {path.stem for path in (ROOT / room).glob("*.py")}
    found |= {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
    return found - {"__init__", "__main__"}


@pytest.mark.parametrize("room", [room for room in ROOMS if room.replace("/", ".") not in ALIKE])
def test_every_module_is_named(room: str) -> None:
    missing = inside(room) - set(_WORD.findall(door(room)))
    assert not missing, f"say in {room}/__init__.py what is in {', '.join(sorted(missing))}"


@pytest.mark.parametrize("room", ROOMS)
def test_rows_name_what_is_there(room: str) -> None:
    rows = (row[1] for line in door(room).splitlines()[1:] if (row := _ROW.match(line)))
    named = {name.strip("/ ") for row in rows for name in row.split(",") if name.strip()}
    gone = named - inside(room)
    assert not gone, f"{room}/__init__.py has rows of what is not there: {', '.join(sorted(gone))}"
