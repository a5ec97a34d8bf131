"""What a decoded token costs the host, of every family of the test suite: nodes of MLX's graph from the token
that is read to the one that is drawn, and processor time of the thread that makes and hands over that graph.

    python benchmarks/graph_nodes.py [NAME ...] [--tokens 64] [--names] [--against FILE]

The networks are the tiny ones of tests/data/references, their matrices packed in eight bits where they can
be, so that kernels are a small part of a token; times are medians, told as ratios to those of the first
family, whose whole step is one node. "end" is yes where a step is one node from ids to tokens. --names: which
nodes there are, by how many of each. --against: what this script printed earlier; ratios of times to it stand
behind the figures, after both were divided by their first family's.
"""

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402

from runtime.cache.build import build_memory  # noqa: E402
from runtime.cache.protocol import by_layout  # noqa: E402
from runtime.loaded import LoadedModel  # noqa: E402
from runtime.nn.feed_forward.experts import SwitchLinear  # noqa: E402
from runtime.nn.operations import ops  # noqa: E402
from runtime.nn.positions.rope_spec import long_after  # noqa: E402
from runtime.parts.decoder import decoder_parts_of  # noqa: E402
from runtime.parts.draws import GuessParams  # noqa: E402
from runtime.step import Inputs, Step  # noqa: E402
from tests.support.parity import Reference  # noqa: E402

FIRST = "llama"
PROMPT, GROUP, BITS = 8, 32, 8
NODE = re.compile(r'^\{ \d+ \[label ="([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """Of one token."""

    layers: int
    nodes: int
    us: float
    """Of the thread that makes the graph."""
    end: bool
    """From ids to tokens in one node."""
    names: Counter[str]


class Answer:
    """One row that is decoded, greedily."""

    def __init__(self, model: LoadedModel, prompt: list[int], tokens: int) -> None:
        self._model = model
        self.memory: Any = build_memory(model.described.layout, dtype=model.dtype, grain=PROMPT + tokens + 8)
        self._length = 0
        self._long = None if long_after(model.described.config) is None else (False,)
        self._ids = mx.array([prompt])
        self.end = False

    def take(self) -> mx.array:
        """Reads what is there, and draws one token behind it."""
        width = self._ids.shape[1]
        step = Step((self._length,), (width,), long=self._long, inputs=Inputs(self._ids))
        self.memory.prepare(step)
        token = self._drawn(step)
        self.memory.commit(step, step.counts)
        self._length += width
        self._ids = token[:, -1:]
        return token

    def _drawn(self, step: Step) -> mx.array:
        network = self._model.network
        parts = decoder_parts_of(network)
        if parts is not None:
            by = GuessParams(None, None, [self._length + 1])
            found = ops.table.guess(parts, step, None, by_layout(self.memory), by)
            self.end = found is not None
            if found is not None:
                return found.tokens
        logits = network.logits(network(step, self.memory)[:, -1:], step)
        return mx.argmax(logits, axis=-1).astype(mx.int32)


def cost(name: str, tokens: int) -> Cost:
    reference = Reference(name)
    with tempfile.TemporaryDirectory() as folder:
        model = reference.load(Path(folder))
        mx.eval(model.network.parameters())
    nn.quantize(model.network, GROUP, BITS, class_predicate=_packable)
    answer = Answer(model, [int(token) for token in reference.answers["ids"][:PROMPT]], tokens)
    for _ in range(4):
        mx.eval(answer.take())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.dot")
        token = answer.take()
        mx.export_to_dot(str(path), token)
        names = Counter(NODE.findall(path.read_text(encoding="utf-8")))
        mx.eval(token)
    times: list[float] = []
    for _ in range(tokens):
        began = time.thread_time_ns()
        token = answer.take()
        mx.async_eval(token)
        times.append((time.thread_time_ns() - began) / 1e3)
        mx.eval(token)
        answer.memory.evaluate()
    layers = len(model.described.layout)
    return Cost(layers, sum(names.values()), statistics.median(times), answer.end, names)


def _packable(_path: str, module: Any) -> bool:
    return type(module) in (nn.Linear, nn.Embedding, SwitchLinear) and module.weight.shape[-1] % GROUP == 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wanted", nargs="*", metavar="NAME")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--against", type=Path)
    args = parser.parse_args()
    before = _earlier(args.against)
    with ops.using("cpu"):
        first = cost(FIRST, args.tokens)
        print(
            "| | layers | nodes | end | thread |"
            + (" nodes before | thread now / before |" if before else "")
        )
        print("|---|---|---|---|---|" + ("---|---|" if before else ""))
        for name in args.wanted or Reference.names():
            one = cost(name, args.tokens)
            ratio, line = one.us / first.us, [name, one.layers, one.nodes, "yes" if one.end else "no"]
            line.append(f"{ratio:.2f}")
            if name in before:
                line += [before[name][0], f"{ratio / before[name][1]:.2f}"]
            print("| " + " | ".join(map(str, line)) + " |", flush=True)
            if args.names:
                print("  " + ", ".join(f"{count} {kind}" for kind, count in one.names.most_common()))


def _earlier(path: Path | None) -> dict[str, tuple[int, float]]:
    """Nodes and ratio, by name."""
    found: dict[str, tuple[int, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path else []:
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) >= 5 and cells[2].isdigit():
            found[cells[0]] = int(cells[2]), float(cells[4])
    return found


if __name__ == "__main__":
    main()
