"""`modelkit logout`: forget a name and password for a registry."""

import click

from modelkit.cli.terminal.screen import emit_json, state
from modelkit.cli.terminal.ui import json_option


@click.command("logout")
@click.argument("host")
@json_option
def command(host: str, as_json: bool) -> None:
    """Delete the name and password that `modelkit login` saved for the registry HOST."""
    from modelkit.fetch.registry.login import host_of, logout
    from modelkit.settings.places import credential_files

    place = host_of(host)
    changed = logout(place, credential_files())
    if as_json:
        emit_json({"host": place, "files": [str(path) for path in changed]})
    else:
        state(f"logged out of {place}" if changed else f"nothing was saved for {place}")
