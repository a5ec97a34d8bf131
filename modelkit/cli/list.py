"""`modelkit list`: one line per package, newest first. Reads small files, and of weights the headers of
drafts.
"""

from typing import Any

import click

from modelkit.cli.home import complete_name, open_store
from modelkit.cli.terminal.screen import echo, emit_json, note
from modelkit.cli.terminal.tables import WHOLE, table
from modelkit.cli.terminal.ui import ago, json_option, size
from runtime.quoting import quoted


@click.command("list")
@click.argument("prefix", default="", shell_complete=complete_name)
@json_option
def command(prefix: str, as_json: bool) -> None:
    """List the packages in the store, newest first; with PREFIX, those whose names begin with it.

    SIZE counts every file of a package; files that several packages share take space only once.
    """
    from modelkit.showing.row import describe

    found = [p for p in open_store().packages() if p.name.short.startswith(prefix.lower())]
    found.sort(key=lambda package: (-package.modified_s, package.name))
    rows = [describe(package) for package in found]
    if as_json:
        emit_json(rows)
        return
    header = ("NAME", "DIGEST", "SIZE", "FORMAT", "DRAFT", "MODIFIED")
    lines = [(p.name.short, *_cells(row), ago(p.modified_s)) for p, row in zip(found, rows, strict=True)]
    if any(row["from"] for row in rows):
        header = (*header, "FROM")
        lines = [(*line, row["from"] or "") for line, row in zip(lines, rows, strict=True)]
    echo(table(lines, header=header, right=[2], limit=WHOLE))
    if not rows and prefix:
        note(f"no package has a name that begins with {quoted(prefix)}; without PREFIX all are listed")
    elif not rows:
        note("there are no packages yet; `modelkit create NAME -f Modelfile` makes one")
    for row in rows:
        if row["problem"]:
            note(f"{row['name']} is broken: {row['problem']}")


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    digest = row["digest"].removeprefix("sha256:")[:12] if row["digest"] else "-"
    if row["problem"]:
        return digest, "-", "broken", "-"
    draft = row["draft"]
    return digest, size(row["size_bytes"]), row["format"] or "-", (draft["format"] or "yes") if draft else "-"
