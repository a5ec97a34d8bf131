"""Layers of a trunk that attend and feed forward, many as one node.

A layer says what it consists of (`stated`, of `runtime.nn.block`). Layers side by side that kernels know make
a run, which is known again for as long as nobody puts other weights into them. The last of a trunk's layers
is a run of its own, in two nodes: whoever reads a prompt wants memory alone, and nothing that comes behind.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.lanes import Kept, Lanes
from runtime.cpu.native.sublayers import asking, attending, feeding, memory_of, table_of
from runtime.cpu.native.watched import made_once
from runtime.cpu.stated import Asks, Attends, Feeds
from runtime.records import dataclass
from runtime.step import Step

MOST = 16
"""Layers of a run. Each output of a node knows all of its inputs and outputs; a layer has two or more."""


@dataclass(slots=True, frozen=True, eq=False)
class Run:
    """Layers side by side that say what they consist of."""

    first: int
    said: list[tuple[Attends, Feeds | Asks]]
    """Of each layer its two sublayers."""
    last: bool
    """It is the trunk's last layer."""


def running(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """The operation `layers`."""

    def layers(layers: Sequence[Any], x: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        if step.adapters is not None or x.dtype != mx.float32 or not layers:
            return otherwise(layers, x, step, caches)
        at = 0
        for run in made_once(kernels, vars(layers[0]), "_runs", layers, runs_of, layers):
            x = otherwise(layers[at : run.first], x, step, caches[at : run.first])
            at = run.first + len(run.said)
            its = caches[run.first : at]
            lanes = [cache.open(step) for cache in its]
            y = _through(kernels, run, x, step, its, lanes)
            x = otherwise(layers[run.first : at], x, step, its) if y is None else y
        return otherwise(layers[at:], x, step, caches[at:])

    return layers


def runs_of(layers: Sequence[Any]) -> list[Run]:
    runs: list[Run] = []
    for place, layer in enumerate(layers):
        said = layer.stated() if hasattr(layer, "stated") else None
        if said is None:
            continue
        run, last = runs[-1] if runs else None, place == len(layers) - 1
        if run is None or last or run.first + len(run.said) < place or len(run.said) == MOST:
            runs.append(Run(place, [said], last))
        else:
            run.said.append(said)
    return runs


def _through(
    kernels: Any, run: Run, x: mx.array, step: Step, caches: Sequence[Any], lanes: list[Lanes | None]
) -> mx.array | None:
    """None: not as one node."""
    opened = [one for one in lanes if one is not None]
    if len(opened) < len(lanes):
        return None
    kept = [one.kept for one in opened]
    found = kept[0].made.get("run")
    if found is None or found[0] is not run or found[1] != kept:
        found = kept[0].made["run"] = run, kept, _chains(kernels, run, kept)
    chains = found[2]
    if chains is None:
        return None
    ropes = [attends.heads.rope for attends, _ in run.said]
    tables = {rope: table_of(kernels, rope, step) for rope in set(ropes)}
    memories = [memory_of(tables[rope], one) for rope, one in zip(ropes, opened, strict=True)]
    y, *written = chains[0](x, step.starts, step.counts, step.first, memories)
    at = 0
    for cache, one in zip(caches, opened, strict=True):
        parts = len(one.arrays)
        cache.close(step, one, written[at : at + parts])
        at += parts
    return y if len(chains) == 1 else chains[1](y)[0]


def _chains(kernels: Any, run: Run, memory: list[Kept]) -> list[Any] | None:
    parts: list[Any] = []
    for (attends, said), kept in zip(run.said, memory, strict=True):
        parts += attending(kernels, kept, attends), _adding(kernels, said)
    if None in parts:
        return None
    return [kernels.Chain(part) for part in ([parts[:-1], parts[-1:]] if run.last else [parts])]


def _adding(kernels: Any, said: Feeds | Asks) -> Any:
    """What stands behind the sublayer that attends."""
    return asking(kernels, said) if isinstance(said, Asks) else feeding(kernels, said)
