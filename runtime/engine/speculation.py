"""Which drafter proposes next and how far, learned from what rounds cost and what was accepted.

Several drafters may stand by (a draft model, prompt lookup); each has a depth controller per size of batch,
since both cost and gain depend on how many rows share a round. The most promising one is asked first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from runtime.speculate.depth import DepthController
from runtime.speculate.drafter import Drafter, Proposal, Rows
from runtime.step import Step

Judged = list[tuple[int, int]]
"""Per row: drafts judged, drafts accepted."""


@dataclass(frozen=True, slots=True)
class Round:
    """A proposal to verify, and who made it."""

    drafter: str
    depth: int
    proposal: Proposal


@dataclass(slots=True)
class _Open:
    """The step that runs now; its cost is known when the next one begins."""

    drafter: str | None
    depth: int
    rows: int
    began_s: float
    judged: Judged
    shared: bool  # with other work, so that its time says nothing


class Speculation:
    """Drafters by name, in order of preference where nothing is known yet."""

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        self.drafters = dict(drafters)
        self._controllers: dict[tuple[str, int], DepthController] = {}
        self._open: _Open | None = None

    def propose(self, rows: Rows, limits: Sequence[int]) -> Round | None:
        """The next round, or None for a plain step. limits: the most drafts that each row can use."""
        if not self.wanted(len(rows)) or max(limits) < 1:
            return None
        for name in self._ranked(len(rows)):
            controller = self._controller(name, len(rows))
            depth = min(controller.choose(), max(limits))
            if depth == 0:
                continue
            proposal = self.drafters[name].propose(rows, depth)
            if proposal is not None:
                counts = tuple(min(pair) for pair in zip(proposal.counts, limits, strict=True))
                if any(counts):
                    return Round(name, depth, Proposal(proposal.tokens, counts))
            # Asking in vain is a miss: a drafter that rarely knows anything is not asked at every step.
            controller.record(depth, [(1, 0)], None)
        return None

    def wanted(self, rows: int) -> bool:
        """Might any drafter be asked at the next step? If not, the engine need not read tokens back first."""
        return any(self._controller(name, rows).next_depth() > 0 for name in self.drafters)

    def begin(self, now_s: float, drafter: str | None, depth: int, rows: int, *, shared: bool) -> None:
        """A step begins; the one before is over and its cost known."""
        self.end(now_s)
        self._open = _Open(drafter, depth, rows, now_s, [], shared)

    def judge(self, judged: Judged) -> None:
        """What became of the drafts of the step that runs."""
        assert self._open is not None
        self._open.judged = judged

    def end(self, now_s: float | None) -> None:
        """The step is over; None when what followed it was no step, so that its cost stays unknown."""
        done, self._open = self._open, None
        if done is None:
            return
        seconds = None if now_s is None or done.shared else now_s - done.began_s
        for name in [done.drafter] if done.drafter else list(self.drafters):
            self._controller(name, done.rows).record(done.depth, done.judged, seconds)

    def observe(self, step: Step, tokens: mx.array, hidden: mx.array, kept: Sequence[int]) -> None:
        for drafter in self.drafters.values():
            drafter.observe(step, tokens, hidden, kept)

    def settle(self, lengths: Sequence[int]) -> None:
        for drafter in self.drafters.values():
            drafter.settle(lengths)

    def move(self, src: int, dst: int) -> None:
        for drafter in self.drafters.values():
            drafter.move(src, dst)

    def clear(self, row: int) -> None:
        for drafter in self.drafters.values():
            drafter.clear(row)

    def resize(self, rows: int) -> None:
        for drafter in self.drafters.values():
            drafter.resize(rows)

    def _ranked(self, rows: int) -> list[str]:
        return sorted(self.drafters, key=lambda name: -(self._controller(name, rows).promise() or 0.0))

    def _controller(self, name: str, rows: int) -> DepthController:
        key = (name, 1 << (rows - 1).bit_length())
        if key not in self._controllers:
            self._controllers[key] = DepthController(self.drafters[name].limit)
        return self._controllers[key]
