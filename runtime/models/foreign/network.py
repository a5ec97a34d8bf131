"""A model class of mlx-lm run as a Network over our layer memory.

mlx-lm's classes return logits. The class's own code is cut in two at its trunk, the module that runs all
layers: hidden states are what the trunk gives (`Until` ends the call there), logits what the class makes of
them (`From` begins there). So scales, caps and heads stay the class's own.

What mlx-lm's convention cannot say about a ragged step is computed row by row: recurrent layers whose rows
bring different numbers of tokens, and models that take one position for all rows. A recurrent layer forgets
the tail of a step by running the model again over what is kept, reading attention memory and writing nothing.

Dimensions: B rows, L tokens, D hidden size, V vocabulary.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Recurrent, Rotating
from runtime.cache.protocol import Scanned
from runtime.models.foreign.caches import Arrays, Attention, Unused
from runtime.models.foreign.trunk import From, Reached, StandIn, Until, put_in
from runtime.step import Step

Group = int | tuple[int, ...]
Entries = list[mx.array | None]
States = dict[int, Entries]
Replay = Callable[[mx.array, tuple[int, ...]], list[States]]
"""replay(tokens, kept): for each row b, the states of all folds after its first kept[b] tokens."""


@dataclass(frozen=True, slots=True)
class Form:
    """How mlx-lm's caches map on a layout.

    specs: one per cache, lists of caches laid flat. groups: what each layer is handed, as indices of specs.
    trunk: names that lead to the module that runs all layers; () where there is none, and hidden states are
    logits. ragged: rows may stand at different positions.
    """

    specs: tuple[LayerSpec, ...]
    groups: tuple[Group, ...]
    trunk: tuple[str, ...] = ()
    ragged: bool = True

    @property
    def folds(self) -> list[int]:
        return [i for i, spec in enumerate(self.specs) if isinstance(spec, Recurrent)]


def arranged(groups: Sequence[Group], flat: Sequence[Any]) -> list[Any]:
    """Flat caches as the model wants them."""
    return [
        flat[group] if isinstance(group, int) else tuple(flat[place] for place in group) for group in groups
    ]


class ForeignNetwork(nn.Module):
    """Has the parameters of `model`, an unevaluated instance of mlx-lm's class, under their own names."""

    def __init__(self, model: nn.Module, form: Form) -> None:
        super().__init__()
        model.eval()
        for module in model.modules():
            _remember_plain(module)
        dict.update(self, model)
        # The class's own attributes and code, without a second hold on modules that may be replaced here.
        shell = copy.copy(model)
        dict.clear(shell)
        object.__setattr__(self, "_shell", shell)
        self._form = form

    def __call__(self, tokens: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        folds = self._form.folds
        before = {i: _entries(caches[i], step) for i in folds}
        run = self._together if self._in_one_go(step) else self._row_by_row
        hidden, after = run(tokens, step, caches, before)

        def replay(tokens: mx.array, kept: tuple[int, ...]) -> list[States]:
            key = ("foreign replay", id(self), kept)
            return step.memo(key, lambda: self._replay(tokens, step, caches, before, kept))

        for i in folds:
            _keep(caches[i], i, step, tokens, after[i], replay)
        return hidden

    def logits(self, hidden: mx.array) -> mx.array:
        if not self._form.trunk:
            return hidden
        *lead, size = hidden.shape
        logits = self._call(None, None, From(hidden.reshape(1, -1, size)))
        return logits.reshape(*lead, -1)

    def _in_one_go(self, step: Step) -> bool:
        level = len(set(step.starts)) == 1
        if not self._form.folds:
            return level or self._form.ragged
        padded = len(set(step.counts)) > 1
        half_new = 0 in step.starts and any(step.starts)
        return not padded and not half_new and (level or self._form.ragged)

    def _run(
        self, tokens: mx.array, step: Step, caches: Sequence[Any], before: States, *, replay: bool = False
    ) -> tuple[mx.array, list[Any]]:
        """Hidden states of a step that mlx-lm's convention can say, and the dressed caches after it."""
        dressed: list[Any] = []
        for i, (spec, cache) in enumerate(zip(self._form.specs, caches, strict=True)):
            match spec:
                case Full() | Rotating():
                    dressed.append(Attention(cache, spec, step, replay=replay))
                case Recurrent():
                    dressed.append(Arrays(before[i] if any(step.starts) else [None] * len(before[i])))
                case _:
                    dressed.append(Unused())
        return self._hidden(tokens, arranged(self._form.groups, dressed)), dressed

    def _together(
        self, tokens: mx.array, step: Step, caches: Sequence[Any], before: States
    ) -> tuple[mx.array, States]:
        hidden, dressed = self._run(tokens, step, caches, before)
        return hidden, self._states(dressed)

    def _row_by_row(
        self, tokens: mx.array, step: Step, caches: Sequence[Any], before: States
    ) -> tuple[mx.array, States]:
        rows: list[mx.array] = []
        ran: list[list[Any]] = []
        for place, count in enumerate(step.counts):
            part = tokens[place : place + 1, :count]
            hidden, dressed = self._run(part, _alone(step, place, count), caches, _of_row(before, place))
            rows.append(_padded(hidden, 1, step.width))
            ran.append(dressed)
        self._append_together(step, caches, ran)
        after = [self._states(dressed) for dressed in ran]
        return mx.concatenate(rows), {i: _stacked([states[i] for states in after]) for i in before}

    def _states(self, dressed: Sequence[Any]) -> States:
        return {i: dressed[i].cache for i in self._form.folds}

    def _append_together(self, step: Step, caches: Sequence[Any], ran: list[list[Any]]) -> None:
        """Attention memory ends a step as a whole: what rows wrote one by one is written once more."""
        for i, cache in enumerate(caches):
            given = [dressed[i].given for dressed in ran if isinstance(dressed[i], Attention)]
            if given:
                keys, values = (
                    mx.concatenate([_padded(x, 2, step.width) for x in part])
                    for part in zip(*given, strict=True)
                )
                cache.append(step, keys, values if values.shape[-1] else None)

    def _replay(
        self, tokens: mx.array, step: Step, caches: Sequence[Any], before: States, kept: tuple[int, ...]
    ) -> list[States]:
        """For each row the states after its first kept[b] tokens; rows that keep none stay as they were."""
        after = [_of_row(before, place) for place in range(len(kept))]
        for place, count in enumerate(kept):
            if count:
                part, alone = tokens[place : place + 1, :count], _alone(step, place, count)
                after[place] = self._states(self._run(part, alone, caches, after[place], replay=True)[1])
        return after

    def _hidden(self, tokens: mx.array, caches: list[Any]) -> mx.array:
        if not self._form.trunk:
            return self._call(tokens, caches, None)
        try:
            self._call(tokens, caches, Until())
        except Reached as reached:
            return reached.hidden
        raise AssertionError("the trunk was called when the model was looked at")

    def _call(self, tokens: mx.array | None, caches: list[Any] | None, stand_in: StandIn | None) -> Any:
        """mlx-lm's own call, with our modules, and something in the place of the trunk."""
        model: Any = copy.copy(self._shell)
        dict.update(model, self)
        if stand_in is not None:
            model = put_in(model, self._form.trunk, stand_in)
        return model(tokens, cache=caches)


def _remember_plain(module: Any) -> None:
    """Let what the module becomes when quantized say what it was, as `runtime.weights` asks of it."""
    quantize = getattr(module, "to_quantized", None)
    if quantize is None or isinstance(module, nn.Linear | nn.Embedding):
        return

    def quantized(*args: Any, **kwargs: Any) -> Any:
        packed = quantize(*args, **kwargs)
        object.__setattr__(packed, "to_plain", lambda: module)
        return packed

    object.__setattr__(module, "to_quantized", quantized)


def _entries(cache: Any, step: Step) -> Entries:
    """What a fold remembers of the step's rows, before it."""
    found: list[mx.array] = []

    def look(states: dict[str, mx.array], counts: mx.array | None = None) -> Scanned:
        found.extend(states.values())
        return mx.zeros(()), states

    cache.scan(step, look)
    return list(found)


def _keep(cache: Any, place: int, step: Step, tokens: mx.array, after: Entries, replay: Replay) -> None:
    """Give the fold at `place` its states after the step, and a way to tell them after a part of it."""

    def fold(states: dict[str, mx.array], tokens: mx.array, counts: mx.array | None = None) -> Scanned:
        if tokens.shape[1] == step.width:
            return tokens, dict(zip(states, _arrays(after), strict=True))
        rows, width = tokens.shape
        kept = (width,) * rows if counts is None else tuple(int(n) for n in counts.tolist())  # pyright: ignore[reportGeneralTypeIssues] -- a list, for an array with one axis
        again = _stacked([states[place] for states in replay(tokens, kept)])
        return tokens, dict(zip(states, _arrays(again), strict=True))

    cache.scan(step, fold, tokens)


def _arrays(entries: Entries) -> list[mx.array]:
    """Every entry was set when the model was looked at; one that is not would be a state forgotten."""
    assert all(entry is not None for entry in entries)
    return [entry for entry in entries if entry is not None]


def _alone(step: Step, place: int, count: int) -> Step:
    """The first `count` tokens of one row, as a step of its own."""
    long = None if step.long is None else step.long[place : place + 1]
    return Step((step.starts[place],), (count,), step.first + place, long)


def _of_row(states: States, place: int) -> States:
    return {i: [entry[place : place + 1] for entry in _arrays(own)] for i, own in states.items()}


def _stacked(rows: Sequence[Entries]) -> Entries:
    return [mx.concatenate(_arrays(list(column))) for column in zip(*rows, strict=True)]


def _padded(x: mx.array, axis: int, width: int) -> mx.array:
    """Zeros behind, up to `width` along the axis of tokens."""
    missing = width - x.shape[axis]
    return mx.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)]) if missing else x
