"""What launchers of several processes (mlx.launch, mpirun) say of this one."""

import json
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from modelkit.durations import read_keep_alive
from modelkit.errors import ParameterError
from modelkit.python_faults import os_reason
from runtime.quoting import quoted

_RANKS = ("MLX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # of mlx.launch, Open MPI, MPICH
_SIZES = ("MLX_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LAUNCHERS = (*_RANKS, *_SIZES, "MLX_HOSTFILE", "MLX_IBV_DEVICES", "MLX_JACCL_COORDINATOR", "NCCL_HOST_IP")
"""What launchers set."""
_SMALL = 1 << 20
_NUMBER = re.compile(r"[0-9]{1,9}")
_LAUNCHED = "`mlx.launch --hostfile` sets both on each machine."


def launched(env: Mapping[str, str] = os.environ) -> bool:
    """Has a launcher of ranks started this process, which then holds its input?"""
    return any(name in env for name in _RANKS)


def held_by_mlx(env: Mapping[str, str] = os.environ) -> bool:
    """Is that launcher `mlx.launch`, which holds the input until all that it has started have ended?"""
    return _RANKS[0] in env


def held_by_mpi(env: Mapping[str, str] = os.environ) -> bool:
    """Is it one of MPI's, for which a process that ends without a word to MPI has failed?"""
    return any(name in env for name in _RANKS[1:])


def one_of_several(env: Mapping[str, str] = os.environ) -> bool:
    """Has a launcher started this process as one of several that run a model together?"""
    alone = "1" in map(env.get, _SIZES) or _is_of_one(env.get("MLX_HOSTFILE", ""))
    return launched(env) and not alone


def _is_of_one(path: str) -> bool:
    """`mlx.launch` gives a list of addresses without any where there is one machine."""
    try:
        said = Path(path).read_bytes()[:_SMALL].strip() if path else b"[]"
        hosts: Any = json.loads(said or b"[[]]")
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(hosts, list) and len(cast("list[Any]", hosts)) == 1


def check_launched(env: Mapping[str, str] = os.environ) -> None:
    """Is what a launcher says of this process among others what MLX can read? It ends the process for a rank
    below 0 and for no addresses, and takes a word for rank 0. Raises ParameterError.
    """
    if "MLX_RANK" not in env:
        return
    rank, path = env["MLX_RANK"], env.get("MLX_HOSTFILE")
    count = 2**31 if path is None else len(_addresses(path))
    if not (_NUMBER.fullmatch(rank) and int(rank) < count):
        least = "a whole number" if path is None else f"one of the {count} ranks of {path}, from 0 on"
        raise ParameterError(f"MLX_RANK is {quoted(rank)}, expected {least}", hint=_LAUNCHED)


def _addresses(path: str) -> list[list[str]]:
    try:
        said: Any = json.loads(Path(path).read_bytes())
    except OSError as error:
        why = os_reason(error)
        raise ParameterError(
            f"MLX_HOSTFILE is {path}, which cannot be read: {why}", hint=_LAUNCHED
        ) from error
    except (ValueError, RecursionError):
        said = None
    if not (said and isinstance(said, list) and all(map(_are_texts, cast("list[Any]", said)))):
        raise ParameterError(
            f'MLX_HOSTFILE is {path}, expected a list of addresses for each rank: [["10.0.0.1:5000"], ...]',
            hint=_LAUNCHED,
        )
    return said


def _are_texts(said: Any) -> bool:
    return isinstance(said, list) and all(isinstance(one, str) for one in cast("list[Any]", said))


def rank_patience_s(env: Mapping[str, str] = os.environ) -> float:
    """How long another machine may keep this one waiting: MODELKIT_RANK_TIMEOUT, such as 60s. Raises
    ParameterError.
    """
    text = env.get("MODELKIT_RANK_TIMEOUT", "").strip()
    patience_s = read_keep_alive(text, "MODELKIT_RANK_TIMEOUT") if text else 60.0
    if not 0 < patience_s < float("inf"):
        raise ParameterError(
            "MODELKIT_RANK_TIMEOUT is how long to wait for another machine, and has to be more than 0",
            hint="Example: 60s.",
        )
    return patience_s


@contextmanager
def surroundings(more: dict[str, str]) -> Generator[None]:
    """Inside, the environment has these too."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
