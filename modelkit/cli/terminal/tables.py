"""Columns that fit the terminal. In a pipe every row is one line, whatever its length.

A table that is too wide gives way in this order: its last column is wrapped under itself, if enough room is
left for reading it; else first cells that are too long stand on lines of their own.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from modelkit.cli.terminal.screen import width as screen_width
from modelkit.cli.terminal.ui import one_line

WHOLE = 4096
"""The limit of tables whose cells are names, addresses and paths: none of these is longer."""

_GAP = 2
_READABLE = 24
_STEP = 4  # how far the rest of a row is indented under a first cell of its own


def table(
    rows: Iterable[Sequence[str]],
    *,
    header: Sequence[str] | None = None,
    right: Sequence[int] = (),
    width: int | None = None,
    limit: int = 100,
) -> str:
    """Columns padded to their widest cell; `right` lists the columns aligned to the right.

    width: columns there are, by default those of the terminal. limit: most characters of a cell.
    """
    width = screen_width() if width is None else width
    lines = [[one_line(cell, limit) for cell in row] for row in ([header] if header else []) + list(rows)]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths, last = _fitted(widths, width)
    shown = [_row(line, widths, right, last) for line in lines]
    return "\n".join(line for row in shown for line in row)


def sections(
    parts: Mapping[str, Iterable[Sequence[str]]], *, width: int | None = None, limit: int = 100
) -> str:
    """Titled blocks of rows in columns; empty blocks are left out. width, limit: as of `table`."""
    width = screen_width() if width is None else width
    inside = None if width is None else width - 4
    shown = [(title, list(rows)) for title, rows in parts.items()]
    return "\n\n".join(
        f"  {title}\n"
        + "\n".join(f"    {line}" for line in table(rows, width=inside, limit=limit).splitlines())
        for title, rows in shown
        if rows
    )


def _fitted(widths: list[int], width: int | None) -> tuple[list[int], int | None]:
    """The widths that columns get, and that at which the last one wraps; None for no wrapping."""
    if width is None or _total(widths) <= width:
        return widths, None
    if len(widths) == 1:
        return widths, width
    room = width - _total(widths[:-1]) - _GAP
    if room >= _READABLE:
        return widths, room
    first = width - _total(widths[1:]) - _GAP
    if first >= _STEP:
        return [first, *widths[1:]], None
    room = max(width - _STEP - _total([0, *widths[1:-1]]) - _GAP, 8)
    return [_STEP, *widths[1:]], room


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[int], last: int | None) -> list[str]:
    """The lines of one row."""
    lines: list[str] = []
    if len(cells) > 1 and len(cells[0]) > widths[0]:
        lines.append(cells[0])
        cells = ["", *cells[1:]]
    tail = _wrapped(cells[-1], last) if last is not None else [cells[-1]]
    padded = [
        cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(cells[:-1])
    ]
    ending = tail[0]
    if len(cells) - 1 in right and last is None:
        ending = ending.rjust(widths[-1])
    before = (" " * _GAP).join([*padded, ""])
    lines.append((before + ending).rstrip())
    lines += [" " * len(before) + more for more in tail[1:]]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    lead = len(text) - len(text.lstrip())
    return textwrap.wrap(text, width, subsequent_indent=" " * min(lead, width // 2)) or [""]
