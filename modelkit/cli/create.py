"""`modelkit create`: a Modelfile becomes a package, or with --dry-run a table of what would become of it."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from modelkit import words
from modelkit.arguments import absolute
from modelkit.cli.frame import Explained
from modelkit.cli.home import complete_name, open_store
from modelkit.cli.terminal.progress import Bars
from modelkit.cli.terminal.screen import echo, emit_json, note, state, width
from modelkit.cli.terminal.tables import table
from modelkit.cli.terminal.ui import count, json_option, quantity, size, wrapped
from modelkit.modelfile.quantizing import QUALITIES
from runtime.quant import FORMATS, MAIN, NAMES, OTHER_GROUPS, find_format
from runtime.quoting import quoted

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from modelkit.modelfile import Recipe
    from modelkit.pack.build import Created
    from modelkit.pack.planning.plan_types import Plan
    from modelkit.pack.preparation import Preparation
    from modelkit.store import Name
    from modelkit.store.store import Store
    from modelkit.temporary import TemporaryFolder

_STDIN = Path("-")


class FormatName(click.ParamType):
    """A row of `runtime.quant.FORMATS`, in any of its spellings; its value is the row's own name. others:
    words that are taken too.
    """

    name = "format"

    def __init__(self, *others: str) -> None:
        self._others = others

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self._others:
            return value
        row = find_format(value)
        if row is None:
            word = words.find(words.FORMATS, str(value))
            meant = f"; here it is {word.ours}" if word else f"; the formats are {NAMES} ({OTHER_GROUPS})"
            self.fail(f"there is no format {quoted(value)}{meant}", param, ctx)
        return row.name

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(row.name, help=row.help) for row in FORMATS if row.name.startswith(incomplete)]


def _formats() -> list[tuple[str, str]]:
    """The table of formats for --help."""
    return [
        (row.name, row.help + (f" (also: {', '.join(row.aliases)})" if row.aliases else "")) for row in MAIN
    ] + [("q4g32, q4g128", "any q format with groups of 32 or 128 weights instead of 64")]


@click.command("create", cls=Explained, tables={"Formats": _formats()})
@click.argument("name", required=False, shell_complete=complete_name)
@click.option(
    "-f",
    "--file",
    default="Modelfile",
    type=click.Path(path_type=Path),
    help="The Modelfile; - for standard input. [./Modelfile]",
)
@click.option("-q", "--quantize", type=FormatName(), help="Format for the target's weights.")
@click.option(
    "--quantize-draft",
    "--draft-quantize",
    type=FormatName("auto"),
    help="Format for the draft's weights; auto chooses the one that makes the pair fastest.",
)
@click.option(
    "--target-bits", metavar="BITS", help="Find formats that average this many bits per weight, such as 4.5."
)
@click.option("--target-size", metavar="SIZE", help="Find formats that fit this size, such as 5GB.")
@click.option(
    "--quality",
    type=click.Choice(QUALITIES),
    help="How carefully formats are found: fast (the default), measured, which reads the model more often, "
    "or learned, which also tunes scales and takes longest.",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Text to measure formats on; by default the model writes one. For embeddings: one text per line.",
)
@click.option(
    "--plain", is_flag=True, help="Use one format for every matrix; by default sensitive ones get more bits."
)
@click.option("--fuse-adapters", is_flag=True, help="Merge adapters into the weights permanently.")
@click.option("--dry-run", is_flag=True, help="Show the plan for every tensor; write nothing.")
@click.option("--offline", is_flag=True, help="Download nothing; use only what is on this machine.")
@json_option
def command(
    name: str | None,
    file: Path,
    quantize: str | None,
    quantize_draft: str | None,
    target_bits: str | None,
    target_size: str | None,
    quality: str | None,
    calibration: Path | None,
    plain: bool,
    fuse_adapters: bool,
    dry_run: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Make the package NAME from a Modelfile.

    Without NAME, the package gets the name of the folder that holds the Modelfile. Everything is checked
    before the first byte is written, and an existing package of that name stays as it is until the new one
    is complete. --quantize and --quantize-draft override QUANTIZE lines in the Modelfile. Paths in it are
    relative to its folder, or to the current folder if it comes from standard input.

    \b
    modelkit create story -f Modelfile --quantize q4 --quantize-draft q4
    modelkit create story --quantize mxfp4 --dry-run
    """
    from modelkit.fetch.access import Access
    from modelkit.pack.prepare import prepare
    from modelkit.pack.pulling import bring

    wanted = _wanted(quantize, target_bits, target_size, quality, calibration)
    chosen, store = _name(name, file), open_store()
    recipe = _recipe(file)
    bars = Bars(enabled=not as_json)
    with _headers_only(dry_run) as hollow, bars:
        prepared = prepare(
            recipe,
            store,
            quantize=wanted,
            quantize_draft=quantize_draft,
            plain=plain,
            fuse_adapters=fuse_adapters,
            access=bring(recipe, store, Access(offline=offline, listener=bars, hollow=hollow)),
            progress=bars,
        )
    if not as_json:
        for text in prepared.notes:
            note(text)
    if dry_run:
        _show_plan(chosen, prepared, as_json)
    else:
        _write(chosen, prepared, store, bars, as_json)


def _headers_only(wanted: bool) -> "AbstractContextManager[TemporaryFolder | None]":
    """A folder for models of which no more is fetched than a plan needs; None: all is."""
    from contextlib import nullcontext

    from modelkit.temporary import TemporaryFolder

    return TemporaryFolder("plan", "headers of weights") if wanted else nullcontext()


