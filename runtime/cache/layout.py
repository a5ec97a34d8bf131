"""What each layer remembers, as data. A model declares a list of these and never builds a cache.

Because a layout is plain data, memory per token and per sequence is known before a weight is read: `create`
and `show` print it, the loader compares it with what the machine has. No MLX here; dtypes are names.

Sizes assume `element_bytes` per element of an activation (2 for f16 and bf16, 4 for f32). Keys and values may
be kept in another format, named as in runtime.quant (`kept_format`); folds, pooled vectors and encoder memory
never are.
"""

from collections.abc import Mapping, Sequence

from runtime.quant import find_format
from runtime.records import dataclass

# Elements of a key or value that share a scale: the first of these that divides its size.
GROUP_SIZES = (64, 32)
SLACK = 16
"""Tokens that a layer can forget again, unless its memory is made for another number."""
SCAN_CHUNK = 64
"""Tokens that a scan folds at once, at most."""


@dataclass(frozen=True, slots=True)
class Full:
    """Attention over the whole past."""

    kv_heads: int
    """Heads that keys and values have; several query heads may share one."""
    head_dim: int
    """Elements of a key, per head."""
    value_dim: int | None = None
    """Elements of a value, per head. None: as many as a key has. 0: values are a prefix of the keys
    (multi-head latent attention).
    """
    kind = "full"


@dataclass(frozen=True, slots=True)
class Rotating:
    """Attention over the last tokens only. Fields as in Full, and:"""

    kv_heads: int
    head_dim: int
    window: int
    """Tokens that a query sees, its own included."""
    value_dim: int | None = None
    kind = "rotating"


@dataclass(frozen=True, slots=True)
class Chunked:
    """Attention inside blocks of tokens. Fields as in Full, and:"""

    kv_heads: int
    head_dim: int
    chunk: int
    """Tokens of a block: position p sees the keys from p - p % chunk on."""
    value_dim: int | None = None
    kind = "chunked"


@dataclass(frozen=True, slots=True)
class Pooled:
    """One vector for every so many tokens, which the last of them makes."""

    size: int
    """Elements of a vector."""
    every: int
    """Tokens to a vector."""
    kind = "pooled"


@dataclass(frozen=True, slots=True)
class State:
    """One named array of a recurrent layer, for one sequence."""

    shape: tuple[int, ...]
    dtype: str = "activation"
    """"activation": the type that activations have; else a name such as "float32"."""


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A layer that folds all tokens into arrays of constant size."""

    states: Mapping[str, State]
    """By name, for example {"conv": State((3, 512)), "state": State((8, 64, 64), "float32")}."""
    kind = "recurrent"

    def __hash__(self) -> int:
        return hash(tuple(self.states.items()))


@dataclass(frozen=True, slots=True)
class Encoder:
    """Keys and values of something that is not a token stream (an image, an encoded text)."""

    kv_heads: int
    """As in Full."""
    head_dim: int
    """Elements of a key, and of a value, per head."""
    of_prompt: bool = False
    """It is the request's prompt, read by an encoder: one entry for each token of it."""
    kind = "encoder"


@dataclass(frozen=True, slots=True)
class Shared:
    """A layer that reads the memory of an earlier one and has none itself."""

    layer: int
    """Index of the layer it reads."""
    kind = "shared"


@dataclass(frozen=True, slots=True)
class Stateless:
    """A layer that looks at one token only (an MLP or expert block on its own)."""

    kind = "stateless"


LayerSpec = Full | Rotating | Chunked | Pooled | Recurrent | Encoder | Shared | Stateless


def grouping(size: int) -> int | None:
    """How many elements of a key or value of this size share a scale; None where no quantized format can
    hold it.
    """
    return next((group for group in GROUP_SIZES if size % group == 0), None)


def keeps_tokens(spec: LayerSpec) -> bool:
    """Does the layer keep keys and values per token, and so in a format of its own?"""
    return isinstance(spec, Full | Rotating | Chunked)


def reads_prompt(layout: Sequence[LayerSpec]) -> bool:
    """Does an encoder read the prompt, so that the answer is all that the other layers remember?"""
    return any(isinstance(spec, Encoder) and spec.of_prompt for spec in layout)


def misfits(layout: Sequence[LayerSpec], kept_format: str | None) -> list[str]:
    """The layers whose keys or values this format cannot hold, one sentence each."""
    row = find_format(kept_format) if kept_format is not None else None
    if row is None or not row.quantized:
        return []
    return [
        f"layer {i} ({spec.kind}) has {'keys' if place == 0 else 'values'} of {size} elements, "
        f"which is not a multiple of {GROUP_SIZES[-1]}"
        for i, spec in enumerate(layout)
        for place, size in enumerate(_sizes(spec))
        if grouping(size) is None
    ]


