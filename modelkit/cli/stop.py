"""`modelkit stop`: unload a model from the running server."""

from typing import Any

import click

from modelkit.cli.home import complete_name
from modelkit.cli.served import connect
from modelkit.cli.terminal.screen import emit_json, state
from modelkit.cli.terminal.ui import json_option
from modelkit.errors import ModelkitError


@click.command("stop")
@click.argument("name", shell_complete=complete_name)
@click.option("--now", is_flag=True, help="Cancel its answers instead of waiting for them.")
@json_option
def command(name: str, **options: Any) -> None:
    """Unload the model NAME from the running server, after its answers in progress have ended.

    NAME+ADAPTER, by which requests choose an adapter of the package, means the same model.
    """
    with connect() as connection:
        said = connection.post("/modelkit/v1/stop", {"model": name, "now": options["now"]})
    if said.get("stopped") is not True:
        raise ModelkitError(f"{name} is not loaded there", hint="`modelkit ps` lists what is.")
    if options["as_json"]:
        emit_json({"model": name, "stopped": True})
        return
    state(f"{name} is being unloaded{'' if options['now'] else ', once nobody uses it'}")
