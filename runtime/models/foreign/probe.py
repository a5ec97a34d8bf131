"""What a model class of mlx-lm remembers, found by calling it without weights.

Arrays are lazy: an unevaluated instance called on a few tokens tells the shapes of all that it writes, and
nothing is computed or allocated. So a layout is known before a weight is read, as for architectures of our
own. What layer memory cannot carry is refused here by name: cache classes other than KVCache and
RotatingKVCache, layers that write twice in a step, masks wider than what is kept.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, Rotating
from runtime.errors import NotSupported, UnsupportedModel
from runtime.models.foreign.caches import Attention
from runtime.models.foreign.network import ForeignNetwork, Form
from runtime.models.foreign.trunk import From, Reached, Until, put_in
from runtime.records import dataclass
from runtime.step import Adapters, Inputs, Step

_FIRST, _NEXT = Step((0,), (3,)), Step((3,), (1,))
_SIDE_BY_SIDE = (Step((0, 0), (3, 3)), Step((3, 3), (1, 1)))
_UNLIKE = (Step((5, 2), (3, 3)), Step((5, 2), (1, 1)))
_DEEPEST = 3  # names that lead to a trunk


@dataclass(frozen=True, slots=True)
class Found:
    form: Form
    vocab_size: int
    hidden_size: int


def look_at(model: nn.Module, *, ragged: bool) -> Found:
    """`model`: an instance with unevaluated weights, not to be used afterwards. Raises UnsupportedModel.

    ragged: whether the class takes rows at different positions.
    """
    windows = _windows_of(model)
    look = _Look(model.eval(), windows)
    first, later = look.run(_FIRST), look.run(_NEXT)
    for step in (*_SIDE_BY_SIDE, *(_UNLIKE if ragged else ())):
        look.run(step)
    specs = tuple(_spec(*one) for one in zip(range(len(windows)), windows, first, later, strict=True))
    trunk, hidden_size, vocab_size = look.find_trunk()
    return Found(Form(specs, trunk, ragged), vocab_size, hidden_size)


def check_adapters(network: ForeignNetwork, adapters: Adapters) -> None:
    """Raises NotSupported where the class does not ask what the adapters of two rows change in a way that
    rows can be told apart in. Nothing is computed.
    """
    windows = [spec.window if isinstance(spec, Rotating) else None for spec in network.specs]
    for first in _SIDE_BY_SIDE:
        ids = mx.zeros((len(first.starts), first.width), mx.int32)
        step = Step(first.starts, first.counts, inputs=Inputs(ids), adapters=adapters)
        unasked = network.unasked(step, [_Keys(step, window) for window in windows])
        if unasked:
            raise NotSupported(f"mlx-lm's class does not ask {unasked[0]} as a layer")


def _windows_of(model: Any) -> list[int | None]:
    """For each layer the window of its cache, None for one that keeps everything."""
    if not hasattr(model, "make_cache"):  # as mlx-lm's make_prompt_cache
        return [None] * len(model.layers)
    windows: list[int | None] = []
    for cache in model.make_cache():
        name = type(cache).__name__
        if name == "RotatingKVCache" and cache.keep == 0:
            windows.append(cache.max_size)
        elif name == "KVCache":
            windows.append(None)
        else:
            raise UnsupportedModel(f"its layers keep a {name}, which is not known here")
    return windows


class _Shapes:
    """Attention memory in shapes only."""

    def __init__(self, window: int | None) -> None:
        self._window = window

    def append(self, step: Step, keys: mx.array, values: mx.array) -> Any:
        rows, heads, width, _ = keys.shape
        if (rows, width) != (len(step.starts), step.width) or values.shape[:3] != keys.shape[:3]:
            raise NotSupported(f"keys {keys.shape} and values {values.shape} for {step.width} tokens")
        start = max(step.starts)
        held = width + (start if self._window is None else min(start, self._window - 1))
        seen = (mx.zeros((rows, heads, held, part.shape[-1]), part.dtype) for part in (keys, values))
        return (*seen, mx.ones((rows, 1, width, held), mx.bool_))


class _Keys(Attention):
    """Refuses masks that show more than is kept, and tells what was written."""

    def __init__(self, step: Step, window: int | None) -> None:
        super().__init__(_Shapes(window), Full(1, 1) if window is None else Rotating(1, 1, window), step)

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None, **_: Any) -> Any:
        if window_size is not None and self._window is not None and window_size > self._window:
            raise UnsupportedModel(f"its masks show {window_size} tokens, and it keeps {self._window}")
        return super().make_mask(N, return_array, window_size)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(heads, head size) of keys and values, [] where nothing was written."""
        return [(part.shape[1], part.shape[3]) for part in self.given or ()]


