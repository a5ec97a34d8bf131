"""`modelkit pull`: a model from the hub, a registry or another program becomes a package."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from modelkit.address import Address, is_address
from modelkit.cli.create import FormatName
from modelkit.cli.home import open_store
from modelkit.cli.push import insecure_option
from modelkit.cli.terminal.progress import Bars
from modelkit.cli.terminal.screen import emit_json, note, state
from modelkit.cli.terminal.ui import json_option, size
from modelkit.fetch.access import Access

if TYPE_CHECKING:
    from modelkit.fetch.pull import Pulled
    from modelkit.store import Name


@click.command("pull")
@click.argument("address")
@click.option("--name", metavar="NAME", help="Name for the package. [its name at ADDRESS]")
@click.option(
    "-q", "--quantize", type=FormatName(), help="Format for the weights, unless ADDRESS is a package."
)
@click.option("--outline", is_flag=True, help="Leave out the weights; each rank fetches its part of them.")
@click.option("--offline", is_flag=True, help="Download nothing; use only what is on this machine.")
@insecure_option
@json_option
def command(
    address: str,
    name: str | None,
    quantize: str | None,
    outline: bool,
    offline: bool,
    insecure: bool,
    as_json: bool,
) -> None:
    """Fetch the model at ADDRESS and make a package of it.

    What will be fetched, and its size, is shown before the download starts. Files that other programs on
    this machine have already are not fetched again. An interrupted pull continues where it stopped.

    With --outline, everything but the weights of a package in a registry is fetched. That is enough to plan
    with, and to run it on several machines, each of which then fetches its own part of the weights.

    \b
    modelkit pull hf.co/org/name
    modelkit pull hf.co/org/name:Q4_K_M --name story
    modelkit pull hf.co/org/name@v1.0 --quantize q4
    modelkit pull ollama.com/library/story
    modelkit pull oci://registry.example.org/amy/story:q4
    """
    from modelkit.pack.pulling import read_pull_address
    from modelkit.store import Name

    target = None if name is None else Name.new(name)
    access = Access(offline=offline, insecure=insecure)
    if outline and quantize is not None:
        raise click.UsageError("an outline describes a package as it is; leave --quantize out")
    pulled = _pull(read_pull_address(address), target, quantize, access, quiet=as_json, outline=outline)
    if as_json:
        emit_json(
            {
                "name": str(pulled.name),
                "digest": str(pulled.digest),
                "size_bytes": pulled.size_bytes,
                "notes": list(pulled.notes),
            }
        )
    else:
        state(f"pulled {pulled.name} {pulled.digest.short} ({size(pulled.size_bytes)})")


def fetched(text: str, *, quiet: bool) -> str:
    """The name of the package that `text` stands for, pulled where it is an address of a model that no pull
    has stored, not even its outline; any other text as it is.
    """
    if not is_address(text):
        return text
    from modelkit.pack.pulling import address_of, stored

    store = open_store()
    address = address_of(text, store)
    if address is None:
        return text
    found = stored(address, store, outlines=True)
    return str(found or _pull(address, None, None, Access(), quiet=quiet).name)


def _pull(
    address: Address,
    name: "Name | None",
    quantize: str | None,
    access: Access,
    *,
    quiet: bool,
    outline: bool = False,
) -> "Pulled":
    from modelkit.pack.pulling import pull, pull_outline

    with Bars(enabled=not quiet) as bars:
        access = replace(access, listener=bars)
        if outline:
            pulled = pull_outline(address, open_store(), access, name=name)
        else:
            pulled = pull(address, open_store(), access, name=name, quantize=quantize)
    for text in () if quiet else pulled.notes:
        note(text)
    return pulled
