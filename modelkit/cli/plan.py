"""`modelkit plan`: which of several machines would have which part of a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelkit.cli.home import complete_name
from modelkit.cli.limits import Size
from modelkit.cli.screen import echo, emit_json, note, state
from modelkit.cli.tables import table
from modelkit.cli.ui import count, json_option, size

if TYPE_CHECKING:
    from modelkit.planning import Planned

_HEADER = ("RANK", "HOST", "LAYERS", "WEIGHTS", "MEMORY", "ROOM", "FULL")


@click.command("plan")
@click.argument("name", shell_complete=complete_name)
@click.option(
    "--hosts",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The machines, as mlx.launch --hostfile takes them; each may say its memory, such as 512GB.",
)
@click.option("--ranks", type=click.IntRange(1, 1024), help="So many processes on this machine instead.")
@click.option(
    "--shards",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="How many ranks share each stage; as many as there are: one stage.",
)
@click.option(
    "--memory",
    type=Size(),
    default=0,
    metavar="SIZE",
    help="What may be taken on each machine that does not say, such as 512GB.",
)
@click.option("--context", type=click.IntRange(1), help="Tokens of a sequence; else what the package allows.")
@click.option("--sequences", type=click.IntRange(1), default=1, show_default=True, help="At once.")
@json_option
def command(
    name: str,
    file: Path | None,
    ranks: int | None,
    shards: int,
    memory: int,
    context: int | None,
    sequences: int,
    as_json: bool,
) -> None:
    """Say which of several machines would have which part of the model NAME.

    Stages have layers one behind the other, and give the same bits as one machine. Ranks that share a stage
    have a part of every layer each, and exchange sums twice per layer. Only headers are read, so that plans
    can be made where the model would never fit.

    \b
    modelkit plan big --hosts hosts.json --memory 512GB
    modelkit plan big --ranks 4 --shards 4 --context 32768
    """
    if (file is None) == (ranks is None):
        raise click.UsageError("give the machines, by --hosts or by --ranks")
    from modelkit.hosts import hosts_here, read_hosts
    from modelkit.opening.read import open_model
    from modelkit.planning import plan_for
    from modelkit.settings import settings_at
    from runtime.device import device

    here = None if ranks is None else hosts_here(ranks, memory)
    hosts = here or read_hosts(file or Path(), memory)
    with open_model(name, settings_at(None)) as opened:
        # Other machines are taken for some whose products read weights as they are stored, in any type.
        on = None if here is None else device()
        found = plan_for(opened, hosts, shards=shards, tokens=context, sequences=sequences, on=on)
    if as_json:
        emit_json({"name": name, **found.to_json()})
        return
    echo(table(_rows(found), header=_HEADER, right=[0, 3, 4, 5, 6]))
    state(said(found))
    for sentence in found.whole:
        note(f"whole on every rank: {sentence}")
    for rank, share in found.short:
        note(f"rank {rank} wants {size(share.wanted_bytes)}, and {share.host} has {size(share.free_bytes)}")


def said(found: "Planned") -> str:
    """What the table is about."""
    plan = found.plan
    stages = count(plan.stages, "stage") + ("" if plan.shards == 1 else f" of {plan.shards} ranks")
    memory = f"{count(found.sequences, 'sequence')} of {found.tokens:,} tokens"
    exact = "the bits of one machine" if plan.shards == 1 else "sums of several ranks"
    return f"{plan.architecture}: {count(plan.layers, 'layer')}, {stages}; {memory}; {exact}"


def _rows(found: "Planned") -> Iterator[tuple[str, ...]]:
    plan = found.plan
    for rank, share in enumerate(plan.shares):
        layers = f"{share.start}-{share.stop - 1}" if share.stop - share.start > 1 else str(share.start)
        part = "" if plan.shards == 1 else f", {share.shard + 1}/{plan.shards}"
        room = size(share.free_bytes) if share.free_bytes else ""
        full = f"{share.wanted_bytes / share.free_bytes:.0%}" if share.free_bytes else ""
        weights, memory = size(share.weight_bytes), size(share.memory_bytes)
        yield (str(rank), share.host, layers + part, weights, memory, room, full)
    sums = [sum(getattr(one, what) for one in plan.shares) for what in ("weight_bytes", "memory_bytes")]
    yield ("", "all", "", size(sums[0]), size(sums[1]), "", "")
