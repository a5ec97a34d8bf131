"""`modelkit plan`: which of several machines would have which part of a model."""

from typing import Any

import click

from modelkit.cli.home import complete_model
from modelkit.cli.options.machines import (
    machine_options,
    names_machines,
    note_limits,
    plan_heading,
    plan_table,
    planned,
)
from modelkit.cli.terminal.screen import echo, emit_json, state
from modelkit.cli.terminal.ui import json_option


@click.command("plan")
@click.argument("name", shell_complete=complete_model)
@machine_options
@json_option
def command(name: str, as_json: bool, **options: Any) -> None:
    """Show which part of the model NAME each of several machines would have.

    Stages hold consecutive layers, and give the same bits as one machine. Ranks that share a stage hold a
    part of each of its layers, and exchange sums twice per layer. Only headers are read, so a plan can be
    made on a machine where the model would never fit.

    \b
    modelkit plan big --hosts hosts.json --memory 512GB
    modelkit plan big --ranks 4 --shards 4 --context 32768
    """
    if not names_machines(options):
        raise click.UsageError("give the machines, by --hosts or by --ranks")
    found = planned(name, options)
    if as_json:
        emit_json({"name": name, **found.to_json()})
        return
    echo(plan_table(found))
    state(plan_heading(found))
    note_limits(found)
