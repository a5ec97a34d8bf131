"""Time and memory of an import: python -m benchmarks.gguf [--types q4_k,q6_k] [--megabytes 500]

A llama whose matrices are random blocks is written into a temporary folder. Each round, in fresh processes,
copies that file while hashing it and syncing the copy, makes a package of it, and copies it again. Printed
are medians over rounds of the times and of the processor's seconds, their ratios, and how much memory the
import took beyond its process. Each process imports a small file before that: what Python needs to read (and,
where no bytecode is kept, to compile) its modules is the start of a program, not the speed of reading.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3

_COPY = """
import hashlib, os
digest = hashlib.sha256()
with open(source, "rb") as given, open(folder + "/copy", "wb") as made:
    while data := given.read(8 << 20):
        digest.update(data)
        made.write(data)
    os.fsync(made.fileno())
"""
_IMPORT = "package(source, folder)"
_AROUND = """
import json, pathlib, resource, sys, time
source, folder, small = sys.argv[1:]
import mlx.core, numpy, tokenizers, modelkit.pack.build, modelkit.pack.writing.transform
from modelkit.modelfile import Modelfile
from modelkit.pack.build import build
from modelkit.store.name import Name
from modelkit.store.store import Store
def package(source, folder):
    recipe = Modelfile.parse(f"FROM {source}\\n").recipe(pathlib.Path(folder))
    build(recipe, Name.parse("m"), Store(pathlib.Path(folder)))
def most():
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(status.read_text().split("VmHWM:")[1].split()[0])
before = most()
package(small, folder + "/small")
started, worked = time.perf_counter(), time.process_time()
WORK
print(json.dumps([time.perf_counter() - started, time.process_time() - worked, 1024 * (most() - before)]))
"""


def write_model(path: Path, types: list[str], size_bytes: float) -> None:
    """A Llama of about that size; tests make such files, only smaller."""
    from tests.support import gguf_llama

    gguf_llama.HIDDEN, gguf_llama.INNER, gguf_llama.HEADS, gguf_llama.KV_HEADS = 2048, 5632, 16, 8
    gguf_llama.LAYERS = 1
    path.with_name("small.gguf").write_bytes(layer := gguf_llama.llama(types))
    layer_bytes = len(layer)
    gguf_llama.LAYERS = max(round(size_bytes / layer_bytes), 1)
    path.write_bytes(gguf_llama.llama(types))


def measured(work: str, source: Path) -> tuple[float, float, int]:
    """Seconds, seconds of the processor, and bytes of memory beyond that of the process before the work."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        command = [sys.executable, "-c", _AROUND.replace("WORK", work), str(source), folder]
        command.append(str(source.with_name("small.gguf")))
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, busy, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, busy, memory


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of an import.")
    parser.add_argument("--types", default="q4_k,q4_0,q8_0", help="one file for each")
    parser.add_argument("--megabytes", type=float, default=500)
    arguments = parser.parse_args()
    print(f"{'type':8} {'file':>8} {'copy':>13} {'import':>13} {'ratio':>10} {'memory':>8}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "model.gguf")
        for name in arguments.types.split(","):
            write_model(source, [name], arguments.megabytes * 1e6)
            print(_line(name, source))


def _line(name: str, source: Path) -> str:
    copies: list[tuple[float, float, int]] = []
    imports: list[tuple[float, float, int]] = []
    for _ in range(ROUNDS):
        copies.append(measured(_COPY, source))
        imports.append(measured(_IMPORT, source))
        copies.append(measured(_COPY, source))
    (copied, copy_busy, _), (spent, busy, more) = (
        [statistics.median(column) for column in zip(*rounds, strict=True)] for rounds in (copies, imports)
    )
    times = f"{copied:5.2f} {copy_busy:5.2f}s {spent:6.2f} {busy:5.2f}s"
    ratios = f"{spent / copied:5.2f} {busy / copy_busy:5.2f}"
    return f"{name:8} {source.stat().st_size / 1e6:5.0f} MB {times} {ratios} {more / 1e6:5.0f} MB"


if __name__ == "__main__":
    main()
