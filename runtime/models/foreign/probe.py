"""What a model class of mlx-lm remembers, found by calling it without weights.

Arrays are lazy: an unevaluated instance called on a few tokens tells the shapes of all that it writes, and
nothing is computed or allocated. So a layout is known before a weight is read, as for architectures of our
own. What layer memory cannot carry is refused here by name: cache classes that it has no kind for, layers
that write twice in a step, states that grow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path

from runtime.cache.layout import Full, LayerSpec, Recurrent, Rotating, State, Stateless
from runtime.errors import NotSupported, UnsupportedModel
from runtime.models.foreign.caches import Arrays, Attention
from runtime.models.foreign.network import Form, Group, arranged
from runtime.models.foreign.trunk import From, Reached, Until, put_in
from runtime.step import Step

_FIRST, _NEXT = Step((0,), (3,)), Step((3,), (1,))
_SIDE_BY_SIDE = (Step((0, 0), (3, 3)), Step((3, 3), (1, 1)))
_UNLIKE = (Step((5, 2), (3, 3)), Step((5, 2), (1, 1)))
_DEEPEST = 3  # names that lead to a trunk


@dataclass(frozen=True, slots=True)
class Found:
    """windows: the spans, in tokens, that layers look back over."""

    form: Form
    vocab_size: int
    hidden_size: int
    windows: frozenset[int]


def look_at(model: nn.Module, *, ragged: bool) -> Found:
    """`model`: an instance with unevaluated weights, of no use afterwards. Raises UnsupportedModel.

    ragged: whether rows at different positions are known to come out right, if the class takes them at all.
    """
    groups, kinds = _memory_of(model)
    look = _Look(model.eval(), groups, kinds)
    first = look.run(_FIRST)
    later = look.run(_NEXT, first)
    for step in _SIDE_BY_SIDE:
        look.run(step, first if any(step.starts) else None)
    shapes = [_steady(place, *pair) for place, pair in enumerate(zip(first, later, strict=True))]
    windows = frozenset(window for watch in (*first, *later) for window in watch.windows)
    ragged = ragged and look.takes_unlike_rows(first)
    trunk, hidden_size, vocab_size = look.find_trunk()
    narrow = look.narrowed()
    specs = tuple(_spec(*one) for one in zip(kinds, shapes, narrow, strict=True))
    return Found(Form(specs, groups, trunk, ragged), vocab_size, hidden_size, windows)


@dataclass(frozen=True, slots=True)
class _Kind:
    """One cache of mlx-lm: attention, with a window or without, or a list of `entries` states."""

    window: int | None = None
    entries: int = 0


def _memory_of(model: Any) -> tuple[tuple[Group, ...], list[_Kind]]:
    """What each layer is handed, and the caches that takes; mlx-lm's make_prompt_cache in two kinds."""
    kinds: list[_Kind] = []

    def place(cache: Any) -> Group:
        name = type(cache).__name__
        if name == "CacheList":
            return tuple(_single(place(one)) for one in cache.caches)
        if name == "RotatingKVCache" and cache.keep == 0:
            kinds.append(_Kind(window=cache.max_size))
        elif name == "ArraysCache":
            kinds.append(_Kind(entries=len(cache.cache)))
        elif name == "KVCache":
            kinds.append(_Kind())
        else:
            raise UnsupportedModel(f"its layers keep a {name}, which layer memory has no kind for")
        return len(kinds) - 1

    if hasattr(model, "make_cache"):
        return tuple(place(cache) for cache in model.make_cache()), kinds
    layers = len(model.layers)
    return tuple(range(layers)), [_Kind()] * layers


def _single(group: Group) -> int:
    if not isinstance(group, int):
        raise UnsupportedModel("its layers keep lists of lists of caches, which layer memory has no kind for")
    return group


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
    """Notes what masks were asked for, and whether keys are read apart from the layer that wrote them."""

    read_elsewhere = False

    def __init__(self, step: Step, window: int | None) -> None:
        super().__init__(_Shapes(window), Full(1, 1) if window is None else Rotating(1, 1, window), step)
        self.windows = set[int]() if window is None else {window}

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None, **_: Any) -> Any:
        if window_size is not None:
            self.windows.add(window_size)
            if self._window is not None and window_size > self._window:
                raise UnsupportedModel(f"its masks show {window_size} tokens, and it keeps {self._window}")
        return super().make_mask(N, return_array, window_size)

    def keys_and_values(self) -> Any:
        self.read_elsewhere = True
        return super().keys_and_values()

    @property
    def shapes(self) -> list[Any]:
        return [(part.shape[1], part.shape[3]) for part in self.given or ()]


class _Entries(Arrays):
    windows = frozenset[int]()

    @property
    def shapes(self) -> list[Any]:
        return [None if entry is None else entry.shape[1:] for entry in self.cache]


_Watch = _Keys | _Entries


class _Whole(Until):
    """Goes on unless all memory is used inside."""

    def __init__(self, watches: Sequence[_Watch]) -> None:
        self._watches = watches

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        untouched = not any(_touched(watch) for watch in self._watches)
        given = self.trunk(*args, **kwargs)
        if untouched and all(_touched(watch) for watch in self._watches):
            raise Reached(given)
        return given


