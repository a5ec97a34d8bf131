"""Layers of a trunk that attend and feed forward, many as one node.

A layer says what it consists of (`stated`, of `runtime.nn.block`). Layers side by side that kernels know make
a run, which is known again for as long as nobody puts other weights into them. The last of a trunk's layers
is a run of its own, in two nodes: whoever reads a prompt wants memory alone, and nothing that comes behind.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from runtime.cpu.native.folds import folding
from runtime.cpu.native.sublayers import asking, attending, feeding, memory_of, table_of
from runtime.cpu.native.watched import made_once
from runtime.cpu.stated import Asks, Attends, Feeds, Folds
from runtime.records import dataclass
from runtime.step import Step

MOST = 16
"""Layers of a run. Each output of a node knows all of its inputs and outputs; a layer has two or more."""

Said = tuple[Attends | Folds | Feeds | Asks, ...]
"""A layer's sublayers; of those that remember it has one at most, since it has one memory."""


@dataclass(slots=True, frozen=True, eq=False)
class Run:
    """Layers side by side that say what they consist of."""

    first: int
    said: list[Said]
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
            y = _through(kernels, run, x, step, its)
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


def _through(kernels: Any, run: Run, x: mx.array, step: Step, caches: Sequence[Any]) -> mx.array | None:
    """None: not as one node."""
    links: list[tuple[Any, Any, Any]] = []  # those that remember, their caches, and what these open
    for said, cache in zip(run.said, caches, strict=True):
        by = remembering(said)
        if by is not None:
            opened = cache.open(step) if isinstance(by, Attends) else cache.before(step)
            if opened is None:
                return None
            links.append((by, cache, opened))
    if not links:
        return None
    kept = [opened.kept for _, _, opened in links]
    found = kept[0].made.get("run")
    if found is None or found[0] is not run or found[1] != kept:
        found = kept[0].made["run"] = run, kept, _chains(kernels, run, kept)
    chains = found[2]
    if chains is None:
        return None
    ropes = {by.heads.rope for by, _, _ in links if isinstance(by, Attends)}
    tables = {rope: table_of(kernels, rope, step) for rope in ropes}
    memories = [
        memory_of(tables[by.heads.rope], opened) if isinstance(by, Attends) else (opened.arrays, opened.again)
        for by, _, opened in links
    ]
    y, *written = chains[0](x, step.starts, step.counts, step.first, memories)
    at = 0
    for by, cache, opened in links:
        own = written[at : at + len(opened.arrays)]
        at += len(own)
        if isinstance(by, Attends):
            cache.close(step, opened, own)
        elif opened.again:
            products = written[at : at + len(by.opening)]
            at += len(products)
            cache.folded(step, by.scan, by.scanned(products), own)
        else:
            cache.folded(step, by.scan, None, own)
    return y if len(chains) == 1 else chains[1](y)[0]


def remembering(said: Said) -> Attends | Folds | None:
    """The sublayer that has the layer's memory."""
    return next((one for one in said if isinstance(one, Attends | Folds)), None)


def _chains(kernels: Any, run: Run, memory: list[Any]) -> list[Any] | None:
    kept, parts = iter(memory), []
    for said in run.said:
        parts += [_part(kernels, one, kept) for one in said]
    if None in parts:
        return None
    apart = run.last and len(parts) > 1
    if apart and run.said[-1][-1].beside:
        return None  # its sublayers cannot be parted
    return [kernels.Chain(part) for part in ([parts[:-1], parts[-1:]] if apart else [parts])]


def _part(kernels: Any, said: Attends | Folds | Feeds | Asks, kept: Iterator[Any]) -> Any:
    """kept: of the memories of those that remember, in order."""
    match said:
        case Attends():
            return attending(kernels, next(kept), said)
        case Folds():
            next(kept)
            return folding(kernels, said)
        case Feeds():
            return feeding(kernels, said)
        case Asks():
            return asking(kernels, said)