def bytes_per_token(spec: LayerSpec, element_bytes: int = 2, kept_format: str | None = None) -> int:
    """What one more token costs while the layer still grows; 0 for layers of constant size."""
    match spec:
        case Full() | Rotating() | Chunked():
            per_head = sum(_vector_bytes(size, element_bytes, kept_format) for size in _sizes(spec))
            return spec.kv_heads * per_head
        case Pooled():
            return -(-spec.size * element_bytes // spec.every)
        case Encoder(of_prompt=True):
            return 2 * spec.kv_heads * spec.head_dim * element_bytes
        case _:
            return 0


def kept_slots(spec: Full | Rotating | Chunked, slack: int = SLACK) -> int | None:
    """The most tokens that the layer has room for in a row; None: all. Beyond its span it keeps what is seen
    again once `slack` tokens are forgotten, and room for some steps before what it keeps moves.
    """
    if isinstance(spec, Full):
        return None
    return _span(spec) + slack + max(slack, _span(spec) // 8, 1)


def bytes_per_sequence(
    spec: LayerSpec, tokens: int, element_bytes: int = 2, slack: int = SLACK, kept_format: str | None = None
) -> int:
    """What one sequence of `tokens` tokens holds in this layer. slack: as in `kept_slots`.

    Where an encoder reads the prompt: of a prompt of `tokens` tokens, and an answer of as many.
    """
    match spec:
        case Encoder(of_prompt=True):
            return tokens * bytes_per_token(spec, element_bytes, kept_format)
        case Full() | Rotating() | Chunked():
            most = kept_slots(spec, slack)
            held = tokens if most is None else min(tokens, most)
            return held * bytes_per_token(spec, element_bytes, kept_format)
        case Pooled():
            return tokens // spec.every * spec.size * element_bytes
        case Recurrent():
            return sum(_state_bytes(state, element_bytes) for state in spec.states.values())
        case _:
            return 0


def sequence_bytes(
    layout: Sequence[LayerSpec],
    tokens: int,
    element_bytes: int = 2,
    slack: int = SLACK,
    kept_format: str | None = None,
) -> int:
    """All layers together."""
    return sum(bytes_per_sequence(spec, tokens, element_bytes, slack, kept_format) for spec in layout)


def wide_step_bytes(
    layout: Sequence[LayerSpec],
    tokens: int,
    width: int,
    element_bytes: int = 2,
    kept_format: str | None = None,
) -> int:
    """What layers with a window hold beside their memory while a prompt of `tokens` tokens is read, `width`
    at once: keys and values of the whole step, until the last layer has read it.
    """
    return sum(
        width * bytes_per_token(spec, element_bytes, kept_format)
        for spec in layout
        if isinstance(spec, Rotating | Chunked)
        and tokens > (kept_slots(spec) or 0)
        and width > max(SLACK, _span(spec) // 8)
    )


def growing_bytes(
    layout: Sequence[LayerSpec], tokens: int, element_bytes: int = 2, kept_format: str | None = None
) -> int:
    """What is held beside layer memory for a moment while a sequence gets so long. Layers that grow are
    copied one after the other, so one of them is there twice; all folds are, from a step to its commit.
    """

    def held(*kinds: type[LayerSpec]) -> list[int]:
        its = (spec for spec in layout if isinstance(spec, kinds))
        return [bytes_per_sequence(spec, tokens, element_bytes, kept_format=kept_format) for spec in its]

    return max(0, *held(Full, Rotating, Chunked, Pooled), sum(held(Recurrent)))


def _span(spec: Rotating | Chunked) -> int:
    """The most tokens that a query sees."""
    return spec.window if isinstance(spec, Rotating) else spec.chunk


def _sizes(spec: LayerSpec) -> list[int]:
    """Elements of a key and of a value per head; values that are a prefix of the keys take none."""
    match spec:
        case Full() | Rotating() | Chunked():
            values = spec.head_dim if spec.value_dim is None else spec.value_dim
            return [size for size in (spec.head_dim, values) if size]
        case _:
            return []


def _vector_bytes(size: int, element_bytes: int, kept_format: str | None) -> int:
    """One key or value: its elements, or their codes with a scale and a bias per group in the activations'
    type.
    """
    row = find_format(kept_format) if kept_format is not None else None
    if row is None:
        return size * element_bytes
    group = grouping(size) if row.quantized else None
    return size * row.bits // 8 + (2 * size // group * element_bytes if group else 0)


def _state_bytes(state: State, element_bytes: int) -> int:
    size = {"activation": element_bytes, "float32": 4, "float16": 2, "bfloat16": 2}[state.dtype]
    for dim in state.shape:
        size *= dim
    return size


def donors(layout: Sequence[LayerSpec]) -> list[int]:
    """For each layer, the layer whose memory it uses: its own index unless it is Shared."""
    found: list[int] = []
    for i, spec in enumerate(layout):
        if isinstance(spec, Shared):
            assert 0 <= spec.layer < i, "a layer can share an earlier layer's memory only"
            found.append(found[spec.layer])
        else:
            found.append(i)
    return found
