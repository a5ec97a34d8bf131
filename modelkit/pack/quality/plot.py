"""`quality.svg`: a bar for each matrix, as high as its bits per weight, in the order of the model."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from modelkit.pack.quality.report import Report, Row

if TYPE_CHECKING:
    from modelkit.pack.quality.report import Compared

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 320, 48, 56, 28
_MOST_BITS = 16
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e")
_OTHERS = "#aaa"
_CHARACTER = 6.5  # about as wide, at most, as one of the legend


def picture(report: Report) -> bytes:
    """An SVG with one title per bar, so that a browser tells its name."""
    rows = report.matrices
    kinds = list(dict.fromkeys(_kind(row) for row in rows))
    bars = "".join(_bar(row, place, len(rows), kinds) for place, row in enumerate(rows))
    said = f"{report.asked}: {report.bits_per_weight:.3g} bits per weight, {_summary(report.held_out)}"
    legend = "".join(_legend(kinds))
    grid = "".join(
        f'<path d="M{_LEFT} {_height(bits):.1f}H{_WIDTH - 8}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 8}" y="{_height(bits) + 4:.1f}" text-anchor="end">{bits}</text>'
        for bits in (2, 4, 6, 8, _MOST_BITS)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="11"><text x="{_LEFT}" y="20" font-size="14">{escape(said)}</text>{legend}{grid}{bars}'
        "</svg>\n"
    ).encode()


def _legend(kinds: Sequence[str]) -> Iterator[str]:
    """A word of its colour for each kind that has one, in two lines where one is full."""
    named = [*kinds[: len(_COLOURS)], *(["others"] if len(kinds) > len(_COLOURS) else [])]
    x, y = _LEFT, _TOP - 20
    for kind in named:
        width = _CHARACTER * (len(kind) + 2)
        if x + width > _WIDTH:
            x, y = _LEFT, _TOP - 8
        yield f'<text x="{x:.0f}" y="{y}" fill="{_colour(kind, kinds)}">{escape(kind)}</text>'
        x += width


def _summary(held: "Compared") -> str:
    found = held.to_json()
    if "cosine" in found:
        return f"cosine {found['cosine']:.4g}, same nearest text {found['same_nearest']:.1%}"
    return f"KL {found['kl']:.3g}, same likeliest token {found['same_top']:.1%}"


def bits_of(row: Row) -> float:
    return 8 * row.size_bytes / max(row.elements, 1)


def _bar(row: Row, place: int, count: int, kinds: Sequence[str]) -> str:
    step = (_WIDTH - _LEFT - 8) / max(count, 1)
    top = _height(min(bits_of(row), _MOST_BITS))
    return (
        f'<rect x="{_LEFT + place * step:.2f}" y="{top:.1f}" width="{max(step - 1, 0.5):.2f}" '
        f'height="{_HEIGHT - _BOTTOM - top:.1f}" fill="{_colour(_kind(row), kinds)}">'
        f"<title>{escape(row.name)}: {row.format}</title></rect>"
    )


def _height(bits: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * bits / _MOST_BITS


def _kind(row: Row) -> str:
    """`q_proj` of `model.layers.3.self_attn.q_proj.weight`."""
    return row.name.removesuffix(".weight").rsplit(".", 1)[-1]


def _colour(kind: str, kinds: Sequence[str]) -> str:
    return dict(zip(kinds, _COLOURS, strict=False)).get(kind, _OTHERS)
