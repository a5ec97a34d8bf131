"""The docstring of a room's `__init__` says what is in the room: every module, and none that has left it.
What any text of ours points at is there.
"""

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
_WORD = re.compile(r"\w+")


_POINTER = re.compile(r"`((?:runtime|modelkit)(?:\.\w+)+|(?:[a-z_0-9]+\.)+[A-Z]\w*[a-z]\w*)`")
"""In a text of ours: a module or what is in one, by its whole name, or a class behind its module."""
_MADE = re.compile(r"^ *(?:(?:async )?def |class |)(\w+)(?=[(:\[]| =|$)", re.MULTILINE)
"""What lines of a module make: functions, classes, fields, constants; and words that begin others."""


@cache
def modules() -> dict[str, set[str]]:
    """By the module's whole name: what it makes."""
    files = (path for package in ("runtime", "modelkit") for path in (ROOT / package).rglob("*.py"))
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    return {name.removesuffix(".__init__"): made_in(path) for name, path in named.items()}


def made_in(path: Path) -> set[str]:
    """A room's door has what it hands on, too."""
    return set((_WORD if path.name == "__init__.py" else _MADE).findall(path.read_text()))


def is_there(pointer: str) -> bool:
    """Does it name a module, by the end of its name at least, or what a module has?"""
    module, _, last = pointer.rpartition(".")
    whole = f".{pointer}"
    return any(
        f".{name}".endswith(whole) or (f".{name}".endswith(f".{module}") and last in made)
        for name, made in modules().items()
    )


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


@pytest.mark.parametrize("package", ["runtime", "modelkit"])
def test_what_a_text_points_at_is_there(package: str) -> None:
    gone = [
        f"{path.relative_to(ROOT)}: {pointer}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for pointer in _POINTER.findall(path.read_text())
        if pointer.split(".")[0] not in _OTHERS and not is_there(pointer)
    ]
    assert gone == []


_OTHERS = {"mlx", "transformers", "torch", "numpy", "nn", "mx", "asyncio", "threading", "jinja2"}
"""Libraries, whose names stand in texts, too."""
