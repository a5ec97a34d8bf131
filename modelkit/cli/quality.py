"""`modelkit show NAME --quality`: the reports that a package keeps of how its formats were chosen."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from modelkit.cli.terminal.screen import echo, emit_json, note
from modelkit.cli.terminal.tables import sections, table
from modelkit.cli.terminal.ui import size

if TYPE_CHECKING:
    from modelkit.store import Package

_BAR_BITS = 16
_MEASURED, _PAIR = "Against the source", "The pair, against the target alone"

Report = Mapping[str, Any]


def show_quality(package: "Package", as_json: bool) -> None:
    """Target's and draft's, or a note that there are none."""
    from modelkit.pack.quality.report import FILE, warnings
    from modelkit.source.strict_json import read_json

    found: dict[str, Report] = {}
    for role, path in (("target", FILE), ("draft", f"draft/{FILE}")):
        if path in package.files:
            found[role] = _checked(
                read_json(package.files[path], label=f"{package.name}/{path}"), package, path
            )
    if as_json:
        emit_json(found)
        return
    if not found:
        note(f"{package.name} has no quality report; `create --target-bits` makes one")
    for role, report in found.items():
        echo(_overview(role, report))
        for sentence in warnings(report):
            note(f"{role}: {sentence}")
    if found:
        note("`modelkit export` writes the picture too, as quality.svg")


def _checked(value: dict[str, Any], package: "Package", path: str) -> Report:
    from modelkit.pack.quality.report import check_report

    return check_report(value, f"{package.name}/{path}")


def _overview(role: str, report: Report) -> str:
    own = "its target's own text" if report.get("pair") else "its own text"
    text = own if report.get("own_text") else "the text that was given"
    facts = [
        ("asked", str(report.get("asked"))),
        ("bits per weight", f"{report['bits_per_weight']:.4g}"),
        ("size", size(report["size_bytes"])),
        ("compared on", text),
    ]
    vectors = "cosine" in report["held_out"]
    header, numbers = (_VECTORS, _vectors) if vectors else (_PREDICTIONS, _predictions)
    held = "held out" if vectors else "held out, own text"
    rows = (("calibration", "calibration"), (held, "held_out"), ("the same, untuned", "untuned"))
    measured = [("", *header), *((name, *numbers(report[key])) for name, key in rows if key in report)]
    parts = {role.capitalize(): facts, _MEASURED: measured, _PAIR: _pair(report)}
    return f"{sections(parts, headed=(_MEASURED, _PAIR))}\n\n{_matrices(report)}"


_PREDICTIONS = ("KL", "KL P99", "SAME TOP", "PERPLEXITY", "TOKENS")
_VECTORS = ("COSINE", "LEAST", "SAME NEAREST", "TEXTS")


def _vectors(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{one['cosine']:.5g}",
        f"{one['cosine_least']:.5g}",
        f"{one['same_nearest']:.1%}",
        str(one["texts"]),
    )


def _predictions(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{one['kl']:.3g}",
        f"{one['kl_p99']:.3g}",
        f"{one['same_top']:.1%}",
        f"x {one['perplexity_ratio']:.4g}",
        str(one["tokens"]),
    )


def _pair(report: Report) -> list[tuple[str, ...]]:
    """For a draft that was chosen for its pair: what each format promised."""
    offers = (report.get("pair") or {}).get("offers", [])
    rows = [("FORMAT", "ACCEPTED", "COST", "DEPTH", "SPEED")] if offers else []
    rows += [
        (
            one["format"],
            f"{one['acceptance']:.1%}",
            f"{one['cost']:.3g}",
            str(one["depth"]),
            f"x {one['speed']:.3g}",
        )
        for one in offers
    ]
    return rows


def _matrices(report: Report) -> str:
    rows = list(_rows(report["matrices"]))
    return table(rows, header=("MATRIX", "FORMAT", "SIZE", "COST", "BITS"), right=[2, 3])


def _rows(matrices: list[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for one in matrices:
        cost = one.get("cost")
        bits = 8 * one["size_bytes"] / max(one["elements"], 1)
        said = "" if cost is None else f"{cost:.2g}"
        yield one["name"], one["format"], size(one["size_bytes"]), said, "#" * round(min(bits, _BAR_BITS))
