"""A model class of mlx-lm run as a Network over our layer memory.

mlx-lm's classes return logits. The class's own code is cut in two at its trunk, the module that runs all
layers: hidden states are what the trunk gives (`Until` ends the call there), logits what the class makes of
them (`From` begins there). So scales, caps and heads stay the class's own.

A class that takes one position for all rows is run row by row where rows stand at different ones.

Dimensions: B rows, L tokens, D hidden size, V vocabulary.
"""

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, Rotating
from runtime.cache.protocol import Caches, by_layout
from runtime.errors import NotSupported
from runtime.models.foreign.caches import Attention
from runtime.models.foreign.dressed import Asked, Path, dressed, stand_ins
from runtime.models.foreign.trunk import From, Reached, StandIn, Until, put_in
from runtime.records import dataclass
from runtime.step import Inputs, Step

_IDS_ONLY = "a model that runs through mlx-lm's class takes ids only, no embeddings"


@dataclass(frozen=True, slots=True)
class Form:
    """How mlx-lm's caches map on a layout."""

    specs: tuple[Full | Rotating, ...]
    """One per layer."""
    trunk: tuple[str, ...] = ()
    """Names that lead to the module that runs all layers; () where there is none, and hidden states are
    logits.
    """
    ragged: bool = True
    """Rows may stand at different positions."""


class ForeignNetwork(nn.Module):
    """Has the parameters of `model`, an unevaluated instance of mlx-lm's class, under their own names."""

    shifts: ClassVar[tuple[()]] = ()  # nobody here knows how a class turns its keys

    def __init__(self, model: nn.Module, form: Form, table: str | None = None) -> None:
        """table: the name of the embedding that is the head, too; None: the head is a module of its own."""
        super().__init__()
        model.eval()
        for module in model.modules():
            _remember_plain(module)
        dict.update(self, model)
        # The class's own attributes and code, without a second hold on modules that may be replaced here.
        shell = copy.copy(model)
        dict.clear(shell)
        object.__setattr__(self, "_shell", shell)
        self._form, self._table = form, table

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        if step.inputs.embeddings is not None:
            raise NotSupported(_IDS_ONLY)
        step.refuse_positions("mlx-lm's class for this model counts them itself")
        if self._form.ragged or len(set(step.starts)) == 1:
            return self._run(step, caches)[0]
        return self._row_by_row(step, caches)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        raise NotSupported(_IDS_ONLY)

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        if not self._form.trunk:
            return hidden
        *lead, size = hidden.shape
        places = {} if step is None else stand_ins(self, step)
        rows = lead[0] if places else 1
        logits = self._call(None, None, From(hidden.reshape(rows, -1, size)), places)
        return logits.reshape(*lead, -1)

    @property
    def specs(self) -> tuple[Full | Rotating, ...]:
        """What each layer remembers."""
        return self._form.specs

    @property
    def tied_table(self) -> nn.Module | None:
        """The table that is the head, too."""
        return None if self._table is None else dict(self.named_modules())[self._table]

    def unasked(self, step: Step, caches: "list[Attention]") -> list[str]:
        """Modules that adapters of the step change and that the class does not ask in it. Raises NotSupported
        where it asks them otherwise than rows can be told apart.
        """
        places = stand_ins(self, step)
        hidden = self._hidden(step.ids, caches, places)
        if self._form.trunk:
            self._call(None, None, From(hidden), places)
        return [one.name for one in places.values() if not one.times]

    def _run(self, step: Step, caches: Caches) -> tuple[mx.array, list[Attention]]:
        """Hidden states, and the caches as the class sees them, after the step."""
        pairs = zip(self._form.specs, by_layout(caches), strict=True)
        watched = [Attention(cache, spec, step) for spec, cache in pairs]
        return self._hidden(step.ids, watched, stand_ins(self, step)), watched

    def _row_by_row(self, step: Step, caches: Caches) -> mx.array:
        rows: list[mx.array] = []
        ran: list[list[Attention]] = []
        for place, count in enumerate(step.counts):
            hidden, watched = self._run(_alone(step, place, count), caches)
            rows.append(_padded(hidden, 1, step.width))
            ran.append(watched)
        for i, cache in enumerate(by_layout(caches)):
            # Memory ends a step as a whole: what rows wrote one by one is written once more.
            given = [watched[i].given or () for watched in ran]
            keys, values = (
                mx.concatenate([_padded(x, 2, step.width) for x in part]) for part in zip(*given, strict=True)
            )
            cache.append(step, keys, values)
        return mx.concatenate(rows)

    def _hidden(self, tokens: mx.array, caches: list[Attention], places: Mapping[Path, Asked]) -> mx.array:
        if not self._form.trunk:
            return self._call(tokens, caches, None, places)
        try:
            self._call(tokens, caches, Until(), places)
        except Reached as reached:
            return reached.hidden
        raise AssertionError("the trunk was called when the model was looked at")

    def _call(
        self,
        tokens: mx.array | None,
        caches: list[Attention] | None,
        stand_in: StandIn | None,
        places: Mapping[Path, Asked],
    ) -> Any:
        """mlx-lm's own call, with our modules, and something in the place of the trunk and of those that
        adapters change.
        """
        model: Any = copy.copy(self._shell)
        dict.update(model, self)
        model = dressed(model, places) if places else model
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


def _alone(step: Step, place: int, count: int) -> Step:
    """The first `count` tokens of one row, as a step of its own."""
    long = None if step.long is None else step.long[place : place + 1]
    own = Inputs(step.ids[place : place + 1, :count])
    adapters = None if step.adapters is None else step.adapters.of_row(place)
    return Step((step.starts[place],), (count,), step.first + place, long, own, adapters)


def _padded(x: mx.array, axis: int, width: int) -> mx.array:
    """Zeros behind, up to `width` along the axis of tokens."""
    missing = width - x.shape[axis]
    return mx.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)]) if missing else x
