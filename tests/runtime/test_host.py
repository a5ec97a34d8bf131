"""Cores and memory, read from machines laid out as folders."""

import _thread
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime import host

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /sys")
GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """8 GiB, 6 of them free; every core of its own."""
    write(tmp_path, "proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n")
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@linux
def test_memory_of_a_bare_machine(machine: Path) -> None:
    assert host.memory(machine) == (8 * GIB, 6 * GIB)


@linux
def test_a_limit_of_a_parent_group_counts(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/outer/inner\n")
    write(machine, "sys/fs/cgroup/outer/inner/memory.max", "max\n")
    write(machine, "sys/fs/cgroup/outer/memory.max", str(4 * GIB))
    write(machine, "sys/fs/cgroup/outer/memory.current", str(2 * GIB))
    assert host.memory(machine) == (4 * GIB, 2 * GIB)


@linux
def test_cached_files_are_not_used_memory(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/\n")
    write(machine, "sys/fs/cgroup/memory.max", str(4 * GIB))
    write(machine, "sys/fs/cgroup/memory.current", str(3 * GIB))
    write(machine, "sys/fs/cgroup/memory.stat", f"anon {GIB}\ninactive_file {2 * GIB}\n")
    assert host.memory(machine) == (4 * GIB, 3 * GIB)


@linux
def test_version_1_groups_limit_too(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "5:cpu,memory:/job\n")
    write(machine, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", str(2 * GIB))
    write(machine, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", str(GIB))
    assert host.memory(machine) == (2 * GIB, GIB)


@linux
def test_a_limit_of_addresses_counts(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ulimit -v`, as batch systems set it."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3 * GIB, 3 * GIB))
    write(machine, "proc/self/statm", f"{GIB // resource.getpagesize()} 1 1 1 0 1 0\n")
    assert host.memory(machine) == (3 * GIB, 2 * GIB)
    assert host.address_room(machine) == 2 * GIB


@linux
def test_the_least_limit_of_threads_counts(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert host.task_limit(machine) is None
    write(machine, "proc/self/cgroup", "8:pids:/pod/box\n")
    write(machine, "sys/fs/cgroup/pids/pod/box/pids.max", "max")
    write(machine, "sys/fs/cgroup/pids/pod/pids.max", "100")
    assert host.task_limit(machine) == 100
    monkeypatch.setattr(resource, "getrlimit", lambda _: (60, 80))
    assert host.task_limit(machine) == 60


@pytest.mark.parametrize("given", [0, 2, 5])
def test_so_many_threads_as_the_system_gives(given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start, running = _thread.start_new_thread, []

    def start_some(*asked: Any) -> int:
        if len(running) == given:
            raise RuntimeError("can't start new thread")
        running.append(start(*asked))
        return running[-1]

    monkeypatch.setattr(_thread, "start_new_thread", start_some)
    assert host.startable(4) == min(given, 4) == len(running)


@linux
def test_no_proc_means_unknown(tmp_path: Path) -> None:
    assert host.memory(tmp_path) == (0, 0)


@linux
def test_hyper_threads_share_a_core(machine: Path) -> None:
    for cpu in os.sched_getaffinity(0):
        write(machine, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", "0-99\n")
    assert host.cores(machine) == 1


@linux
def test_unknown_topology_counts_every_processor(machine: Path) -> None:
    assert host.cores(machine) == len(os.sched_getaffinity(0))


@linux
@pytest.mark.parametrize(("limit", "period"), [(100_000, 100_000), (50_000, 100_000)])
def test_a_cpu_quota_limits_cores(machine: Path, limit: int, period: int) -> None:
    write(machine, "proc/self/cgroup", "0::/\n")
    write(machine, "sys/fs/cgroup/cpu.max", f"{limit} {period}\n")
    assert host.cores(machine) == 1


@linux
def test_no_cpu_quota_limits_nothing(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/\n1:cpu:/\n")
    write(machine, "sys/fs/cgroup/cpu.max", "max 100000\n")
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert host.cores(machine) == len(os.sched_getaffinity(0))


@linux
def test_parts_of_a_machine_are_cores_of_their_own(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hyper-threads stay together, and what is left over belongs to all."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(10)))
    for cpu in range(10):
        its = f"{cpu % 5},{cpu % 5 + 5}\n"
        write(machine, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", its)
    assert host.part(0, 2, machine) == {0, 5, 1, 6, 4, 9}
    assert host.part(1, 2, machine) == {2, 7, 3, 8, 4, 9}
    assert host.part(3, 5, machine) == {3, 8}
    assert host.part(0, 6, machine) == set()


def test_this_machine_has_cores_and_memory() -> None:
    total, available = host.memory()
    assert host.cores() >= 1
    assert 0 <= available <= total


def test_activity_counts_the_processors_that_this_process_may_use(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 2}, raising=False)
    rows = ["cpu 9 9 9 9 9", *(f"cpu{n} 10 0 5 {100 * n} {n} 0 0" for n in range(4)), "procs_running 7", ""]
    write(machine, "proc/stat", "\n".join(rows))
    found = host.processor_times(machine)
    assert found is not None
    assert (found.processors, found.running) == (2, 7)
    assert found.idle_s == (0 + 0 + 200 + 2) / os.sysconf("SC_CLK_TCK")


def test_a_machine_that_does_not_tell(machine: Path) -> None:
    assert host.processor_times(machine) is None


@linux
def test_activity_here() -> None:
    before = host.processor_times()
    assert before is not None
    sum(range(1_000_000))
    now = host.processor_times()
    assert now is not None
    assert now.at_s > before.at_s
    assert now.idle_s >= before.idle_s
    assert now.own_s > before.own_s
    assert now.running >= 1
