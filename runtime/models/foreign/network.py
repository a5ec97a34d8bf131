"""A model class of mlx-lm run as a Network over our layer memory.

mlx-lm's classes return logits. The class's own code is cut in two at its trunk, the module that runs all
layers: hidden states are what the trunk gives (`Until` ends the call there), logits what the class makes of
them (`From` begins there). So scales, caps and heads stay the class's own.

A class that takes one position for all rows is run row by row where rows stand at different ones.

Dimensions: B rows, L tokens, D hidden size, V vocabulary.
"""

import copy
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, Rotating
from runtime.cache.protocol import Caches, by_layout
from runtime.errors import NotSupported
from runtime.models.foreign.caches import Attention
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

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        if step.inputs.embeddings is not None:
            raise NotSupported(_IDS_ONLY)
        step.refuse_positions("mlx-lm's class for this model counts them itself")
        if step.adapters is not None:
            raise NotSupported("mlx-lm's class for this model asks its layers itself: no adapters")
        if self._form.ragged or len(set(step.starts)) == 1:
            return self._run(step, caches)[0]
        return self._row_by_row(step, caches)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        raise NotSupported(_IDS_ONLY)

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        if not self._form.trunk:
            return hidden
        *lead, size = hidden.shape
        logits = self._call(None, None, From(hidden.reshape(1, -1, size)))
        return logits.reshape(*lead, -1)

    def _run(self, step: Step, caches: Caches) -> tuple[mx.array, list[Attention]]:
        """Hidden states, and the dressed caches after the step."""
        pairs = zip(self._form.specs, by_layout(caches), strict=True)
        dressed = [Attention(cache, spec, step) for spec, cache in pairs]
        return self._hidden(step.ids, dressed), dressed

    def _row_by_row(self, step: Step, caches: Caches) -> mx.array:
        rows: list[mx.array] = []
        ran: list[list[Attention]] = []
        for place, count in enumerate(step.counts):
            hidden, dressed = self._run(_alone(step, place, count), caches)
            rows.append(_padded(hidden, 1, step.width))
            ran.append(dressed)
        for i, cache in enumerate(by_layout(caches)):
            # Memory ends a step as a whole: what rows wrote one by one is written once more.
            given = [dressed[i].given or () for dressed in ran]
            keys, values = (
                mx.concatenate([_padded(x, 2, step.width) for x in part]) for part in zip(*given, strict=True)
            )
            cache.append(step, keys, values)
        return mx.concatenate(rows)

    def _hidden(self, tokens: mx.array, caches: list[Attention]) -> mx.array:
        if not self._form.trunk:
            return self._call(tokens, caches, None)
        try:
            self._call(tokens, caches, Until())
        except Reached as reached:
            return reached.hidden
        raise AssertionError("the trunk was called when the model was looked at")

    def _call(self, tokens: mx.array | None, caches: list[Attention] | None, stand_in: StandIn | None) -> Any:
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


def _alone(step: Step, place: int, count: int) -> Step:
    """The first `count` tokens of one row, as a step of its own."""
    long = None if step.long is None else step.long[place : place + 1]
    own = Inputs(step.ids[place : place + 1, :count])
    return Step((step.starts[place],), (count,), step.first + place, long, own)


def _padded(x: mx.array, axis: int, width: int) -> mx.array:
    """Zeros behind, up to `width` along the axis of tokens."""
    missing = width - x.shape[axis]
    return mx.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)]) if missing else x
