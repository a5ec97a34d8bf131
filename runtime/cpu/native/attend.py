"""Attention by the kernels: over layer memory where it lies, and over arrays.

One node turns queries and keys, writes keys and values into memory, in place where nobody else holds it, and
attends. Everything is float32 but what memory keeps in other forms; whatever else is asked goes the other
way, and so does memory that lies in no lanes.
"""

from collections.abc import Sequence
from operator import add, sub
from typing import TYPE_CHECKING, Any, NamedTuple

import mlx.core as mx

from runtime.cache.codec import Codec
from runtime.cache.lanes import Lanes, LaneTraits
from runtime.cache.protocol import AttentionCache, Mask
from runtime.cache.visibility import places_of
from runtime.cpu.native.rope import cosines
from runtime.cpu.query_parts import in_parts, of_tokens
from runtime.parts.attention import Bias, Scoring
from runtime.parts.rotary import Rotary
from runtime.step import Step

if TYPE_CHECKING:
    from runtime.nn.operations.signatures import Attend, Recall, Remember

_FORMS = {mx.float32: 0, mx.bfloat16: 1, mx.float16: 2}
_PACKED = {8: 3, 4: 4}


def table(kernels: Any, otherwise: Any) -> dict[str, Any]:
    return {
        "attend": attending(kernels, otherwise.attend),
        "remember": remembering(kernels, otherwise.remember),
        "recall": recalling(kernels, otherwise.recall),
    }


