"""`modelkit cp`: a second name for a package. Nothing is copied but the name."""

import click

from modelkit.cli.home import complete_name, open_store
from modelkit.cli.terminal.screen import emit_json, state
from modelkit.cli.terminal.ui import json_option


@click.command("cp")
@click.argument("source", shell_complete=complete_name)
@click.argument("target", shell_complete=complete_name)
@json_option
def command(source: str, target: str, as_json: bool) -> None:
    """Give the package SOURCE the second name TARGET.

    The two share all their files. If TARGET named another package before, files that nothing else needs are
    deleted.
    """
    from modelkit.store import Name

    store, names = open_store(), (Name.parse(source), Name.new(target))
    digest = store.copy(*names)
    if as_json:
        emit_json({"source": str(names[0]), "target": str(names[1]), "digest": str(digest)})
    else:
        state(f"copied {names[0]} to {names[1]}")
