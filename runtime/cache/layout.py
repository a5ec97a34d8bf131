"""What each layer remembers, as data. A model declares a list of these and never builds a cache.

Because a layout is plain data, memory per token and per sequence is known before a weight is read: `create`
and `show` print it, the loader compares it with what the machine has. No MLX here; dtypes are names.

Sizes assume `element_bytes` per key or value element (2 for f16 and bf16, 4 for f32).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Full:
    """Attention over the whole past: keys [kv_heads, head_dim] and values [kv_heads, value_dim] per token.

    value_dim 0 means that the values are a prefix of the keys (multi-head latent attention).
    """

    kv_heads: int
    head_dim: int
    value_dim: int | None = None
    kind = "full"


@dataclass(frozen=True, slots=True)
class Rotating:
    """Attention over the last `window` tokens, the query's own included."""

    kv_heads: int
    head_dim: int
    window: int
    value_dim: int | None = None
    kind = "rotating"


@dataclass(frozen=True, slots=True)
class Chunked:
    """Attention inside blocks of `chunk` tokens: position p sees the keys from p - p % chunk on."""

    kv_heads: int
    head_dim: int
    chunk: int
    value_dim: int | None = None
    kind = "chunked"


@dataclass(frozen=True, slots=True)
class State:
    """One named array of a recurrent layer, for one sequence. dtype "activation" follows the weights."""

    shape: tuple[int, ...]
    dtype: str = "activation"


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A fold over all tokens: for example {"conv": State((3, 512)), "state": State((8, 64, 64),
    "float32")}.
    """

    states: Mapping[str, State]
    kind = "recurrent"

    def __hash__(self) -> int:
        return hash(tuple(self.states.items()))


@dataclass(frozen=True, slots=True)
class Encoder:
    """Keys and values of something that is not a token stream (an image, an encoded text)."""

    kv_heads: int
    head_dim: int
    kind = "encoder"


@dataclass(frozen=True, slots=True)
class Shared:
    """Reads the cache of an earlier layer, owns nothing. `layer` is the donor's index."""

    layer: int
    kind = "shared"


@dataclass(frozen=True, slots=True)
class Stateless:
    """A layer that looks at one token only (an MLP or expert block on its own)."""

    kind = "stateless"


LayerSpec = Full | Rotating | Chunked | Recurrent | Encoder | Shared | Stateless


def bytes_per_token(spec: LayerSpec, element_bytes: int = 2) -> int:
    """What one more token costs while the layer still grows; 0 for layers of constant size."""
    match spec:
        case Full() | Rotating() | Chunked():
            values = spec.head_dim if spec.value_dim is None else spec.value_dim
            return spec.kv_heads * (spec.head_dim + values) * element_bytes
        case _:
            return 0


def bytes_per_sequence(spec: LayerSpec, tokens: int, element_bytes: int = 2, slack: int = 0) -> int:
    """What one sequence of `tokens` tokens holds in this layer. Windowed kinds keep `slack` tokens more."""
    match spec:
        case Full():
            return tokens * bytes_per_token(spec, element_bytes)
        case Rotating():
            return min(tokens, spec.window + slack) * bytes_per_token(spec, element_bytes)
        case Chunked():
            return min(tokens, spec.chunk + slack) * bytes_per_token(spec, element_bytes)
        case Recurrent():
            return sum(_state_bytes(state, element_bytes) for state in spec.states.values())
        case _:
            return 0


def sequence_bytes(layout: Sequence[LayerSpec], tokens: int, element_bytes: int = 2, slack: int = 0) -> int:
    """All layers together."""
    return sum(bytes_per_sequence(spec, tokens, element_bytes, slack) for spec in layout)


def _state_bytes(state: State, element_bytes: int) -> int:
    size = {"activation": element_bytes, "float32": 4, "float16": 2, "bfloat16": 2}[state.dtype]
    for dim in state.shape:
        size *= dim
    return size
