"""What a processor does: modelkit beside llama.cpp, on the same random models, in one run.

    python benchmarks/processor.py --llama PYTHON [--rounds 3] [--shapes "llama 125M"] [--formats q4,q8]
                                   [--jobs "decode,prefill 512"] [--threads 2] [--place DIR] [--svg FILE]
                                   [--file FILE.gguf]

PYTHON is an interpreter with llama-cpp-python, built for this machine. Each engine runs in fresh processes,
both in turn, `--rounds` times; a figure is the median of rounds, and a ratio the median of the rounds'
ratios. Ours goes through the whole engine (scheduler, sampler, cache); llama.cpp's is raw llama_decode and
an argmax. Without --llama only ours is measured.

jobs, all in tokens per second: decode; prefill N; behind N (decoding behind N tokens); rows N (so many at
once, from the first one's first token on, so with the reading of the others' prompts; ours has places for 8,
and whoever comes behind them waits). verify N: how many times as long as a step with one token one with N
takes, the logits of all asked for. first: seconds from the process's start to its first token; load peak:
MB held by then; peak: MB at the end. "behind" once more with keys and values in q8, and in f16, as llama.cpp
keeps them anyway, with the peak of a process that does nothing else.

--file measures a model as people have it in place of these random ones, in its own formats on both sides.

formats: q4 and q8 plain; q4_k_m, which is llama.cpp's own file on both sides; bf16 as the checkpoint is.

Beside decoding stands the share of the machine's memory bandwidth that the weights of its tokens take (bytes
of the package's weights times tokens per second), measured by plain loops before and after the rounds; where
the two disagree by a tenth, or rounds by a fifth, the machine was not quiet, and that is said.

--svg draws the ratios. --place keeps models and packages for the next run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.processor_models import FORMATS, SHAPES, Pair, make, of_file  # noqa: E402

JOBS = (
    "decode",
    "rows 8",
    "rows 16",
    "prefill 512",
    "prefill 2048",
    "prefill 3800",
    "behind 3800",
    "verify 2",
    "verify 8",
)
LONG_KEYS = "behind 3800"
KEPT = {"kv q8": ("behind 3800",), "kv f16": ("behind 3800", "peak")}
"""Formats of keys and values beside our own, and the figures taken with each."""
SECONDS = ("first",)
TIMES = "verify "
"""Jobs whose names begin so say how many times as long something takes."""
MEGABYTES = ("load peak", "peak")
UNSTEADY = 1.2


@dataclass
class Measured:
    """One shape in one format."""

    pair: Pair
    ours: list[dict[str, float]] = field(default_factory=list)
    theirs: list[dict[str, float]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return list(self.ours[0])

    def middle(self, name: str, *, ours: bool) -> float | None:
        rounds = self.ours if ours else self.theirs
        return statistics.median(one[name] for one in rounds) if rounds else None

    def ratio(self, name: str) -> float | None:
        """How many times as good as theirs."""
        both = list(zip(self.ours, self.theirs, strict=False))
        if not both:
            return None
        less_is_better = name.split(" (")[0] in SECONDS + MEGABYTES or name.startswith(TIMES)
        quotients = [b[name] / a[name] if less_is_better else a[name] / b[name] for a, b in both]
        return statistics.median(quotients)

    def unsteady(self, name: str) -> bool:
        values = [one[name] for one in self.ours]
        return max(values) > UNSTEADY * min(values)


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine can do, by plain loops."""

    read_bytes_s: float
    """Of memory, by as many threads as are measured."""

    def differs(self, other: "Machine") -> bool:
        fast, slow = sorted((self.read_bytes_s, other.read_bytes_s), reverse=True)
        return fast > 1.1 * slow


def look(threads: int) -> Machine:
    import numpy as np

    parts = [np.ones(64 << 20, np.uint8).view(np.int64) for _ in range(threads)]
    rates: list[float] = []
    with ThreadPoolExecutor(threads) as several:
        for _ in range(7):
            started = time.perf_counter()
            list(several.map(lambda part: part.max(), parts))
            rates.append(threads * parts[0].nbytes / (time.perf_counter() - started))
    return Machine(max(rates))


