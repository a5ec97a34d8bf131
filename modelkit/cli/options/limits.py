"""The options that bound what is kept of earlier prompts, for every command that loads a model."""

from collections.abc import Callable
from typing import Any

import click

from modelkit.cli.terminal.ui import size
from modelkit.errors import ParameterError
from modelkit.units import read_size
from runtime.quoting import quoted


class Whole(click.IntRange):
    """A whole number from `min` to `max`, where there is one."""

    name = "n"  # of a place in --help that has no better word

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            span = f"of at least {self.min:g}" if self.max is None else f"from {self.min:g} to {self.max:g}"
            self.fail(f"{quoted(value)} is not a whole number {span}.", param, ctx)


class Size(click.ParamType):
    """A number of bytes, such as 2GB. least: the fewest that make sense; who writes 5 means 5 GB."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            found = read_size(value, "it")  # click has named the option
        except ParameterError as error:
            self.fail(f"{error.message}. {error.hint}", param, ctx)
        if found < self._least:
            least = f"it is {size(found)}, expected at least {size(self._least)}. Example: 5GB."
            self.fail(least, param, ctx)
        return found


def cache_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command `cache_memory` and `cache_disk`: bytes, or None where the environment decides."""
    disk = click.option(
        "--cache-disk",
        type=Size(),
        metavar="SIZE",
        help="Limit for prompts cached on disk, such as 10GB; 0 caches none (MODELKIT_CACHE_DISK).",
    )
    memory = click.option(
        "--cache-memory",
        type=Size(),
        metavar="SIZE",
        help="Limit for prompts cached in memory, such as 2GB; 0 caches none (MODELKIT_CACHE_MEMORY).",
    )
    return memory(disk(command))
