"""The state of one recurrent layer: a fold over all tokens, one state per row whatever the length.

A fold cannot be run backwards. So a step leaves the old states where they are until `commit`: when all
tokens are kept the new states replace them, and when some are, the layer's own function is run again over
the kept ones.

Invariants: states are zero where nothing was read, and lie in pieces as steps take rows (`pieces`); the
inputs of a step are remembered until its commit, if it is at most `slack` wide; a stored state never shares
memory with the forward pass that made it, which would keep all activations of a prompt alive, though only
three of its rows are needed: that is the promise of who computes it (`ScanFunction`), since most do so
without a copy.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.lanes import StateTraits, StepStates
from runtime.cache.layout import SLACK, Recurrent
from runtime.cache.lengths import Lengths, rows_of
from runtime.cache.pieces import Pieces, States
from runtime.cache.protocol import Rotate, ScanFunction
from runtime.cache.snapshot import Checkpoint, Snapshot, find_checkpoint
from runtime.errors import NotSupported
from runtime.records import dataclass
from runtime.step import Step

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


@dataclass(frozen=True, slots=True)
class _Scan:
    """A step between `scan` and `commit`."""

    step: Step
    fn: ScanFunction
    inputs: tuple[mx.array, ...] | None
    """None: the step is too wide to be run again, or so narrow that no part of it can be kept."""
    after: States


class RecurrentCache(Lengths):
    """slack: the widest step of which a part can be kept."""

    def __init__(
        self,
        spec: Recurrent,
        *,
        rows: int = 1,
        dtype: mx.Dtype = mx.float32,
        slack: int = SLACK,
        budget: Budget | None = None,
    ) -> None:
        none = zero_states(spec, 1, dtype)
        self._row_bytes = sum(state.nbytes for state in none.values())
        self._dtypes = {name: state.dtype for name, state in none.items()}
        self._slack = slack
        self._budget = budget or Budget()
        self._scan: _Scan | None = None
        self._kept = StateTraits()
        super().__init__(0)
        self._spec, self._dtype = spec, dtype
        self._pieces = Pieces(self._zeros)
        self.resize(rows)

    @property
    def nbytes(self) -> int:
        return self._row_bytes * self.rows

    @property
    def arrays(self) -> list[mx.array]:
        return self._pieces.arrays

    def scan(self, step: Step, fn: ScanFunction, *inputs: mx.array) -> mx.array:
        assert tuple(self._lengths[rows_of(step)]) == step.starts, "a step must begin where its rows end"
        outputs, after = fn(self._before(step), *inputs, counts=_counts(step))
        self._scan = _Scan(step, fn, inputs if step.width <= self._slack else None, after)
        return outputs

    def before(self, step: Step) -> StepStates | None:
        assert tuple(self._lengths[rows_of(step)]) == step.starts, "a step must begin where its rows end"
        if any(dtype != mx.float32 for dtype in self._dtypes.values()):
            return None
        states, again = [*self._before(step).values()], 1 < step.width <= self._slack
        return StepStates(self._kept, states, again=again, own=self._pieces.own(rows_of(step)))

    def folded(
        self, step: Step, fn: ScanFunction, inputs: Sequence[mx.array] | None, after: Sequence[mx.array]
    ) -> None:
        states = dict(zip(self._dtypes, after, strict=True))
        self._scan = _Scan(step, fn, None if inputs is None else tuple(inputs), states)

    def commit(self, step: Step, kept: Sequence[int]) -> None:
        kept = tuple(kept)
        assert kept == step.counts or all(0 <= n <= of for n, of in zip(kept, step.counts, strict=True))
        if any(kept):
            assert self._scan is not None
            assert self._scan.step is step
            # The states kept are made first, as that may refuse; the live ones are then replaced.
            self._adopt(step, self._kept_states(self._scan, kept))
        self._scan = None
        for row, start, n in zip(step.rows, step.starts, kept, strict=True):
            self._lengths[row] = start + n

    def can_resume(self, row: int, length: int) -> bool:
        return length in (0, self._lengths[row])

    def mark(self, row: int) -> Checkpoint | None:
        return self.snapshot(row, 0) if self._lengths[row] else None

    def snapshot(self, row: int, start: int) -> Checkpoint:
        assert start < self._lengths[row]
        return Checkpoint(start, self._lengths[row], self.row_copies(row))

    def restore(self, row: int, snapshots: Sequence[Snapshot], stop: int | None = None) -> None:
        stop = snapshots[-1].stop if stop is None else stop
        page = find_checkpoint(snapshots, stop)
        if page is None and stop > 0:
            raise NotSupported(f"no page holds the state after {stop:,} tokens")
        self.clear(row)
        if page is not None:
            self._write(row, page.arrays)
        self._lengths[row] = stop

    def row_copies(self, row: int) -> tuple[mx.array, ...]:
        return tuple(self._pieces.row_copies(row).values())

    def clear(self, row: int) -> None:
        self._scan = None
        self._pieces.put(slice(row, row + 1), None)
        self._lengths[row] = 0

    def can_remove(self, row: int, start: int, stop: int) -> bool:
        return start == stop or (stop == self._lengths[row] and self.can_resume(row, start))

    def remove(self, row: int, start: int, stop: int, rotate: Rotate | None = None) -> None:
        if not self.can_remove(row, start, stop):
            raise NotSupported(f"the tokens [{start}, {stop}) cannot be taken out of a fold")
        if start < stop:
            self.clear(row)

    def resize(self, rows: int, *, exact: bool = False) -> None:
        self._budget.claim(self._row_bytes * rows - self.nbytes)
        self._scan = None
        self._resize_lengths(rows)
        self._pieces.resize(rows)

    def wanted_bytes(self, tokens: int, rows: int, *, exact: bool = False) -> int:
        return self._row_bytes * max(self.rows, rows)

    def _zeros(self, rows: int) -> States:
        return zero_states(self._spec, rows, self._dtype)

    def _fill_row(self, src: int, dst: int, copies: tuple[mx.array, ...]) -> None:
        self._write(dst, copies)

    def _write(self, row: int, arrays: Sequence[mx.array]) -> None:
        """arrays: [1, ...] each, in the order of the layout."""
        named = zip(self._dtypes.items(), arrays, strict=True)
        self._pieces.put(slice(row, row + 1), {name: array.astype(dtype) for (name, dtype), array in named})

    def _before(self, step: Step) -> States:
        return dict(self._pieces.of(rows_of(step)))

    def _kept_states(self, scan: _Scan, kept: tuple[int, ...]) -> States:
        """The states after kept[b] tokens: those computed, those before, or the fold over the kept ones."""
        step = scan.step
        if kept == step.counts:
            return scan.after
        before = self._before(step)
        partial = [n if 0 < n < count else 0 for n, count in zip(kept, step.counts, strict=True)]
        again = self._run_again(scan, before, partial) if any(partial) else before
        if all(partial):
            return again
        whole = mx.array([n == count for n, count in zip(kept, step.counts, strict=True)])
        return {name: mx.where(_over(whole, after), after, again[name]) for name, after in scan.after.items()}

    def _run_again(self, scan: _Scan, before: States, partial: list[int]) -> States:
        """Rows whose count is 0 come out as they were."""
        if scan.inputs is None:
            width = scan.step.width
            raise NotSupported(
                f"of {width:,} tokens all or none can be kept; some only up to {self._slack:,}"
            )
        width = max(partial)
        counts = None if min(partial) == width else mx.array(partial, dtype=mx.int32)
        return scan.fn(before, *(x[:, :width] for x in scan.inputs), counts=counts)[1]

    def _adopt(self, step: Step, states: States) -> None:
        new = {name: states[name].astype(dtype) for name, dtype in self._dtypes.items()}
        self._pieces.put(rows_of(step), new)


def zero_states(spec: Recurrent, rows: int, dtype: mx.Dtype) -> States:
    """The states of `rows` rows that have read nothing, [rows, *shape]."""
    return {
        name: mx.zeros((rows, *state.shape), DTYPES.get(state.dtype, dtype))
        for name, state in spec.states.items()
    }


def _counts(step: Step) -> mx.array | None:
    """Real tokens per row, int32 [B]; None when there is no padding."""
    if min(step.counts) == step.width:
        return None
    return step.memo("counts", lambda: mx.array(step.counts, dtype=mx.int32))


def _over(rows: mx.array, state: mx.array) -> mx.array:
    """bool [B] shaped to select whole rows of a state."""
    return rows.reshape(-1, *(1 for _ in state.shape[1:]))
