"""The options of commands that may run a model on several machines, and what those machines do with them."""

import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import click

from modelkit.cli.options.limits import Whole
from modelkit.cli.terminal import interrupts
from modelkit.settings.launchers import held_by_mlx, one_of_several

_INPUT = 0
_LOOK_S = 0.25


def rank_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command `ranks` and `shards`; None where nothing is said. A process that `follows` does so
    before anything else that was given is looked at: files that are named may be on rank 0's machine alone.
    """
    ranks = click.option(
        "--ranks",
        type=Whole(1, 64),
        metavar="N",
        is_eager=True,
        callback=_leading,
        help="Run the model in N processes on this machine, each with a part of the model.",
    )
    shards = click.option(
        "--shards",
        type=Whole(1, 1024),
        metavar="N",
        help="Split every layer among N ranks. With more than N ranks, N share each stage of layers.",
    )
    return ranks(shards(command))


def _leading(ctx: click.Context, _param: click.Parameter, ranks: int | None) -> int | None:
    if not ctx.resilient_parsing:
        follows(ctx, ranks)
    return ranks


def progress_of_ranks() -> str:
    """What all ranks have fetched or read of a model that is loaded, for `Waiting`; "" for one alone."""
    from modelkit.ranks.current import current_group

    rank_group = current_group()
    return "" if rank_group is None else rank_group.progress.text()


def follows(ctx: click.Context, ranks: int | None) -> None:
    """Ends a process that a launcher has started on a rank above 0 when it has done what rank 0 wants."""
    if not one_of_several():
        return
    if ranks is not None:
        raise click.UsageError("--ranks starts processes here, but a launcher has started some already")
    from modelkit.cli.terminal.screen import Waiting
    from modelkit.ranks.follower import follow
    from modelkit.ranks.rendezvous import join

    with Waiting("waiting for the other machines"):
        rank_group = join()
    if rank_group.rank > 0:
        interrupts.leave_to_another()
        ctx.exit(follow(rank_group))
    end_with_launcher(reads=True)


def end_with_launcher(*, reads: bool = False) -> None:
    """Rank 0 is told to stop when whoever holds the pipe to its input, as `mlx.launch` does, has ended; the
    others end with it. One that was started through a terminal, as by ssh, gets SIGHUP then, and `mpirun`,
    which closes the pipe where its own input ends, ends all that it has started.

    reads: it may read its input, and somebody who lives may close that; who has started it is gone, too.
    """
    if not (one_of_several() and held_by_mlx()) or sys.__stdin__ is None:
        return
    if not stat.S_ISFIFO(os.fstat(_INPUT).st_mode):
        return
    poll, launcher = select.poll(), os.getppid()
    poll.register(_INPUT, 0)  # that nobody writes any more is told whatever is asked

    def watch() -> None:
        poll.poll()
        while reads and os.getppid() == launcher:
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    if not poll.poll(0):
        threading.Thread(target=watch, name="modelkit-launcher", daemon=True).start()
