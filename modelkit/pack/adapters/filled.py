"""The numbers of a placed adapter, moved to where they belong: the tensors of `runtime.nn.adapters.low_rank`.

Moving changes no number. Computed in float32 are rows that the base multiplies on their way, and pairs of
different scales in one module, whose scale becomes the largest.

Dimensions: E matrices in a module, R rows, C columns, r the rank.
"""

from collections.abc import Mapping

import mlx.core as mx
import numpy as np

from modelkit.errors import MalformedFile
from modelkit.pack.adapters.place import Placed, Placement
from modelkit.pack.adapters.words import Words, of_floats, read_words
from modelkit.pack.writing.reader import Reader
from modelkit.source.adapters.value import Factor, Pair
from modelkit.source.tensor import FLOATS
from runtime.loading.row_trace import placed as placed_whole
from runtime.models import Described
from runtime.nn.adapters.low_rank import HEAD

_MLX = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
_NAMES = {kind: name for name, kind in _MLX.items()}


def fill(placement: Placement, described: Described) -> tuple[dict[str, Words], dict[str, float]]:
    """(tensors, scales by module). Raises SourceError, MalformedFile."""
    try:
        return _filled(placement, described)
    except MalformedFile as error:
        raise MalformedFile(f"{placement.source.label}: {error.message}", hint=error.hint) from error


def _filled(placement: Placement, described: Described) -> tuple[dict[str, Words], dict[str, float]]:
    tensors: dict[str, Words] = {}
    scales: dict[str, float] = {}
    with Reader([placement.source.file]) as reader:
        for one in placement.placed:
            tensors |= _module(one, reader)
            scales[one.module] = one.scale
        tensors |= _whole(placement, described, reader)
        for name, rows in placement.rows.items():
            ids = np.array(rows.ids, np.int32)
            tensors[f"{name}.ids"] = Words("I32", ids.view(np.uint32))
            tensors[f"{name}.rows"] = read_words(reader, rows.values)
        reader.check_unchanged()
    return tensors, scales


def read_pair(reader: Reader, pair: Pair) -> tuple[Words, Words]:
    """left [.., R, r] and right [.., r, C]."""
    if pair.made is None:
        return read_factor(reader, pair.left), read_factor(reader, pair.right)
    parts = {
        name: (read_factor(reader, left), read_factor(reader, right))
        for name, (left, right) in pair.made.factors.items()
    }
    from modelkit.source.gguf.architectures import apply_to_pair  # only GGUF's pairs are made of others

    first = next(iter(parts.values()))
    arrays = {name: (left.array, right.array) for name, (left, right) in parts.items()}
    left, right = apply_to_pair(pair.made.origin, arrays.__getitem__, np)
    return Words(first[0].dtype, left), Words(first[1].dtype, right)


