"""What every layer memory can do, whatever its kind: the contract between models, engine and prefix store.

A cache holds rows 0..rows-1. A forward pass is one `Step`: a contiguous range of rows, each with new tokens
that begin exactly at the row's length. Models write through `append` (attention) or `scan` (recurrent);
everything else is the engine's.

Invariants that every kind keeps, and that the contract suite in tests/runtime/cache checks:

- A row's length changes in `commit`, `restore`, `remove`, `move` and `clear` only. A step that is
  never committed never happened: a failed or cancelled forward needs no clean-up.
- `commit(step, kept)` leaves the row as if only its first kept[b] tokens had ever been offered.
- What a step is given and what it computes does not depend on how earlier tokens were cut into steps, on
  other rows, or on what rows held before they were cleared.
- A snapshot is independent of later writes.
- An operation that raises (CacheFull, NotSupported) has changed nothing that a caller can see.
- Nothing outside a cache keeps a view of its buffers beyond the evaluation that uses it: one live view
  turns the next in-place write into a copy of the whole buffer.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, cast

import mlx.core as mx

from runtime.cache.lanes import Lanes, StepStates
from runtime.cache.snapshot import Snapshot
from runtime.step import Step

Mask = mx.array | Literal["causal"] | None
"""Which keys a query sees. None: all of them. "causal": query i of L sees keys up to K - L + i.
Array: bool [B or 1, 1, L or 1, K], True where it sees."""

View = tuple[mx.array, mx.array | None, Mask]
"""keys [B, H, K, Dk], values [B, H, K, Dv] (None where values are part of the keys), mask."""

Rotate = Callable[[mx.array, int], mx.array]
"""rotate(keys [1, H, n, Dk], shift): the same keys as if each had been `shift` positions later."""


class LayerCache(Protocol):
    """The memory of one layer, for all rows."""

    @property
    def rows(self) -> int: ...

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens each row holds, that is, the position of its next token."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of the live buffers, spare room included."""
        ...

    @property
    def arrays(self) -> list[mx.array]:
        """The live buffers, to evaluate them. Do not keep the list."""
        ...

    def commit(self, step: Step, kept: Sequence[int]) -> None:
        """End the step: row b keeps its first kept[b] tokens, 0 <= kept[b] <= step.counts[b].

        Recurrent kinds raise NotSupported for a partial `kept` of a step wider than their slack.
        """
        ...

    def can_resume(self, row: int, length: int) -> bool:
        """Could the row go back to `length` tokens, with what it holds now? To 0 always."""
        ...

    def mark(self, row: int) -> Snapshot | None:
        """What it takes to come back here after a few steps more, where lowering the row's length may not do;
        None where it always does.
        """
        ...

    def snapshot(self, row: int, start: int) -> Snapshot:
        """What the row holds of [start, length), 0 <= start < length, as copies.

        The copies may still be lazy. Evaluate them before the next step, all layers in one go; unevaluated
        they stay right, but the next in-place write has to copy its buffer.
        """
        ...

    def restore(self, row: int, snapshots: Sequence[Snapshot], stop: int | None = None) -> None:
        """Put the row at `stop`, by default snapshots[-1].stop; whatever it held before is forgotten.

        `snapshots` follow each other in order of position. NotSupported when they do not suffice;
        `runtime.cache.snapshot.resumable` tells beforehand.
        """
        ...

    def row_copies(self, row: int) -> tuple[mx.array, ...]:
        """Copies of what the row holds, as `move` wants them: evaluated, all layers in one go. A write that
        is made before the copies are finds its buffer in use, and copies all of it.
        """
        ...

    def move(self, src: int, dst: int, copies: tuple[mx.array, ...]) -> None:
        """Row `dst` becomes what row `src` was, by these copies of that; `src` is cleared."""
        ...

    def clear(self, row: int) -> None: ...

    def can_remove(self, row: int, start: int, stop: int) -> bool:
        """Would `remove`, with a `rotate`, succeed?"""
        ...

    def remove(self, row: int, start: int, stop: int, rotate: Rotate | None = None) -> None:
        """Forget the tokens [start, stop); later tokens move to lower positions, their keys re-rotated.

        A cut that reaches the row's end needs no `rotate`. NotSupported where the kind cannot.
        """
        ...

    def resize(self, rows: int, *, exact: bool = False) -> None:
        """Hold `rows` rows: new ones empty, surplus ones dropped from the end. `exact`: none spare."""
        ...

    @property
    def room(self) -> int:
        """The longest row, in tokens, that takes no more memory than there is."""
        ...

    def wanted_bytes(self, tokens: int, rows: int, *, exact: bool = False) -> int:
        """What `nbytes` would be with room for `rows` rows of `tokens` tokens; `exact`: no more."""
        ...

    def reserve(self, tokens: int, *, exact: bool = False) -> None:
        """Make room for rows of `tokens` tokens. CacheFull when the budget does not allow it."""
        ...


