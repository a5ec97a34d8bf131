"""Machines that run a model together: a file of them, as `mlx.launch --hostfile` takes it, or so many here.

    [{"ssh": "mac-1", "ips": ["10.0.0.1"], "memory": "512GB"}, ...]

or an object with such a list under "hosts". "memory" is ours: what a model may take there. The launcher
leaves it alone, as we do with what is the launcher's. A machine that is listed more than once runs as many
ranks, which share its memory; it need say it once.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from modelkit.errors import RequestError
from modelkit.python_faults import fault, os_reason
from modelkit.units import read_size
from runtime.device import device
from runtime.quoting import quoted
from runtime.ranks.plan import Host

_MOST = 1024
_EXAMPLE = '[{"ssh": "mac-1", "ips": ["10.0.0.1"], "memory": "512GB"}]'
_LONGEST_BYTES = 1 << 20


def read_hosts(path: Path, memory_bytes: int = 0) -> tuple[Host, ...]:
    """The machines of a file. memory_bytes: of those that do not say; 0: unknown. Raises RequestError."""
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_LONGEST_BYTES))
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {os_reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not JSON: {fault(error)}", hint=f"Example: {_EXAMPLE}") from error
    listed = said.get("hosts") if isinstance(said, dict) else said
    if not isinstance(listed, list) or not 0 < len(listed) <= _MOST:
        raise RequestError(f"{path} should list 1 to {_MOST} machines", hint=f"Example: {_EXAMPLE}")
    found = [_host(path, place, one) for place, one in enumerate(listed)]
    times, memory = Counter(host.name for host in found), dict[str, int]()
    for place, host in enumerate(found):
        if host.free_bytes and memory.setdefault(host.name, host.free_bytes) != host.free_bytes:
            where = f"{path}, machine {place}: {quoted(host.name)}"
            raise RequestError(f"{where} is listed twice, with two sizes of memory; it has one")
    return tuple(
        replace(host, free_bytes=memory.get(host.name, memory_bytes) // times[host.name]) for host in found
    )


def hosts_here(count: int, memory_bytes: int = 0) -> tuple[Host, ...]:
    """So many processes on this machine. memory_bytes: for each; 0: an equal part of what is free."""
    own = memory_bytes or device().available_bytes // count
    return tuple(Host(f"rank {rank}", own) for rank in range(count))


def _host(path: Path, place: int, said: Any) -> Host:
    where = f"{path}, machine {place}"
    if not isinstance(said, Mapping) or not isinstance(said.get("ssh"), str) or not said["ssh"]:
        raise RequestError(f"{where} is {quoted(said)}, expected an object with its name under ssh")
    memory = said.get("memory")
    if memory is None:
        return Host(said["ssh"])
    own = read_size(memory, f"{where}, memory")
    if own == 0:  # which would be taken for a machine that does not say it
        raise RequestError(f"{where} has no memory", hint="Leave `memory` out where it is not known.")
    return Host(said["ssh"], own)
