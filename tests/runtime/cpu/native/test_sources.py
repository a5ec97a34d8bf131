"""Rooms of the kernels' sources: each is named, and what is included lies in the same room or below it."""

import re

import pytest

from runtime.cpu import native
from runtime.cpu.native.building import SOURCES

ROOMS = re.findall(r"^ *src/(\w+) ", native.__doc__ or "", re.MULTILINE)
"""From the ground up, as the package's docstring lists them."""
_INCLUDED = re.compile(r'^ *#include "(?:(\w+)/)?[^"]+"', re.MULTILINE)


def test_rooms_are_those_of_the_docstring() -> None:
    folders = [path.name for path in SOURCES.iterdir() if path.is_dir()]
    assert sorted(ROOMS) == sorted(folders)
    assert [path.name for path in SOURCES.iterdir() if path.is_file()] == ["module.cpp"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_includes_only_what_is_below_it(room: str) -> None:
    below = {*ROOMS[: ROOMS.index(room) + 1], "mlx"}
    files = [path for path in (SOURCES / room).iterdir() if path.is_file()]
    included = {(path.name, name) for path in files for name in _INCLUDED.findall(path.read_text())}
    assert not {(file, name) for file, name in included if name not in below}
