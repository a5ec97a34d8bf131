"""Columns that fit the terminal. In a pipe every row is one line, whatever its length.

A table that is too wide gives way in this order: its last column is wrapped under itself, if enough room is
left for reading it; else first cells that are too long stand on lines of their own; else each row becomes a
few lines, with what the header calls a cell in front of it. A name that is longer than a line stays whole, so
that it can be copied.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from modelkit.cli.terminal.columns import columns_of, folded, padded
from modelkit.cli.terminal.screen import width as screen_width
from modelkit.cli.terminal.ui import one_line, wrapped

WHOLE = 4096
"""The limit of tables whose cells are names, addresses and paths: none of these is longer."""

_GAP = 2
_READABLE = 24
_LEAST = 8  # columns that words are wrapped in
_STEP = 4  # how far the rest of a row is indented under a first cell of its own


def table(
    rows: Iterable[Sequence[str]],
    *,
    header: Sequence[str] | None = None,
    right: Sequence[int] = (),
    width: int | None = None,
    limit: int = 100,
    err: bool = False,
) -> str:
    """Columns padded to their widest cell; `right` lists the columns aligned to the right.

    width: columns there are, by default those of the terminal that standard output is, or with `err` standard
    error. limit: most characters of a cell.
    """
    width = screen_width(err=err) if width is None else width
    lines = [[one_line(cell, limit) for cell in row] for row in ([header] if header else []) + list(rows)]
    if not lines:
        return ""
    widths = [max(map(columns_of, column)) for column in zip(*lines, strict=True)]
    fitted = _fitted(widths, width)
    if fitted is not None:
        return "\n".join(line for row in lines for line in _row(row, fitted[0], right, fitted[1], width))
    assert width is not None
    if header is None:
        return "\n".join(line for row in lines for line in _flowed(row, width))
    return "\n\n".join("\n".join(_record(lines[0], row, width)) for row in lines[1:])


def sections(
    parts: Mapping[str, Iterable[Sequence[str]]],
    *,
    width: int | None = None,
    limit: int = 100,
    headed: Collection[str] = (),
) -> str:
    """Titled blocks of rows in columns; empty blocks are left out. width, limit: as of `table`. headed: the
    titles of blocks whose first row is their header.
    """
    width = screen_width() if width is None else width
    inside = None if width is None else max(width - 4, _LEAST)
    shown = list[str]()
    for title, found in parts.items():
        if rows := list(found):
            header, rows = (rows[0], rows[1:]) if title in headed else (None, rows)
            block = table(rows, header=header, width=inside, limit=limit)
            shown.append("\n".join([wrapped(f"  {title}", width, "  "), *_indented(block)]))
    return "\n\n".join(shown)


def _indented(block: str) -> list[str]:
    return [f"    {line}".rstrip() for line in block.splitlines()]


def _fitted(widths: list[int], width: int | None) -> tuple[list[int], int | None] | None:
    """The widths that columns get, and that at which the last one wraps (None for no wrapping); None where
    they do not fit side by side.
    """
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
    room = width - _STEP - _total([0, *widths[1:-1]]) - _GAP
    return ([_STEP, *widths[1:]], room) if room >= _LEAST else None


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _row(
    cells: Sequence[str], widths: Sequence[int], right: Sequence[int], last: int | None, width: int | None
) -> list[str]:
    """The lines of one row."""
    lines: list[str] = []
    if len(cells) > 1 and columns_of(cells[0]) > widths[0]:
        lines += [cells[0]] if width is None else folded(cells[0], width, whole=True)
        cells = ["", *cells[1:]]
    tail = _wrapped(cells[-1], last) if last is not None else [cells[-1]]
    side = [padded(cell, widths[i], right=i in right) for i, cell in enumerate(cells[:-1])]
    ending = tail[0]
    if len(cells) - 1 in right and last is None:
        ending = padded(ending, widths[-1], right=True)
    before = (" " * _GAP).join([*side, ""])
    lines.append((before + ending).rstrip())
    lines += [" " * columns_of(before) + more for more in tail[1:]]
    return lines


def _flowed(cells: Sequence[str], width: int) -> list[str]:
    """One cell behind the other, and on another line where the next one has no room."""
    lines, line = list[str](), ""
    for cell in filter(None, cells):
        longer = line + " " * _GAP + cell if line else cell
        if columns_of(longer) <= width or not line:
            line = longer
        else:
            lines.append(line)
            line = " " * _STEP + cell
    return [part for one in [*lines, line] for part in _wrapped(one, width)]


def _record(header: Sequence[str], cells: Sequence[str], width: int) -> Iterator[str]:
    """A line for each cell that holds something, behind what the header calls it; one without a name there
    stands in front, as it is.
    """
    side = min(max(map(columns_of, header)), max(width - _GAP - _READABLE, _LEAST))
    room = width - side - _GAP
    if room < _LEAST:
        side = 0  # names stand above their cells
    for place, (name, cell) in enumerate(zip(header, cells, strict=True)):
        if not cell or not name:
            yield from [cell] if cell else []
        elif columns_of(name) > side or (place == 0 and columns_of(cell) > room):
            yield name
            hang = "" if place == 0 else " " * _STEP
            yield from folded(hang + cell, max(width, _LEAST), hang=hang, whole=place == 0)
        else:
            first, *rest = folded(cell.strip(), room)
            yield padded(name, side + _GAP) + first
            yield from (" " * (side + _GAP) + one for one in rest)


def _wrapped(text: str, width: int) -> list[str]:
    lead = len(text) - len(text.lstrip())
    return folded(text, width, hang=" " * min(lead, width // 2))