def read_factor(reader: Reader, factor: Factor) -> Words:
    """As meant: [.., rows, columns]."""
    words = read_words(reader, factor.tensor)
    if factor.experts:
        first, last = words.shape
        if factor.rank_last:
            parts = words.array.reshape(first, last // factor.experts, factor.experts)
            words = Words(words.dtype, parts.transpose(2, 0, 1))
        else:
            words = Words(words.dtype, words.array.reshape(factor.experts, first // factor.experts, last))
    return words.turned() if factor.turned else words


def _module(one: Placed, reader: Reader) -> dict[str, Words]:
    factors = [read_pair(reader, pair) for pair in one.pairs]
    exact = _exact(one)
    made = [_matrix(one, place, factors, exact) for place in range(len(one.blocks))]
    left, right = (_stacked([pair[side] for pair in made], one.arrival.shape[:-2]) for side in (0, 1))
    if one.kind == "heads":
        right = Words(right.dtype, right.array[0])  # all heads are rows of one matrix, and share its A
    down, up = (left, right) if one.kind == "table" else (right.turned(), left.turned())
    found = {f"{one.module}.lora_down": down, f"{one.module}.lora_up": up}
    for leaf, tensors in (
        ("lora_magnitude", [pair.magnitude for pair in one.pairs]),
        ("lora_bias", [pair.bias for pair in one.pairs]),
    ):
        if any(tensors):
            vectors = [None if tensor is None else read_words(reader, tensor) for tensor in tensors]
            found[f"{one.module}.{leaf}"] = _vector(one, vectors, scaled=leaf == "lora_bias")
    return found


def _exact(one: Placed) -> bool:
    """Do numbers move only?"""
    kinds = {tensor.dtype for pair in one.pairs for tensor in pair.tensors}
    scales = {pair.scale for pair in one.pairs}
    return (
        len(kinds) == 1 and kinds <= set(FLOATS) and len(scales) == 1 and bool((one.arrival.times == 1).all())
    )


def _matrix(one: Placed, place: int, factors: list[tuple[Words, Words]], exact: bool) -> tuple[Words, Words]:
    """left [R, r] and right [r, C] of the module's matrix number `place`: a block for each of its pairs."""
    source = one.arrival.source.reshape(-1, one.arrival.source.shape[-1])[place]
    row = one.arrival.row.reshape(-1, source.size)[place]
    times = one.arrival.times.reshape(-1, source.size)[place]
    lefts: list[np.ndarray] = []
    rights: list[np.ndarray] = []
    dtype = one.pairs[0].left.tensor.dtype if exact else "F32"
    for i in one.blocks[place]:
        left, right = factors[i]
        rows = left.shape[-2]
        mine = source == i
        which = int(row[mine][0]) // rows
        block = left.array if exact else left.floats()
        block = block.reshape(-1, block.shape[-1])[np.where(mine, row, 0)]
        if exact:
            block = np.where(mine[:, None], block, 0).astype(block.dtype)
        else:
            block = np.where(mine[:, None], block * (times * np.float32(one.share(i)))[:, None], 0)
        lefts.append(block)
        matrix = right.array if exact else right.floats()
        rights.append(matrix.reshape(-1, *matrix.shape[-2:])[which])
    if not lefts:
        word = np.uint16 if dtype in ("F16", "BF16") else np.uint32
        empty = np.zeros((source.size, 0), word), np.zeros((0, one.arrival.shape[-1]), word)
        return Words(dtype, empty[0]), Words(dtype, empty[1])
    left, right = np.concatenate(lefts, 1), np.concatenate(rights)
    return (Words(dtype, left), Words(dtype, right)) if exact else (of_floats(left), of_floats(right))


def _stacked(parts: list[Words], leading: tuple[int, ...]) -> Words:
    """The module's matrices as one tensor; ranks are filled up with zeros."""
    if not leading:
        return parts[0]
    shape = tuple(max(part.shape[axis] for part in parts) for axis in (0, 1))
    whole = np.zeros((len(parts), *shape), parts[0].array.dtype)
    for place, part in enumerate(parts):
        whole[place, : part.shape[0], : part.shape[1]] = part.array
    return Words(parts[0].dtype, whole.reshape(*leading, *shape))


def _vector(one: Placed, vectors: list[Words | None], *, scaled: bool) -> Words:
    """[R]: each row's own number. Of a table the columns' numbers, as they are."""
    first = next(vector for vector in vectors if vector is not None)
    if one.kind == "table":
        return first
    arrival = one.arrival
    if len(vectors) == 1 and (arrival.times == 1).all() and (arrival.source == 0).all():
        return Words(first.dtype, first.array[arrival.row])
    values = np.zeros(arrival.row.shape, np.float32)
    for place, vector in enumerate(vectors):
        if vector is not None:
            share, mine = np.float32(one.share(place) if scaled else 1.0), arrival.source == place
            values = np.where(mine, vector.floats()[np.where(mine, arrival.row, 0)] * share, values)
    return of_floats(values * arrival.times)


def _whole(placement: Placement, described: Described, reader: Reader) -> dict[str, Words]:
    if not placement.source.whole:
        return {}
    head = f"{HEAD}.weight"
    words = {name: read_words(reader, tensor) for name, tensor in placement.source.whole.items()}
    own = {head: words.pop(head)} if placement.tied and head in words else {}
    with mx.stream(mx.cpu):
        arrays = {name: to_mlx(one) for name, one in words.items()}
        found = placed_whole(described, arrays, placement.source.form)
        own = {name: from_mlx(array) for name, array in sorted(found.items())} | own
    if placement.tied and head in placement.whole and head not in own:
        own[head] = own[placement.tied]
    return own


def to_mlx(words: Words) -> mx.array:
    array = mx.array(np.ascontiguousarray(words.array))
    return array.view(mx.int32 if words.dtype == "I32" else _MLX[words.dtype])


def from_mlx(array: mx.array) -> Words:
    size = mx.uint32 if array.dtype == mx.float32 else mx.uint16
    flat = np.array(array.reshape(-1).view(size)).reshape(tuple(array.shape))
    return Words(_NAMES[array.dtype], flat)


def as_arrays(tensors: Mapping[str, Words]) -> dict[str, mx.array]:
    """For `LowRanks.of`."""
    return {name: to_mlx(words) for name, words in tensors.items()}
