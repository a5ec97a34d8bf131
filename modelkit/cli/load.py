"""`modelkit load`: the running server loads a model."""

from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.home import complete_name
from modelkit.cli.served import connect
from modelkit.cli.terminal import interrupts
from modelkit.cli.terminal.screen import Waiting, emit_json, state
from modelkit.cli.terminal.ui import json_option, size, until

if TYPE_CHECKING:
    from modelkit.client.fields import Fields


@click.command("load")
@click.argument("name", shell_complete=complete_name)
@click.option(
    "--keep-alive",
    metavar="TIME",
    help="How long it stays loaded when idle, such as 1h; -1 is forever, 0 not at all.",
)
@json_option
def command(name: str, **options: Any) -> None:
    """Load the model NAME into the running server, so that its first answer comes without delay.

    NAME+ADAPTER, by which requests choose an adapter of the package, means the same model.
    """
    from modelkit.client.fields import Fields
    from modelkit.durations import read_keep_alive

    body: dict[str, Any] = {"model": name}
    if options["keep_alive"] is not None:
        read_keep_alive(options["keep_alive"], "--keep-alive")
        body["keep_alive"] = options["keep_alive"]
    with (
        connect() as connection,
        Waiting(f"loading {name}", enabled=not options["as_json"]),
        interrupts.AtOnce(),
    ):
        said = connection.post("/modelkit/v1/load", body, wait_s=None)
    model = Fields(said).fields("model")
    if options["as_json"]:
        emit_json(said["model"])
        return
    state(f"{model.text('name')} is loaded ({size(model.whole('taken_bytes'))}) and {_stays(model)}")


def _stays(model: "Fields") -> str:
    if model.text("state") == "leaving":
        return "is being unloaded again"
    if model.value.get("expires_at") is None:
        return "is in use"
    if model.value.get("expires_in_s") is None:
        return "stays loaded"
    return f"is unloaded {until(model.number('expires_in_s'))} unless it is used"
