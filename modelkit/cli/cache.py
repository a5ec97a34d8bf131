"""`modelkit cache`: what is kept on disk of earlier prompts, per model or as a tree, and how to remove it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.frame import Group
from modelkit.cli.home import complete_name, open_store
from modelkit.cli.terminal.screen import echo, emit_json, state, width
from modelkit.cli.terminal.tables import WHOLE, table
from modelkit.cli.terminal.ui import ago, count, json_option, one_line, size, timestamp, wrapped

if TYPE_CHECKING:
    from modelkit.prefixes import Prefix
    from modelkit.store import Package
    from runtime.cache.page_folder import PageFile

    Decode = Callable[[Sequence[int]], str]

_TEXT_IDS = 16
_TEXT_CHARACTERS = 44


@click.group("cache", cls=Group)
def command() -> None:
    """List, show or clear the prompts cached on disk.

    Nothing is cached there unless `run --cache-disk SIZE` or MODELKIT_CACHE_DISK allows it. Packages with the
    same weights share their cache, whatever their system message, template or parameters.
    """


@command.command("list")
@click.argument("name", required=False, shell_complete=complete_name)
@json_option
def list_command(name: str | None, as_json: bool) -> None:
    """List what is cached for each model; with NAME, for that package only.

    TOKENS counts each page once: prompts with the same beginning share its pages.
    """
    facts = _facts(name)
    if as_json:
        emit_json(facts)
        return
    lines = [
        (", ".join(model["names"]) or "-", *_amounts(model), ago(model["used_s"]))
        for model in facts["models"]
    ]
    header = ("NAMES", "PAGES", "TOKENS", "SIZE", "USED")
    echo(table(lines, header=header, right=[1, 2, 3], limit=WHOLE))
    said = f"{size(facts['size_bytes'])} in {facts['path']}; {_limit(facts['limit_bytes'])}"
    echo(wrapped(said, width()))


@command.command("show")
@click.argument("name", shell_complete=complete_name)
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Show what is cached for the package NAME, as a tree: prompts with the same beginning share branches.

    Each line has the position of the first token, the number of tokens, their size, the kinds of layers
    cached, and the first words of the text.
    """
    from modelkit.prefixes import disk_tree
    from modelkit.settings import Settings

    package = open_store().resolve(name)
    nodes = disk_tree(Settings.from_environment().home, package)
    decode = _decoder(package)
    if as_json:
        emit_json([_node(node, decode) for node in nodes])
        return
    echo(tree(nodes, decode) or f"nothing is cached on disk for {package.name}")


@command.command("clear")
@click.argument("name", required=False, shell_complete=complete_name)
@json_option
def clear_command(name: str | None, as_json: bool) -> None:
    """Clear the cache: all of it, or that of the package NAME and of packages with the same weights.

    Running commands are not disturbed and keep what they have in memory.
    """
    from modelkit.prefixes import model_digest, prefix_folder
    from modelkit.settings import Settings
    from runtime.cache.page_folder import clear_pages, list_pages, model_mark

    home = Settings.from_environment().home
    model = None if name is None else model_digest(open_store().resolve(name).manifest)
    mark = None if model is None else model_mark(model)
    pages = [page for page in list_pages(prefix_folder(home)) if mark in (None, page.model)]
    freed = clear_pages(prefix_folder(home), model)
    if as_json:
        emit_json({"pages": len(pages), "freed_bytes": freed})
        return
    state(f"freed {size(freed)} ({count(len(pages), 'page')})")


def tree(nodes: "Sequence[Prefix]", decode: "Decode | None") -> str:
    """One line per node; "" for none. decode: ids to text, where there is a way."""
    rows = [
        (
            "  " * indent + f"{node.start}+{node.tokens}",
            size(node.size_bytes),
            _held(node),
            ago(node.used_at_s),
            _beginning(node, decode),
        )
        for node, indent in zip(nodes, _indents([node.depth for node in nodes]), strict=True)
    ]
    return table(rows, header=("TOKENS", "SIZE", "HOLDS", "USED", "TEXT"), right=[1]) if rows else ""


