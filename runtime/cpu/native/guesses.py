"""A small decoder in one node, from ids to ids: the tokens that a draft model proposes, and those that a
target draws behind each of them.

Taken step by step, each token of a small network costs the host as much as the kernels, or more. So a network
all of whose layers make one run (`layers`) goes through its steps without coming back. One that folds goes
through a step so, but not through drafts: what is folded cannot be taken back.
"""

from collections.abc import Callable, Sequence
from typing import Any

from runtime.cache.protocol import by_layer
from runtime.cpu.native.draws import biases_of, draws_of
from runtime.cpu.native.layers import Run, chains_of, close, known_runs, memories_of, opened_of
from runtime.cpu.native.module_cache import made_once
from runtime.cpu.native.penalties import penalties_of
from runtime.cpu.native.products import matrix_of
from runtime.cpu.native.sublayers import norm_of, table_of
from runtime.parts.attention import AttentionParts, LatentAttentionParts
from runtime.parts.decoder import DecoderParts
from runtime.parts.draws import GuessParams, NextTokens
from runtime.step import Step

_IN_PARTS = "_in_parts"
"""Noted beside a network's first layer: its layers are not one whole run."""


def guess(kernels: Any) -> Callable[..., NextTokens | None]:
    """As `runtime.nn.operations.signatures.Operations` has it."""

    def guess(
        network: DecoderParts, step: Step, count: int | None, caches: Sequence[Any], by: GuessParams
    ) -> NextTokens | None:
        draws = None if by.draws is None else draws_of(kernels, by.draws)
        if step.adapters is not None or step.moved or (by.draws is not None and draws is None):
            return None
        whole = _whole(kernels, network.layers)
        ends = _ends_of(kernels, network)
        if whole is None or ends is None:
            return None
        if (each := network.memories) > 1:
            caches = by_layer(caches, each)
        more = 0 if count is None else count - 1
        written = _lengthened(step, more) if more else step
        opened = _opened(whole, written, caches, count)
        if opened is None:
            return None
        chains = chains_of(kernels, whole, opened)
        if chains is None:
            return None
        tables = {rope: table_of(kernels, rope, step) for rope in whole.ropes}
        drawn, *others = kernels.guess(
            chains[0],
            ends,
            step.ids,
            step.starts,
            step.counts,
            step.first,
            count or 0,
            memories_of(whole, opened, tables, step),
            _tables_behind(kernels, whole, _behind(step, more)) if more else [],
            by.ids or 0,
            draws,
            by.positions,
            by.looks,
            None if by.penalised is None else penalties_of(kernels, *by.penalised),
            None if by.biased is None else biases_of(kernels, by.biased),
        )
        broken = others.pop(0) if by.looks else None
        close(whole, written, caches, opened, others)
        return NextTokens(drawn, broken)

    return guess


def _whole(kernels: Any, layers: Sequence[Any]) -> Run | None:
    """All layers as one run. Where they are none, which other weights do not change, they are looked through
    once.
    """
    noted = vars(layers[0])
    if _IN_PARTS in noted:
        return None
    runs = known_runs(kernels, layers, whole=True)
    if len(runs) == 1 and len(runs[0].layers) == len(layers):
        return runs[0]
    noted[_IN_PARTS] = True
    return None


def _attending(run: Run) -> list[AttentionParts | LatentAttentionParts]:
    return [one.by for one in run.memories if isinstance(one.by, AttentionParts | LatentAttentionParts)]


def _opened(run: Run, step: Step, caches: Sequence[Any], count: int | None) -> list[Any] | None:
    """What is remembered before the step; None where it cannot be gone through without coming back. step: all
    that is written; count: as of `guess`.
    """
    attending = _attending(run)
    if count is not None and len(attending) < len(run.memories):
        return None
    opened = opened_of(run, step, caches)
    if not opened or not all(getattr(one, "fits", True) for one in opened):
        return None
    if (
        count is not None
        and count > 1
        and any(one.factors and one.factors(step) is not None for one in attending)
    ):
        return None
    return opened


def _tables_behind(kernels: Any, run: Run, behind: Step) -> list[Any]:
    """What heads are turned by at the places of tokens behind a step's own, for each that attends."""
    tables = {rope: table_of(kernels, rope, behind) for rope in run.ropes}
    return [tables[one.heads.rope] for one in _attending(run)]


def _ends_of(kernels: Any, network: DecoderParts) -> Any:
    """The kernels' view of what stands before and behind the layers; None where they have none."""

    def make() -> Any:
        table, head = (matrix_of(kernels, module) for module in (network.table, network.head))
        norm = norm_of(kernels, network.norm) if hasattr(network.norm, "centred") else None
        if None in (table, norm, head) or "order" in network.head:  # what it is asked for stands otherwise
            return None
        scale = 1.0 if network.scale is None else network.scale
        return kernels.Ends(table, scale, norm, head, network.times, network.softcap or 0.0)

    modules = network.table, network.norm, network.head
    return made_once(kernels, vars(network.table), f"_ends {network.scale} {network.times}", modules, make)


def _lengthened(step: Step, more: int) -> Step:
    """With as many tokens more of each row, whose ids are not known."""
    return Step(step.starts, tuple(count + more for count in step.counts), step.first, step.long)


def _behind(step: Step, count: int) -> Step:
    """The tokens behind those of the step."""
    starts = tuple(start + own for start, own in zip(step.starts, step.counts, strict=True))
    return Step(starts, (count,) * len(starts), step.first, step.long)
