"""`modelkit push`: a stored package into a registry."""

import click

from modelkit.cli.home import complete_name, open_store
from modelkit.cli.terminal.progress import Bars
from modelkit.cli.terminal.screen import emit_json, state
from modelkit.cli.terminal.ui import json_option, size

insecure_option = click.option(
    "--insecure", is_flag=True, help="Allow plain http, which anyone on the network can read and change."
)


@click.command("push")
@click.argument("name", shell_complete=complete_name)
@click.argument("address")
@insecure_option
@json_option
def command(name: str, address: str, insecure: bool, as_json: bool) -> None:
    """Send the package NAME to a registry, under ADDRESS.

    Files that the registry has already are not sent again, and an interrupted push continues where it
    stopped. The package keeps its digest. Plain http is used for a registry on this machine.

    \b
    modelkit push story oci://registry.example.org/amy/story:q4
    modelkit push story docker.io/amy/story:q4
    """
    from modelkit.fetch.access import Access
    from modelkit.fetch.registry.push import push, read_target

    target, bars = read_target(address), Bars(enabled=not as_json)
    pushed = push(name, target, open_store(), Access(insecure=insecure, listener=bars))
    if as_json:
        emit_json(
            {
                "address": str(pushed.address),
                "digest": str(pushed.digest),
                "size_bytes": pushed.size_bytes,
                "sent_bytes": pushed.sent_bytes,
                "mounted": pushed.mounted,
            }
        )
    else:
        again = ", some of it again" if pushed.sent_bytes > pushed.size_bytes else ""
        sent = f"{size(min(pushed.sent_bytes, pushed.size_bytes))} of {size(pushed.size_bytes)} sent{again}"
        state(f"pushed {name} {pushed.digest.short} to {pushed.address} ({sent})")