def main() -> None:
    options = _options()
    before = look(options.threads)
    with tempfile.TemporaryDirectory() as spare:
        place = options.place or Path(spare)
        place.mkdir(parents=True, exist_ok=True)
        measured = [
            Measured(pair)
            for pair in (
                [of_file(options.file, place, options.llama)]
                if options.file
                else [
                    make(shape, packed, place, options.llama)
                    for shape in options.shapes
                    for packed in options.formats
                ]
            )
        ]
        for _ in range(options.rounds):
            for one in measured:
                _round(one, place / "home", options)
    after = look(options.threads)
    for one in measured:
        print(_table(one, max(before.read_bytes_s, after.read_bytes_s)))
    if before.differs(after):
        print("The machine was not quiet: its memory was read at two rates, before and after.")
    if options.svg:
        options.svg.write_text(draw(measured), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llama", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", type=_listed(SHAPES), default=list(SHAPES))
    parser.add_argument("--formats", type=_listed(FORMATS), default=["q4", "q8"])
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=list(JOBS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--file", type=Path, help="a GGUF file")
    return parser.parse_args()


def _listed(known: Sequence[str] | dict[str, object]):
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


def _round(one: Measured, home: Path, options: argparse.Namespace) -> None:
    here, threads = Path(__file__).parent, str(options.threads)
    sets = [(options.jobs, "", None)]
    if LONG_KEYS in options.jobs:
        sets += [([kept, LONG_KEYS], f" ({kept[3:]} keys)", wanted) for kept, wanted in KEPT.items()]
    sides = [(one.ours, [sys.executable, str(here / "processor_ours.py"), str(home), one.pair.package])]
    if one.pair.gguf is not None:
        sides.append((one.theirs, [options.llama, str(here / "processor_llama.py"), str(one.pair.gguf)]))
    for rounds, command in sides:
        said: dict[str, float] = {}
        for jobs, suffix, wanted in sets:
            got = _run([*command, json.dumps(list(jobs)), threads])
            said |= {f"{name}{suffix}": got[name] for name in wanted or got}
        rounds.append(said)


def _run(command: list[str]) -> dict[str, float]:
    # As installed: bytecode is there.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _table(one: Measured, read_bytes_s: float) -> str:
    lines = [
        f"\n{one.pair.shape}, {one.pair.format}: {one.pair.packed_bytes / 1e6:.0f} MB of weights",
        f"{'':<24}{'modelkit':>10}{'llama.cpp':>11}{'ratio':>7}   of memory bandwidth",
    ]
    for name in one.names:
        ours, theirs, ratio = one.middle(name, ours=True), one.middle(name, ours=False), one.ratio(name)
        digits = 2 if name in SECONDS or name.startswith(TIMES) else 0
        share = one.pair.packed_bytes * (ours or 0) / read_bytes_s if name.startswith("decode") else None
        lines.append(
            f"{name:<24}{ours:>10,.{digits}f}"
            + (f"{theirs:>11,.{digits}f}{ratio:>7.2f}" if theirs and ratio else f"{'':>18}")
            + (f"   {share:.0%}" if share else "")
            + ("   unsteady" if one.unsteady(name) else "")
        )
    return "\n".join(lines)


def draw(measured: Sequence[Measured]) -> str:
    """A bar per figure: how many times as good as llama.cpp's; a line where they are even."""
    bars = [
        (f"{one.pair.shape} {one.pair.format}: {name}", ratio)
        for one in measured
        for name in one.names
        if (ratio := one.ratio(name)) is not None
    ]
    left, wide, high = 330, 300, 18
    unit = wide / max(2.0, *(ratio for _, ratio in bars)) if bars else wide
    rows = [
        f'<text x="{left - 8}" y="{high * i + 33}" text-anchor="end">{name}</text>'
        f'<rect x="{left}" y="{high * i + 22}" width="{ratio * unit:.1f}" height="{high - 6}" '
        f'class="{"more" if ratio >= 1 else "less"}"/>'
        f'<text x="{left + ratio * unit + 5:.1f}" y="{high * i + 33}">{ratio:.2f}</text>'
        for i, (name, ratio) in enumerate(bars)
    ]
    height = high * len(bars) + 34
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 60} {height}" '
        'font-family="sans-serif" font-size="11" fill="#333">\n'
        "<style>.more{fill:#2a7f62}.less{fill:#b5652b}</style>\n"
        f'<text x="{left}" y="12">modelkit over llama.cpp, the longer the better; the line: even</text>\n'
        + "\n".join(rows)
        + f'\n<line x1="{left + unit:.1f}" x2="{left + unit:.1f}" y1="18" y2="{height - 8}" stroke="#333"/>'
        "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
