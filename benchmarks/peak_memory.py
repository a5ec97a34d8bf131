"""What this process held at most, for both sides of benchmarks/processor.py."""

import resource


def peak_mb() -> float:
    """Of memory, in MB. Not `ru_maxrss` where there is another way: it begins with what the parent held."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