class _Whole(Until):
    """Goes on unless all memory is used inside."""

    def __init__(self, watches: Sequence[_Keys]) -> None:
        self._watches = watches

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        untouched = not any(watch.given for watch in self._watches)
        given = self.trunk(*args, **kwargs)
        if untouched and all(watch.given for watch in self._watches):
            raise Reached(given)
        return given


class _Look:
    """Calls of one model, in shapes."""

    def __init__(self, model: nn.Module, windows: Sequence[int | None]) -> None:
        self._model = model
        self._windows = windows

    def run(self, step: Step) -> list[_Keys]:
        """Watches after the step."""
        watches = self._watches(step)
        tokens = mx.zeros((len(step.starts), step.width), mx.int32)
        logits = self._model(tokens, cache=watches)
        if not isinstance(logits, mx.array) or logits.shape[:-1] != tokens.shape:
            raise UnsupportedModel("it gives something else than logits for each token")
        return watches

    def find_trunk(self) -> tuple[tuple[str, ...], int, int]:
        """The path of the deepest module that runs all layers, the size of what it gives, and of logits."""
        found: tuple[str, ...] = ()
        tokens = mx.zeros((1, _FIRST.width), mx.int32)
        vocab_size = hidden_size = self._model(tokens, cache=self._watches(_FIRST)).shape[-1]
        for path in _paths(self._model):
            size = self._size_after(path, tokens, vocab_size)
            if size is not None and len(path) > len(found):
                found, hidden_size = path, size
        return found, hidden_size, vocab_size

    def _size_after(self, path: tuple[str, ...], tokens: mx.array, vocab_size: int) -> int | None:
        """The size of hidden states if the model can be cut there, all memory before and logits after."""
        watches = self._watches(_FIRST)
        try:
            put_in(self._model, path, _Whole(watches))(tokens, cache=watches)
        except Reached as reached:
            hidden = reached.hidden
        except Exception:  # noqa: BLE001 -- a class of somebody else's may fail in any way
            return None
        else:
            return None
        if not isinstance(hidden, mx.array) or hidden.shape[:-1] != tokens.shape:
            return None
        try:
            logits = put_in(self._model, path, From(hidden))(None, cache=None)
        except Exception:  # noqa: BLE001 -- what needs the tokens cannot begin after the trunk
            return None
        return hidden.shape[-1] if logits.shape == (*tokens.shape, vocab_size) else None

    def _watches(self, step: Step) -> list[_Keys]:
        return [_Keys(step, window) for window in self._windows]


def _paths(module: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Names of modules inside, outer ones first; lists are layers, of which none is all."""
    for name, child in module.items():
        if isinstance(child, nn.Module):
            yield (*path, name)
            if len(path) + 1 < _DEEPEST:
                yield from _paths(child, (*path, name))


def _spec(place: int, window: int | None, first: _Keys, later: _Keys) -> Full | Rotating:
    """What a layer keeps, which must not depend on how many tokens a step has."""
    if not first.shapes or first.shapes != later.shapes:
        once, then = first.shapes or "nothing", later.shapes or "nothing"
        raise UnsupportedModel(f"layer {place} writes {once} in one step and {then} in another")
    (heads, head_dim), (_, value_dim) = first.shapes
    values = None if value_dim == head_dim else value_dim
    return Full(heads, head_dim, values) if window is None else Rotating(heads, head_dim, window, values)
