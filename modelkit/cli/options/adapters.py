"""--adapter NAME=SCALE and --no-adapters: which of a package's adapters answer."""

from typing import Any

import click

from modelkit.cli.terminal.typed import TEXT


def adapter_options(command: Any) -> Any:
    """Give a command `adapter`, the texts after each --adapter, and the flag `no_adapters`."""
    some = click.option(
        "--adapter",
        multiple=True,
        type=TEXT,
        metavar="NAME[=SCALE]",
        help="Use this adapter of the package, at this scale (1); may be repeated.",
    )
    none = click.option("--no-adapters", is_flag=True, help="Use none of the package's adapters.")
    return some(none(command))


def wanted_adapters(texts: tuple[str, ...], *, none: bool) -> tuple[str, ...] | None:
    """None: all of them, as they are. Raises UsageError for a command line that says both."""
    if texts and none:
        raise click.UsageError("--adapter and --no-adapters exclude each other; give one of them")
    return texts or (() if none else None)
