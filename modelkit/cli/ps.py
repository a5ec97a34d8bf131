"""`modelkit ps`: the models that a running server has in memory."""

from typing import TYPE_CHECKING

import click

from modelkit.cli.served import connect
from modelkit.cli.terminal.screen import echo, emit_json, note, state
from modelkit.cli.terminal.tables import WHOLE, table
from modelkit.cli.terminal.ui import json_option, size, until

if TYPE_CHECKING:
    from modelkit.client.fields import Fields

_PARTS = (("weights", "weight_bytes"), ("draft", "draft_bytes"), ("adapters", "adapter_bytes"))


@click.command("ps")
@json_option
def command(as_json: bool) -> None:
    """List the models that the running server has loaded.

    SIZE is the memory that a model takes: its weights, those of its draft, room for conversations, and
    cached prompts; a line below the table shows the limit for cached prompts. ROWS counts answers in
    progress and requests that wait. UNTIL is when the model is unloaded if nobody uses it.
    """
    from modelkit.client.fields import Fields

    with connect() as connection:
        said = connection.get("/modelkit/v1/ps")
    models = list(Fields(said).each("models"))
    if as_json:
        emit_json(said["models"])
        return
    header = ("NAME", "ID", "SIZE", "CONTEXT", "ROWS", "DRAFT", "UNTIL")
    echo(table([_cells(one) for one in models], header=header, right=[2, 3], limit=WHOLE))
    for one in models:
        state(f"{one.text('name')}: {_split(one)}")
    if not models:
        note("no model is loaded; a request loads one, and so does `modelkit load NAME`")


def _cells(one: "Fields") -> tuple[str, ...]:
    running, waiting = one.whole("running"), one.whole("waiting")
    rows = f"{running}+{waiting}" if waiting else str(running)
    digest = one.text("digest").removeprefix("sha256:")[:12]
    drafts = ", ".join(one.texts("drafters")) or "off"
    known = bool(one.whole("weight_bytes"))
    total, context = size(one.whole("taken_bytes")), f"{one.whole('context_tokens'):,}"
    return (
        one.text("name"),
        digest,
        total if known else "-",
        context if known else "-",
        rows,
        drafts,
        _until(one),
    )


def _until(one: "Fields") -> str:
    if one.text("state") != "ready":
        return one.text("state")
    if one.value.get("expires_at") is None:
        return "in use"
    return "forever" if one.value.get("expires_at") == "never" else until(one.number("expires_in_s"))


def _split(one: "Fields") -> str:
    parts = [(name, one.whole(field)) for name, field in _PARTS]
    held, limit = one.whole("prefix_bytes"), one.whole("prefix_limit_bytes")
    said = [f"{name} {size(nbytes)}" for name, nbytes in parts if nbytes]
    said.append(f"conversations {size(one.whole('context_bytes'))}")
    return f"{', '.join(said)}, cached prompts {size(held)} of {size(limit)}"
