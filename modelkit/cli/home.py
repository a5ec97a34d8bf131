"""The store as commands meet it: opened where the settings say, its names completed by the shell."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelkit.errors import ModelkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from modelkit.store import Store


def open_store() -> "Store":
    from modelkit.settings import Settings
    from modelkit.store import Store

    return Store(Settings.from_environment().home)


def bytes_under(folder: Path) -> int:
    """What the files in a folder of the store take, whether a package needs them or not; as far as it can be
    looked at, and without what others take away meanwhile.
    """
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(above, name)).st_size
    return total


def complete_name(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The stored names that begin with what was typed."""
    return [name for name in stored_names() if name.startswith(incomplete.lower())]


def complete_model(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "Sequence[str | CompletionItem]":
    """The same, and a path on disk where one was begun."""
    from click.shell_completion import CompletionItem

    if incomplete.startswith((".", "/", "~")):
        return [CompletionItem(incomplete, type="file")]
    return complete_name(ctx, param, incomplete)


def stored_names() -> list[str]:
    """None, and no error, where the store cannot be read."""
    try:
        return [str(package.name) for package in open_store().packages()]
    except ModelkitError:
        return []