def attending(kernels: Any, otherwise: "Attend") -> "Attend":
    def attend(
        step: Step | None,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        mask: Mask,
        *,
        scale: float,
        softcap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        if not _are_float(queries, sinks) or keys.dtype not in _FORMS or values.dtype not in _FORMS:
            return otherwise(step, queries, keys, values, mask, scale=scale, softcap=softcap, sinks=sinks)
        batch, heads, width, size = queries.shape
        _, groups, seen, _ = keys.shape
        value_size = values.shape[3]
        causal = isinstance(mask, str)
        start = seen - width if causal else 0
        form = kernels.Attention(
            heads=heads,
            groups=groups,
            keys=(_FORMS[keys.dtype], size, 0),
            values=(_FORMS[values.dtype], value_size, 0),
            value_size=value_size,
            scale=scale,
            softcap=softcap or 0.0,
            window=None,
            chunk=None,
            ahead=0 if causal else None,
            traditional=False,
        )
        out = form.read(
            queries=queries,
            table=None,
            mask=None if causal else _by_rows(mask),
            sinks=sinks,
            lanes=[keys, values],
            beside=[],
            starts=[start] * batch,
            counts=[width] * batch,
            bases=[0] * batch,
            edges=[start] * batch,
            stops=[seen] * batch,
            first=0,
        )
        return out.reshape(batch, width, heads, value_size).swapaxes(1, 2)

    return attend


def remembering(kernels: Any, otherwise: "Remember") -> "Remember":
    def remember(
        step: Step,
        cache: AttentionCache,
        queries: mx.array,
        keys: mx.array,
        values: mx.array | None,
        by: Scoring,
    ) -> mx.array:
        lanes = cache.open(step) if _are_float(queries, keys, values, by.sinks) else None
        own = _Queries.of(kernels, lanes, step, queries, by)
        if own is None:
            return otherwise(step, cache, queries, keys, values, by)
        if by.bias is not None:
            return _biased(own, cache, keys, values, by.bias)
        out, *written = own.write(keys, values, own.lanes.arrays, range(step.width))
        cache.close(step, own.lanes, written)
        return out

    return remember


def recalling(kernels: Any, otherwise: "Recall") -> "Recall":
    def recall(step: Step, cache: AttentionCache, queries: mx.array, by: Scoring) -> mx.array:
        lanes = cache.lanes(step) if _are_float(queries, by.sinks) else None
        own = _Queries.of(kernels, lanes, step, queries, by)
        return otherwise(step, cache, queries, by) if own is None else own.read(range(step.width))

    return recall


class _Queries(NamedTuple):
    """A step's queries over one layer's memory, in the kernels' view. A tuple: it is made for every layer."""

    form: Any
    """As `form_of` makes it."""
    lanes: Lanes
    step: Step
    queries: mx.array
    table: mx.array | None
    """What queries and keys are turned by."""
    sinks: mx.array | None

    @classmethod
    def of(
        cls, kernels: Any, lanes: Lanes | None, step: Step, queries: mx.array, by: Scoring
    ) -> "_Queries | None":
        """None where the kernels have no form for it."""
        if lanes is None:
            return None
        heads = queries.shape[2] // by.size if queries.ndim == 3 else queries.shape[1]
        form = form_of(kernels, lanes.kept, heads, by.scale, by.softcap, by.value_size, by.rope)
        if form is None:
            return None
        table = None if by.rope is None else cosines(kernels, by.rope, step)
        return cls(form, lanes, step, queries, table, by.sinks)

    def write(
        self,
        keys: mx.array,
        values: mx.array | None,
        arrays: Sequence[mx.array],
        asking: range,
        added: mx.array | None = None,
    ) -> Sequence[mx.array]:
        """What these tokens see, who see what was written to the arrays before them; and the arrays then.
        added: to scores, by slots.
        """
        lanes = self.lanes
        starts, counts = self._part(asking)
        return self.form.remember(
            of_tokens(self.queries, asking),
            of_tokens(keys, asking),
            None if values is None else of_tokens(values, asking),
            None if self.table is None else of_tokens(self.table, asking),
            added,
            self.sinks,
            arrays,
            starts,
            counts,
            lanes.bases,
            lanes.first,
            not lanes.fits,
        )

    def read(self, asking: range, added: mx.array | None = None) -> mx.array:
        """What these tokens see of what is written. added: to scores, by slots."""
        lanes, step = self.lanes, self.step
        starts, counts = self._part(asking)
        return self.form.read(
            of_tokens(self.queries, asking),
            None if self.table is None else of_tokens(self.table, asking),
            added,
            self.sinks,
            lanes.arrays,
            lanes.beside,
            starts,
            counts,
            lanes.bases,
            step.starts,
            [start + count for start, count in zip(step.starts, step.counts, strict=True)],
            lanes.first,
        )

    def places(self) -> mx.array:
        """Of all slots that the step's rows have, its own tokens included."""
        step, bases = self.step, self.lanes.bases
        slots = max(map(sub, step.starts, bases)) + step.width
        return places_of(step, tuple(bases), 0, slots)

    def _part(self, asking: range) -> tuple[Sequence[int], Sequence[int]]:
        """Where the rows of these tokens start, and how many of them each has."""
        step = self.step
        if len(asking) == step.width:
            return step.starts, step.counts
        before = [min(asking.start, count) for count in step.counts]
        counts = [min(asking.stop, count) - gone for count, gone in zip(step.counts, before, strict=True)]
        return [*map(add, step.starts, before)], counts


def _biased(
    own: _Queries, cache: AttentionCache, keys: mx.array, values: mx.array | None, bias: Bias
) -> mx.array:
    """`remember` where scores have a bias, which is never held for all of a step's tokens."""
    lanes, step = own.lanes, own.step
    if lanes.fits:
        written = lanes.arrays

        def write(asking: range, added: mx.array) -> mx.array:
            nonlocal written
            out, *written = own.write(keys, values, written, asking, added)
            return out

        out = in_parts(write, bias, own.places(), step.width)
        cache.close(step, lanes, written)
        return out
    _, *written = own.write(keys, values, lanes.arrays, range(step.width))
    cache.close(step, lanes, written)
    # What lies beside the lanes has no slots while it is written, and has them for who reads it.
    beside = cache.lanes(step)
    assert beside is not None
    return in_parts(own._replace(lanes=beside).read, bias, own.places(), step.width)


def _are_float(*arrays: mx.array | None) -> bool:
    return all(array is None or array.dtype == mx.float32 for array in arrays)


def _by_rows(mask: "mx.array | None") -> mx.array | None:
    """[B or 1, H or 1, L or 1, K], K keys, of a mask that may have fewer axes."""
    if mask is None or mask.ndim == 4:
        return mask
    return mask.reshape(*[1] * (4 - mask.ndim), *mask.shape)


def form_of(
    kernels: Any,
    kept: LaneTraits,
    heads: int,
    scale: float,
    softcap: float | None = None,
    value_size: int | None = None,
    rope: Rotary | None = None,
) -> Any:
    """The kernels' own description of attention over this memory; None where they have none. The rest is as
    in `Scoring`.
    """
    traditional = rope is not None and rope.traditional
    key = heads, scale, softcap, value_size, traditional
    try:
        return kept.made[key]
    except KeyError:
        pass
    forms = [_code(codec) for codec in kept.codecs]
    values = kept.codecs[1].size if len(forms) > 1 else value_size
    made = kept.made[key] = (
        None
        if None in forms
        else kernels.Attention(
            heads=heads,
            groups=kept.heads,
            keys=forms[0],
            values=forms[1] if len(forms) > 1 else None,
            value_size=values,
            scale=scale,
            softcap=softcap or 0.0,
            window=kept.reach.window,
            chunk=kept.reach.chunk,
            ahead=0,
            traditional=traditional,
        )
    )
    return made


def _code(codec: Codec) -> tuple[int, int, int] | None:
    """(form, numbers of a vector, numbers of a group), as src/kept.h counts forms."""
    if codec.dtype != mx.float32:
        return None
    form = _FORMS.get(codec.stored) if not codec.bits else _PACKED.get(codec.bits)
    if form is None or (codec.bits and codec.stored != mx.float32):
        return None
    return form, codec.size, codec.group_size
