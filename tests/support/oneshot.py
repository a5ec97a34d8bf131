"""Memory that remembers nothing: one step from index 0 sees itself only. What layer memory is compared with.

The same calls as the real memories, without buffers, copies or commits.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.cache.lanes import Lanes
from runtime.cache.layout import (
    Chunked,
    Encoder,
    Full,
    LayerSpec,
    Pooled,
    Recurrent,
    Rotating,
    Shared,
    Stateless,
    donors,
)
from runtime.cache.protocol import ScanFunction, View
from runtime.cache.recurrent import zero_states
from runtime.cache.snapshot import Reach
from runtime.cache.visibility import visible_slots
from runtime.step import Step


class OneShot:
    """Of an attention layer. `view` repeats what the last `append` returned, for layers that share it."""

    def __init__(self, spec: Full | Rotating | Chunked | Encoder) -> None:
        self._reach = None if isinstance(spec, Encoder) else Reach.of(spec)
        self._last: View | None = None

    def append(self, step: Step, keys: mx.array, values: mx.array | None) -> View:
        assert not any(step.starts), "nothing is remembered: a step must begin at 0"
        mask = None if self._reach is None else visible_slots(step, self._reach, step.starts).mask
        self._last = keys, values, mask
        return self._last

    def view(self, step: Step) -> View:
        assert self._last is not None
        return self._last

    def open(self, step: Step) -> None:
        """What is given lies in no lanes."""

    def close(self, step: Step, lanes: Lanes, arrays: list[mx.array]) -> None:
        raise AssertionError("nothing was opened")

    def lanes(self, step: Step) -> None:
        """As `open`."""

    def filled(self, step: Step) -> tuple[bool, ...]:
        """Which rows were given something to attend to; all of them or none."""
        return (self._last is not None,) * len(step.starts)


class OneShotScan:
    """Of a recurrent layer: every step starts from zero."""

    def __init__(self, spec: Recurrent, *, dtype: mx.Dtype = mx.float32) -> None:
        self._spec = spec
        self._dtype = dtype

    def scan(self, step: Step, fn: ScanFunction, *inputs: mx.array) -> mx.array:
        assert not any(step.starts), "nothing is remembered: a step must begin at 0"
        level = min(step.counts) == step.width
        counts = None if level else mx.array(step.counts, dtype=mx.int32)
        return fn(zero_states(self._spec, len(step.starts), self._dtype), *inputs, counts=counts)[0]

    def before(self, step: Step) -> None:
        """Kernels may not fold at once: here they are called one by one."""

    def folded(
        self, step: Step, fn: ScanFunction, inputs: Sequence[mx.array] | None, after: Sequence[mx.array]
    ) -> None:
        raise AssertionError("nothing was begun")


class OneShotPool:
    """Of a layer that pools: there are those alone that the step makes."""

    def pool(self, step: Step, made: mx.array) -> mx.array:
        assert not any(step.starts), "nothing is remembered: a step must begin at 0"
        return made


def build_one_shot(
    layout: Sequence[LayerSpec], *, dtype: mx.Dtype = mx.float32
) -> list[OneShot | OneShotScan | OneShotPool | None]:
    """Memory that lasts one step, in the same places."""

    def build(spec: LayerSpec) -> OneShot | OneShotScan | OneShotPool | None:
        match spec:
            case Full() | Rotating() | Chunked() | Encoder():
                return OneShot(spec)
            case Recurrent():
                return OneShotScan(spec, dtype=dtype)
            case Pooled():
                return OneShotPool()
            case Shared() | Stateless():
                return None

    own = [build(spec) for spec in layout]
    return [own[donor] for donor in donors(layout)]
