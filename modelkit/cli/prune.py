"""`modelkit prune`: free what no package needs."""

from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.home import open_store
from modelkit.cli.terminal.screen import echo, emit_json, state
from modelkit.cli.terminal.tables import WHOLE, table
from modelkit.cli.terminal.ui import count, json_option, size

if TYPE_CHECKING:
    from modelkit.store import Pruned


@click.command("prune")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@json_option
def command(dry_run: bool, as_json: bool) -> None:
    """Delete files that no package needs.

    These are unused blobs, leftovers of killed commands, records of conversions whose blobs are gone, and
    the slices of weights that this machine received to run a model together with others (the next start
    fetches them again).

    Nothing that a running command uses is touched, and nothing at all while any package cannot be read.
    Prompts cached on disk stay (`modelkit cache clear` removes them), except half-written ones.
    """
    from dataclasses import replace

    from modelkit.prefixes import remove_abandoned
    from modelkit.settings import Settings

    pruned = open_store().prune(dry_run=dry_run)
    parts_of_pages = remove_abandoned(Settings.from_environment().home, dry_run=dry_run)
    pruned = replace(
        pruned,
        temp_files=(*pruned.temp_files, *(page.path for page in parts_of_pages)),
        temp_bytes=pruned.temp_bytes + sum(page.nbytes for page in parts_of_pages),
    )
    if as_json:
        emit_json(_to_json(pruned, dry_run))
        return
    if dry_run and (pruned.blobs or pruned.temp_files):
        blobs = [(f"blob {blob.digest.short}", size(blob.size_bytes)) for blob in pruned.blobs]
        rows = [*blobs, *((str(path), "") for path in pruned.temp_files)]
        echo(table(rows, right=[1], limit=WHOLE))
    parts = [
        count(len(pruned.blobs), "blob"),
        count(len(pruned.temp_files), "temporary file"),
        count(pruned.conversions, "remembered conversion"),
    ]
    state(f"{'would free' if dry_run else 'freed'} {size(pruned.size_bytes)} ({', '.join(parts)})")


def _to_json(pruned: "Pruned", dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "size_bytes": pruned.size_bytes,
        "blobs": [{"digest": str(blob.digest), "size_bytes": blob.size_bytes} for blob in pruned.blobs],
        "temp_files": [str(path) for path in pruned.temp_files],
        "temp_bytes": pruned.temp_bytes,
        "conversions": pruned.conversions,
    }
