"""`modelkit doctor --hosts`: the machines that a launcher has started, as a table."""

from typing import Any

import click

from modelkit.cli.options.ranks import follows
from modelkit.cli.terminal.screen import echo, emit_json, note
from modelkit.cli.terminal.tables import table
from modelkit.cli.terminal.ui import count, size
from modelkit.settings import Settings
from modelkit.settings.launchers import one_of_several

_HEADER = ("RANK", "HOST", "MODELKIT", "MLX", "DEVICE", "FREE", "PACKAGES", "TO THE NEXT")
_HOW = "start it on all of them: mlx.launch --hostfile hosts.json -- modelkit doctor --hosts"


def examine(ctx: click.Context, *, as_json: bool) -> None:
    """Print what each rank says; ranks above 0 only answer."""
    if not one_of_several():
        raise click.UsageError(f"--hosts is about several machines; {_HOW}")
    follows(ctx, None)
    from modelkit.ranks.facts import unlike
    from modelkit.ranks.rendezvous import join

    found = join().examine(Settings.from_environment().home)
    if as_json:
        emit_json({"ranks": found})
        return
    echo(table([_row(rank, facts) for rank, facts in enumerate(found)], header=_HEADER, right=[0]))
    for rank, facts in enumerate(found):
        if facts["lacks"]:
            note(f"rank {rank} ({facts['host']}) lacks, or has another: {', '.join(facts['lacks'])}")
    for sentence in unlike(found):
        note(sentence)


def _row(rank: int, facts: dict[str, Any]) -> tuple[str, ...]:
    link = facts["link"]
    way = f"{link['delay_s'] * 1e3:.2f} ms, {size(int(link['bytes_per_s']))}/s" if link else ""
    packages = count(facts["packages"], "package")
    return (
        str(rank),
        facts["host"],
        facts["modelkit"],
        facts["mlx"],
        facts["device"],
        size(facts["free_bytes"]),
        packages,
        way,
    )
