"""`modelkit verify`: is every stored byte the one its digest promises?"""

from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.home import bytes_under, complete_name, open_store
from modelkit.cli.terminal.progress import bar
from modelkit.cli.terminal.screen import emit_json, state
from modelkit.cli.terminal.ui import count, json_option, size

if TYPE_CHECKING:
    from modelkit.store import Problem, Store, VerifyReport


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_name)
@json_option
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Check the files of packages against their digests; without a NAME, the whole store.

    If anything is damaged, says which packages are affected and exits with code 1.
    """
    store = open_store()
    with bar("verify", _total_bytes(store, names), enabled=not as_json) as advance:
        report = store.verify(names or None, progress=advance)
    if as_json:
        emit_json(_to_json(report))
    else:
        for problem in report.problems:
            state(_sentence(problem))
        state(_summary(report))
    if report.problems:
        ctx.exit(1)


def _total_bytes(store: "Store", names: tuple[str, ...]) -> int:
    """What will be read, for the bar."""
    if not names:
        return bytes_under(store.root / "blobs") + bytes_under(store.root / "slices")
    from modelkit.store import Name, Package

    wanted = set(map(Name.parse, names))
    return sum(p.size_bytes for p in store.packages() if isinstance(p, Package) and p.name in wanted)


def _sentence(problem: "Problem") -> str:
    users = [name for name in problem.names if name != problem.subject]
    return f"{problem.subject}: {problem.what}" + (f" (used by {', '.join(users)})" if users else "")


def _summary(report: "VerifyReport") -> str:
    looked = (
        f"{count(report.packages, 'package')}, {count(report.blobs, 'blob')}, {size(report.read_bytes)} read"
    )
    return f"{count(len(report.problems), 'problem') if report.problems else 'all is well'} ({looked})"


def _to_json(report: "VerifyReport") -> dict[str, Any]:
    return {
        "ok": not report.problems,
        "problems": [
            {"subject": p.subject, "problem": p.what, "packages": list(p.names)} for p in report.problems
        ],
        "packages": report.packages,
        "blobs": report.blobs,
        "read_bytes": report.read_bytes,
    }