def _write(name: "Name", prepared: "Preparation", store: "Store", bars: Bars, as_json: bool) -> None:
    from modelkit.pack.build import write_package

    with bars:
        created = write_package(prepared, name, store, bars)
    if as_json:
        emit_json(_to_json(created))
    else:
        state(_sentence(created))


def _recipe(file: Path) -> "Recipe":
    from modelkit.chat.find import check_explicit
    from modelkit.modelfile import MAX_BYTES, read_recipe

    if file != _STDIN:
        return read_recipe(file, check_template=check_explicit)
    given = sys.stdin.buffer.read(MAX_BYTES + 1)
    return read_recipe("standard input", Path(), given=given, check_template=check_explicit)


def _wanted(
    quantize: str | None,
    target_bits: str | None,
    target_size: str | None,
    quality: str | None,
    calibration: Path | None,
) -> str | None:
    """The options that say how the target is stored, as words of QUANTIZE; None where there is none.

    Raises PlanError for a target that is none.
    """
    from modelkit.modelfile.quantizing import parse_bits, parse_size

    named = {"--quantize": quantize, "--target-bits": target_bits, "--target-size": target_size}
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"give one of {' and '.join(given)}")
    if target_bits is not None:
        parse_bits(target_bits)
    if target_size is not None:
        parse_size(target_size)
    if not given:
        if quality or calibration:
            raise click.UsageError("--quality and --calibration go with --target-bits, --target-size or -q")
        return None
    target = quantize or (f"{target_bits} bits" if target_bits else target_size)
    return " ".join(filter(None, (target, quality, f"from {absolute(calibration)}" if calibration else "")))


def _name(text: str | None, file: Path) -> "Name":
    from modelkit.store import Name, valid_name_from

    if text is not None:
        return Name.new(text)
    if file == _STDIN:
        raise click.UsageError("give NAME too: a Modelfile from standard input has no folder to take it from")
    return valid_name_from(Path(os.path.normpath(absolute(file))).parent.name)


def _plans(prepared: "Preparation") -> "list[Plan]":
    return [part.plan for _, part in prepared.parts]


def _sentence(created: "Created") -> str:
    formats = ", ".join(map(_format_of, _plans(created.preparation)))
    formats += "".join(f", adapter {one.name}" for one in created.preparation.adapters)
    formats += "".join(f", {name} fused" for name in created.preparation.fused)
    said = f"created {created.name} {created.digest.short} ({size(created.size_bytes)}: {formats})"
    return said if created.converted else f"{said}; no weight had to be converted"


def _format_of(plan: "Plan") -> str:
    bits = f" at {plan.bits_per_weight:.3g} bits per weight" if plan.quantized else ""
    return f"{plan.role} {plan.summary}{bits}"


def _to_json(created: "Created") -> dict[str, Any]:
    return {
        "name": str(created.name),
        "digest": str(created.digest),
        "size_bytes": created.size_bytes,
        "converted": created.converted,
        "target": None,
        "draft": None,
        **{plan.role: _totals(plan) for plan in _plans(created.preparation)},
        "notes": list(created.notes),
    }


def _totals(plan: "Plan") -> dict[str, Any]:
    return {
        "format": plan.label,
        "size_bytes": plan.nbytes,
        "parameters": plan.elements,
        "bits_per_weight": round(plan.bits_per_weight, 4),
    }


def _show_plan(name: "Name", prepared: "Preparation", as_json: bool) -> None:
    if as_json:
        emit_json({"name": str(name), "dry_run": True, **prepared.to_json()})
        return
    for plan in _plans(prepared):
        echo(_plan_table(plan) + "\n")
    if prepared.adapters:
        rows = [
            (one.name, one.kind, str(one.rank), count(one.modules, "module"), size(one.nbytes))
            for one in prepared.adapters
        ]
        echo(table(rows, header=("ADAPTER", "FROM", "RANK", "FOR", "SIZE"), right=[2, 4]) + "\n")
    fused = f", with {', '.join(prepared.fused)} fused into them" if prepared.fused else ""
    state(f"{name} would have {size(prepared.size_bytes)} of weights{fused}. Nothing was written.")


def _plan_table(plan: "Plan") -> str:
    header = (plan.role.upper(), "SHAPE", "FROM", "TO", "SIZE", "REASON")
    rows = [
        (
            row["name"],
            " x ".join(map(str, row["shape"])),
            row["source"],
            row["format"],
            size(row["size_bytes"]),
            _reason(row),
        )
        for row in plan.rows()
    ]
    return f"{table(rows, header=header, right=[4])}\n{wrapped(_total_line(plan), width(), '  ')}"


def _reason(row: dict[str, Any]) -> str:
    """With what became of a tensor that was quantized already, where the source was."""
    if "exact" not in row or row["source"] in ("f32", "f16", "bf16"):
        return row["reason"]
    bits = f"{row['source_bits']:.4g} bits"
    grown = "" if row["bits"] == row["source_bits"] else f" now {row['bits']:.4g}"
    return f"{row['reason']} ({'exact' if row['exact'] else 'not exact'}, {bits}{grown})"


def _total_line(plan: "Plan") -> str:
    return (
        f"{plan.role}: {len(plan.tensors):,} tensors, {quantity(plan.elements)} parameters,"
        f" {size(plan.nbytes)}, {plan.bits_per_weight:.3g} bits per weight"
    )
