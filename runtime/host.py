"""What the operating system grants this process: processor cores and memory; and how busy it is.

Plain files and system calls, no MLX. A container's limits count as the machine's; both cgroup generations are
read. `root` exists so that tests can lay out a machine of their own.
"""

import _thread
import ctypes
import math
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from runtime.records import dataclass

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Totals of processor time, in seconds, to be compared with an earlier look."""

    at_s: float
    """The clock."""
    idle_s: float
    """Of all the processors that this process may use."""
    own_s: float
    """Spent by this process."""
    processors: int
    """How many this process may use, hyper-threads counted."""
    running: int
    """Threads of the whole machine that have a processor or wait for one now, the asking one included."""


def processor_times(root: Path = ROOT) -> ProcessorTimes | None:
    """How busy the machine is; None where it does not say (any but Linux)."""
    rows = {row[0]: row[1:] for line in _read(root / "proc/stat").splitlines() if (row := line.split())}
    # user, nice, system, idle, iowait, ... in clock ticks
    mine = [row for cpu in _allowed() if (row := rows.get(f"cpu{cpu}")) and len(row) > 4]
    if not mine:
        return None
    idle = sum(int(row[3]) + int(row[4]) for row in mine) / os.sysconf("SC_CLK_TCK")
    running = int((rows.get("procs_running") or ["1"])[0])
    return ProcessorTimes(time.monotonic(), idle, time.process_time(), len(mine), running)


def cores(root: Path = ROOT) -> int:
    """Physical cores that this process may use at once, at least 1.

    Hyper-threads share one core's arithmetic units, so a second busy thread on a core gains a matrix product
    nothing.
    """
    if sys.platform == "darwin":
        return _sysctl("hw.perflevel0.physicalcpu") or os.cpu_count() or 1
    physical = {_siblings(root, cpu) for cpu in _allowed()}
    return max(1, min(len(physical), _quota(root)))


def part(nth: int, count: int, root: Path = ROOT) -> frozenset[int]:
    """The logical processors of one of so many equal parts of the cores that this process may use, and those
    that are left over, which all have. Empty where there are fewer cores, or a thread cannot be kept to some.
    """
    cores: dict[str, set[int]] = {}
    for cpu in sorted(_allowed()):
        cores.setdefault(_siblings(root, cpu), set()).add(cpu)
    each = len(cores) // count if hasattr(os, "sched_setaffinity") else 0
    if not each:
        return frozenset()
    listed = [*cores.values()]
    return frozenset().union(*listed[nth * each : (nth + 1) * each], *listed[count * each :])


def memory(root: Path = ROOT) -> tuple[int, int]:
    """Total and available bytes; available is what could be had without swapping. 0 means unknown."""
    if sys.platform == "darwin":
        total = _sysctl("hw.memsize")
        return total, total * _sysctl("kern.memorystatus_level") // 100
    total, available = _meminfo(root)
    for limit, used in _memory_limits(root):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return total, available


def address_room(root: Path = ROOT) -> int | None:
    """Bytes of addresses that this process may still take (`ulimit -v`); None where it has no such limit."""
    found = _addresses(root)
    return found and max(0, found[0] - found[1])


def task_limit(root: Path = ROOT) -> int | None:
    """Processes and threads that there may be where this process is, with those of others (`ulimit -u`, the
    pids limit of a container); None where nothing limits them.
    """
    if sys.platform != "linux":  # others count processes alone
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [] if limit == resource.RLIM_INFINITY else [limit]
    limits += [most for folder in _cgroups(root, "pids") if (most := _count(_read(folder / "pids.max")))]
    return min(limits, default=None)


def startable(wanted: int) -> int:
    """How many threads, `wanted` at most, this process can start now. It starts them: what a limit leaves is
    known by trying alone, since all processes of a user or a group count.
    """
    hold = _thread.allocate_lock()
    ended = [_thread.allocate_lock() for _ in range(wanted)]

    def wait(own: _thread.LockType) -> None:
        with hold:
            own.release()

    started = 0
    with hold:
        for own in ended:
            own.acquire()
            try:
                _thread.start_new_thread(wait, (own,))
            except RuntimeError:
                break
            started += 1
    for own in ended[:started]:
        own.acquire()
    return started


def trim() -> bool:
    """Give freed memory back to the system, where the C library keeps it; True where it was asked to.

    glibc keeps what was freed between blocks that are still used, and of big models that is most of it:
    1.8 GB of 2.1 GB after one was closed. Other libraries give large blocks back by themselves.
    """
    if sys.platform != "linux":
        return False
    try:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    except (OSError, AttributeError):  # musl, and whatever else has no such function
        return False
    return True


def _allowed() -> set[int]:
    """The logical processors that this process may use: its first thread, as others may be kept off some."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(os.getpid())
    return set(range(os.cpu_count() or 1))


def _siblings(root: Path, cpu: int) -> str:
    """A name for the physical core behind a logical one; unknown topology: each is its own."""
    return _read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def _quota(root: Path) -> int:
    """Whole processors that the tightest CPU bandwidth limit amounts to."""
    quotas: list[float] = [sys.maxsize]
    for folder in _cgroups(root, "cpu"):
        pair = _read(folder / "cpu.max").split()  # version 2: "200000 100000", or "max 100000"
        if not pair:
            pair = [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
        limit, period = (_count(text) for text in pair)
        if limit and period:
            quotas.append(limit / period)
    return math.ceil(min(quotas))


def _meminfo(root: Path) -> tuple[int, int]:
    rows = dict(line.split(":", 1) for line in _read(root / "proc/meminfo").splitlines() if ":" in line)
    total, available = (_count((rows.get(name) or "0").split()[0]) for name in ("MemTotal", "MemAvailable"))
    return 1024 * total, 1024 * available


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use in bytes of the process's addresses (`ulimit -v`), where there is one, and of each
    memory-limited group, whose cached file pages do not count as used.
    """
    if (addresses := _addresses(root)) is not None:
        yield addresses
    for folder in _cgroups(root, "memory"):
        for limit_file, used_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = _count(_read(folder / limit_file))
            if limit:
                stat = dict(
                    line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines() if " " in line
                )
                cached = _count(stat.get("inactive_file", "0"))
                yield limit, max(0, _count(_read(folder / used_file)) - cached)


def _addresses(root: Path) -> tuple[int, int] | None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    pages = (_read(root / "proc/self/statm").split() or ["0"])[0]
    return limit, _count(pages) * resource.getpagesize()


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control group and its ancestors: a limit anywhere above holds here too.

    A line of /proc/self/cgroup is `number:controllers:path`; version 2 has number 0 and names no controller.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" or controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / ("" if number == "0" else controller)
            inside = Path(path.lstrip("/"))
            yield from (mount / part for part in (inside, *inside.parents) if ".." not in part.parts)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # absent in this container or kernel
        return ""


def _count(text: str) -> int:
    """A plain count; 0 for "max", for -1 and for an absent file."""
    return int(text) if text.isdecimal() else 0


def _sysctl(name: str) -> int:
    """An integer of the macOS kernel's state; 0 where there is no such name."""
    value, size = ctypes.c_uint64(0), ctypes.c_size_t(8)
    failed = ctypes.CDLL(None).sysctlbyname(
        name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return 0 if failed else value.value