class AttentionCache(Protocol):
    """What attention layers call."""

    def append(self, step: Step, keys: mx.array, values: mx.array | None) -> View:
        """Write keys [B, H, L, Dk] and values [B, H, L, Dv]; return all that the step may see."""
        ...

    def view(self, step: Step) -> View:
        """What the step's queries may see, without writing: for layers that share, and for drafters.

        After `append` of the same step: the same again. For a step that appends nothing: its queries stand
        at positions [start, start + count), all of which the row already holds.
        """
        ...

    def open(self, step: Step) -> Lanes | None:
        """For kernels, in place of `append`: where the step's tokens are to be written. The answer goes to
        `close`, and nothing is between the two. None: what this memory holds lies in no lanes.
        """
        ...

    def close(self, step: Step, lanes: Lanes, arrays: list[mx.array]) -> None:
        """The tokens are written: these are the lanes now, or what lies beside them where it did
        not fit.
        """
        ...

    def lanes(self, step: Step) -> Lanes | None:
        """For kernels, in place of `view`: where that lies which the step's queries may see."""
        ...


Scanned = tuple[mx.array, dict[str, mx.array]]

ScanFunction = Callable[..., Scanned]
"""fn(states, *inputs, counts=counts): one recurrent layer over the tokens of a step.

Pure: it may be called again on a shorter prefix. states: name -> [B, *shape], before the step. inputs:
[B, L, ...]. counts: int32 [B], how many tokens of each row are real, possibly 0: its state must stop changing
after them; None means that all L are. Returns outputs [B, L, ...] and the states after each row's last real
token: not as views of something that grows with L (`snapshot.detached`), which they would keep alive."""


class ScanningCache(Protocol):
    """What recurrent layers call."""

    def scan(self, step: Step, fn: ScanFunction, *inputs: mx.array) -> mx.array:
        """Run `fn` from the rows' states over the step's inputs; keep the new states for `commit`."""
        ...

    def before(self, step: Step) -> StepStates | None:
        """For kernels, in place of `scan`: the states that the step begins with. `folded` follows, and
        nothing is between the two. None: they are not all float32.
        """
        ...

    def folded(
        self, step: Step, fn: ScanFunction, inputs: Sequence[mx.array] | None, after: Sequence[mx.array]
    ) -> None:
        """The states behind the step, in the same order. inputs: what `fn` takes, where a part of the step
        may be kept.
        """
        ...


class PoolingCache(Protocol):
    """What layers call that make a vector of so many tokens."""

    def pool(self, step: Step, made: mx.array) -> mx.array:
        """made [B, 1, n, D]: the vectors of the groups that the step ends, n of the row that ends most.
        Returns all that there are then, [B, 1, K, D]; a row with fewer has others' leavings behind its own.
        """
        ...


class EncodedCache(AttentionCache, Protocol):
    """What layers call that attend to a source beside the tokens."""

    def filled(self, step: Step) -> tuple[bool, ...]:
        """Which rows of the step hold a source."""
        ...


class StepCache(EncodedCache, ScanningCache, PoolingCache, Protocol):
    """All that layers of any kind call during a step. Each calls what the kind in its layout has, no more."""


Caches = Sequence[AttentionCache | ScanningCache | PoolingCache | None]
"""One entry per layer of a layout, None where a layer remembers nothing."""


def by_layout(caches: Caches) -> Sequence[StepCache]:
    """The same caches, each taken for the kind that its layer calls.

    Which kind that is, a family says in its layout; no type can, as the layers of one list differ.
    """
    return cast("Sequence[StepCache]", caches)


def by_layer(caches: Caches, each: int) -> list[tuple[StepCache, ...]]:
    """The same for layers that have several, so many each, which follow each other in the layout."""
    own = by_layout(caches)
    return list(zip(*(own[at::each] for at in range(each)), strict=True))
