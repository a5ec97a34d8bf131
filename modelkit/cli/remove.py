"""`modelkit rm`: take names away, and free what nothing else needs."""

from typing import TYPE_CHECKING

import click

from modelkit.cli.home import complete_name, open_store
from modelkit.cli.terminal.screen import emit_json, note, state
from modelkit.cli.terminal.ui import json_option, size

if TYPE_CHECKING:
    from modelkit.store import Freed, Name


@click.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_name)
@json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Remove packages; if one of the names is wrong, none is removed.

    Files that no other package needs are deleted at once. Damaged packages can be removed too.
    """
    from modelkit.store import Name

    store, wanted = open_store(), list(dict.fromkeys(map(Name.parse, names)))
    stored = {package.name for package in store.packages()}
    for name in wanted:
        if name not in stored:
            store.resolve(name)  # raises, and knows the names that are close
    freed = {name: store.remove(name) for name in wanted}
    if as_json:
        emit_json([_to_json(name, one) for name, one in freed.items()])
        return
    for name, one in freed.items():
        state(f"removed {name} ({size(one.size_bytes)} freed)")
        if one.held:
            note(one.held)


def _to_json(name: "Name", freed: "Freed") -> dict[str, str | int | None]:
    return {"name": str(name), "freed_bytes": freed.size_bytes, "held": freed.held}
