"""Machines as commands are given them, and the table of what each would have of a model."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.options.limits import Size, Whole
from modelkit.cli.terminal.screen import note
from modelkit.cli.terminal.screen import width as screen_width
from modelkit.cli.terminal.tables import table
from modelkit.cli.terminal.ui import count, one_line, size

if TYPE_CHECKING:
    from modelkit.showing.planning import Planned

_HEADER = ("RANK", "HOST", "LAYERS", "ENCODER", "WEIGHTS", "ADAPTERS", "MEMORY", "ROOM", "FULL")
_HOST, _ENCODER, _ADAPTERS = map(_HEADER.index, ("HOST", "ENCODER", "ADAPTERS"))
_LEFT = range(_HOST, _ENCODER + 1)
_SHORTEST = 12
"""So much of a machine's name is shown at the least."""
_ANY = 1 << 20


def machine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command what `planned` reads."""
    options = (
        click.option(
            "--hosts",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="The machines, in the form of mlx.launch --hostfile; each may have a memory, such as 512GB.",
        ),
        click.option(
            "--ranks", type=Whole(1, 1024), help="Instead of machines, this many processes on this one."
        ),
        click.option(
            "--shards",
            type=Whole(1, 1024),
            default=1,
            show_default=True,
            help="How many ranks share each stage. If all of them do, there is one stage.",
        ),
        click.option(
            "--memory",
            type=Size(),
            default=0,
            metavar="SIZE",
            help="Memory to use on each machine for which the file gives none, such as 512GB.",
        ),
        click.option("--context", type=Whole(1), help="Tokens per sequence. [the package's limit]"),
        click.option(
            "--sequences", type=Whole(1), default=1, show_default=True, help="How many sequences run at once."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def names_machines(options: dict[str, Any]) -> bool:
    """Are there any? UsageError where they are named twice, or where something is said of none."""
    file, ranks = options["hosts"], options["ranks"]
    if file is not None and ranks is not None:
        raise click.UsageError("give the machines with --hosts or with --ranks, not both")
    if file is not None or ranks is not None:
        return True
    said = options["shards"] != 1 or options["sequences"] != 1 or options["memory"] or options["context"]
    if said:
        raise click.UsageError("give the machines, by --hosts or by --ranks")
    return False


def planned(name: str, options: dict[str, Any]) -> "Planned":
    """The plan of this model for the machines of `machine_options`."""
    from modelkit.opening.read import open_model
    from modelkit.ranks.hosts import hosts_here, read_hosts
    from modelkit.settings import settings_at
    from modelkit.showing.planning import plan_for
    from runtime.device import device

    ranks, memory = options["ranks"], options["memory"]
    here = None if ranks is None else hosts_here(ranks, memory)
    hosts = here or read_hosts(options["hosts"], memory)
    with open_model(name, settings_at(None), outlines=True) as opened:
        # Other machines are taken for some whose products read weights as they are stored, in any type.
        on = None if here is None else device()
        found = plan_for(
            opened,
            hosts,
            shards=options["shards"],
            tokens=options["context"],
            sequences=options["sequences"],
            on=on,
        )
    if options["context"] is not None and options["context"] > found.tokens:
        note(f"a context of {options['context']:,} tokens is more than the model's {found.tokens:,}")
    return found


def plan_table(found: "Planned", width: int | None = None) -> str:
    """A line for each rank, and their sums. width: as in `table`; hosts' names that are too long for it are
    cut, where enough is left of them.
    """
    plan = found.plan
    empty = {_ENCODER: not plan.reading, _ADAPTERS: not any(share.adapter_bytes for share in plan.shares)}
    shown = [place for place in range(len(_HEADER)) if not empty.get(place, False)]
    rows = [[row[place] for place in shown] for row in _rows(found)]
    width = screen_width() if width is None else width
    if width is not None:
        longest = max(len(one_line(row[_HOST])) for row in rows)
        whole = max(map(len, _table(rows, shown, _ANY).splitlines()))
        limit = longest - max(0, whole - width)
        if limit >= _SHORTEST:
            rows = [[*row[:_HOST], one_line(row[_HOST], limit), *row[_HOST + 1 :]] for row in rows]
    return _table(rows, shown, width)


def _table(rows: Sequence[Sequence[str]], shown: Sequence[int], width: int | None) -> str:
    right = [at for at, place in enumerate(shown) if place not in _LEFT]
    return table(rows, header=[_HEADER[place] for place in shown], right=right, width=width)


def plan_heading(found: "Planned") -> str:
    """What the table is about."""
    plan = found.plan
    stages = count(plan.stages, "stage") + ("" if plan.shards == 1 else f" of {plan.shards} ranks")
    memory = f"{count(found.sequences, 'sequence')} of {found.tokens:,} tokens"
    exact = "the bits of one machine" if plan.shards == 1 else "sums of several ranks"
    layers = count(plan.layers, "layer") + (f" and {plan.reading} of its encoder" if plan.reading else "")
    return f"{plan.architecture}: {layers}, {stages}; {memory}; {exact}"


def note_limits(found: "Planned") -> None:
    """What is not cut, and who has too little room."""
    for sentence in found.whole:
        note(f"whole on every rank: {sentence}")
    for rank, share in found.short:
        note(f"rank {rank} wants {size(share.wanted_bytes)}, and {share.host} has {size(share.free_bytes)}")


def _rows(found: "Planned") -> Iterator[Sequence[str]]:
    plan = found.plan
    for rank, share in enumerate(plan.shares):
        part = "" if plan.shards == 1 else f", {share.shard + 1}/{plan.shards}"
        room = size(share.free_bytes) if share.free_bytes else ""
        full = f"{share.wanted_bytes / share.free_bytes:.0%}" if share.free_bytes else ""
        taken = map(size, (share.weight_bytes, share.adapter_bytes, share.memory_bytes))
        layers = _layers(share.start, share.stop) + part
        yield (str(rank), share.host, layers, _layers(*share.reads) + part, *taken, room, full)
    sums = (
        sum(getattr(one, what) for one in plan.shares)
        for what in ("weight_bytes", "adapter_bytes", "memory_bytes")
    )
    yield ("", "all", "", "", *map(size, sums), "", "")


def _layers(start: int, stop: int) -> str:
    return f"{start}-{stop - 1}" if stop - start > 1 else str(start)