def _indents(depths: Sequence[int]) -> list[int]:
    """How far each node is indented: a step where its parent has other children too, so that a long
    conversation, in which each turn is the only child of the one before, stays where it is.

    depths: of nodes in order, parents before children; 1 for a root.
    """
    parents: list[int | None] = []
    path: dict[int, int] = {}
    for place, depth in enumerate(depths):
        parents.append(path.get(depth - 1))
        path[depth] = place
    children = Counter(parents)
    indents: list[int] = []
    for parent in parents:
        above = 0 if parent is None else indents[parent]
        indents.append(above + (parent is not None and children[parent] > 1))
    return indents


def _held(node: "Prefix") -> str:
    """The kinds of layers on disk and their format; of a node in memory, what can be done with it."""
    words = [*([node.space] if node.space else []), *node.kinds]
    words += [node.kv_format] if node.kv_format else []
    words += ["resumable"] if node.resumable else []
    return ", ".join([*words, *([f"used by {node.users}"] if node.users else [])]) or "-"


def _facts(name: str | None) -> dict[str, Any]:
    from modelkit.prefixes import names_by_mark, pages_by_model, prefix_folder
    from modelkit.settings import Settings

    settings, store = Settings.from_environment(), open_store()
    chosen = None if name is None else names_by_mark([store.resolve(name)])
    names = names_by_mark(store.packages())
    found = pages_by_model(settings.home)
    models = [
        _model(names.get(mark, []), pages)
        for mark, pages in found.items()
        if chosen is None or mark in chosen
    ]
    models.sort(key=lambda model: (-model["used_s"], model["names"]))
    return {
        "path": str(prefix_folder(settings.home)),
        "models": models,
        "size_bytes": sum(page.nbytes for pages in found.values() for page in pages),
        "limit_bytes": settings.cache_disk_bytes,
    }


def _model(names: list[str], pages: "list[PageFile]") -> dict[str, Any]:
    """names: [] for pages of weights that no package has, or of another version of modelkit."""
    used = max(page.used_at_s for page in pages)
    whole = [page for page in pages if not page.partial]
    return {
        "names": sorted(names),
        "pages": len(whole),
        "tokens": sum(page.stop - page.start for page in whole),
        "size_bytes": sum(page.nbytes for page in pages),
        "used": timestamp(used),
        "used_s": used,
    }


def _amounts(model: dict[str, Any]) -> tuple[str, str, str]:
    return str(model["pages"]), str(model["tokens"]), size(model["size_bytes"])


def _limit(limit_bytes: int) -> str:
    if limit_bytes:
        return f"at most {size(limit_bytes)} is cached"
    return "nothing more is cached without --cache-disk, as MODELKIT_CACHE_DISK is not set"


def _node(node: "Prefix", decode: "Decode | None") -> dict[str, Any]:
    return {
        "depth": node.depth,
        "start": node.start,
        "stop": node.stop,
        "size_bytes": node.size_bytes,
        "kinds": list(node.kinds),
        "kv_format": node.kv_format,
        "used": timestamp(node.used_at_s),
        "ids": list(node.ids),
        "text": decode(node.ids) if decode else None,
    }


def _beginning(node: "Prefix", decode: "Decode | None") -> str:
    ids = node.ids[:_TEXT_IDS]
    return " ".join(map(str, ids)) if decode is None else one_line(decode(ids), _TEXT_CHARACTERS)


def _decoder(package: "Package") -> "Decode | None":
    """None where the package's tokenizer cannot be loaded: the tree is shown without texts."""
    from modelkit.errors import ModelkitError
    from modelkit.tokenizer import load_tokenizer

    try:
        tokenizer = load_tokenizer(package.files)
    except ModelkitError:
        return None
    return lambda ids: tokenizer.decode(ids, skip_special=False)