class _Look:
    """Calls of one model, in shapes."""

    def __init__(self, model: nn.Module, groups: tuple[Group, ...], kinds: Sequence[_Kind]) -> None:
        self._model = model
        self._groups = groups
        self._kinds = kinds

    def run(self, step: Step, before: Sequence[_Watch] | None = None) -> list[_Watch]:
        """Watches after the step; `before`: those of the step before, where rows go on."""
        watches = self._watches(step, before)
        tokens = mx.zeros((len(step.starts), step.width), mx.int32)
        logits = self._model(tokens, cache=arranged(self._groups, watches))
        if not isinstance(logits, mx.array) or logits.shape[:-1] != tokens.shape:
            raise UnsupportedModel("it gives something else than logits for each token")
        return watches

    def takes_unlike_rows(self, before: Sequence[_Watch]) -> bool:
        """Whether rows may stand at different positions: three tokens of two rows fit nothing by chance.

        Layers that read keys which another wrote take the number of keys for the position.
        """
        if any(isinstance(watch, _Keys) and watch.read_elsewhere for watch in before):
            return False
        try:
            for step in _UNLIKE:
                self.run(step, before)
        except Exception:  # noqa: BLE001 -- a class of somebody else's may fail in any way
            return False
        return True

    def find_trunk(self) -> tuple[tuple[str, ...], int, int]:
        """The path of the deepest module that runs all layers, the size of what it gives, and of logits."""
        found: tuple[str, ...] = ()
        tokens = mx.zeros((1, _FIRST.width), mx.int32)
        caches = arranged(self._groups, self._watches(_FIRST))
        vocab_size = hidden_size = self._model(tokens, cache=caches).shape[-1]
        for path in _paths(self._model):
            size = self._size_after(path, tokens, vocab_size)
            if size is not None and len(path) > len(found):
                found, hidden_size = path, size
        return found, hidden_size, vocab_size

    def _size_after(self, path: tuple[str, ...], tokens: mx.array, vocab_size: int) -> int | None:
        """The size of hidden states if the model can be cut there, all memory before and logits after."""
        watches = self._watches(_FIRST)
        try:
            put_in(self._model, path, _Whole(watches))(tokens, cache=arranged(self._groups, watches))
        except Reached as reached:
            hidden = reached.hidden
        except Exception:  # noqa: BLE001 -- as above
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

    def narrowed(self) -> list[list[mx.Dtype]]:
        """The dtypes of states when weights are bfloat16: float32 for those that are kept wide."""
        castable = getattr(self._model, "cast_predicate", lambda _name: True)

        def narrow(name: str, array: mx.array) -> mx.array:
            wide = mx.issubdtype(array.dtype, mx.floating) and castable(name)
            return array.astype(mx.bfloat16) if wide else array

        self._model.update(tree_map_with_path(narrow, self._model.parameters()))
        return [
            [entry.dtype for entry in watch.cache if entry is not None] if isinstance(watch, _Entries) else []
            for watch in self.run(_FIRST)
        ]

    def _watches(self, step: Step, before: Sequence[_Watch] | None = None) -> list[_Watch]:
        rows = len(step.starts)
        return [
            _Keys(step, kind.window)
            if not kind.entries
            else _Entries(_entries(before[place], rows) if before else [None] * kind.entries)
            for place, kind in enumerate(self._kinds)
        ]


def _entries(watch: Any, rows: int) -> list[mx.array | None]:
    """One row's states for several rows."""
    return [None if entry is None else mx.repeat(entry[:1], rows, axis=0) for entry in watch.cache]


def _touched(watch: _Watch) -> bool:
    return any(shape is not None for shape in watch.shapes)


def _paths(module: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Names of modules inside, outer ones first; lists are layers, of which none is all."""
    for name, child in module.items():
        if isinstance(child, nn.Module):
            yield (*path, name)
            if len(path) + 1 < _DEEPEST:
                yield from _paths(child, (*path, name))


def _steady(place: int, first: _Watch, later: _Watch) -> list[Any]:
    """The shapes of one cache, which must not depend on how many tokens a step has."""
    if first.shapes != later.shapes or None in first.shapes:
        raise UnsupportedModel(
            f"its cache {place} changes its shapes between steps: {first.shapes}, then {later.shapes}"
        )
    return first.shapes


def _spec(kind: _Kind, shapes: list[Any], narrow: list[mx.Dtype]) -> LayerSpec:
    if kind.entries:
        return Recurrent({str(i): State(tuple(shape), _dtype(narrow[i])) for i, shape in enumerate(shapes)})
    if not shapes:
        return Stateless()
    (heads, head_dim), (_, value_dim) = shapes
    values = None if value_dim == head_dim else value_dim
    if kind.window is not None:
        return Rotating(heads, head_dim, kind.window, values)
    return Full(heads, head_dim, values)


def _dtype(narrow: mx.Dtype) -> str:
    """The dtype of a state, as layouts name it."""
    if narrow == mx.float32:
        return "float32"
    if not mx.issubdtype(narrow, mx.floating):
        raise UnsupportedModel(f"its layers keep states of {narrow}, which layer memory has no kind for")
    return "activation"
