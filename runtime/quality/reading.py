"""One forward pass over a whole sequence, with memory that nothing else sees."""

from collections.abc import Sequence

import mlx.core as mx

from runtime.loaded import LoadedModel
from runtime.nn.rope_spec import long_after
from runtime.step import Inputs, Step


def logits(model: LoadedModel, ids: Sequence[int]) -> mx.array:
    """What is predicted after each of `ids`, float32 [T, V]; lazy."""
    return together(model, [ids])[0]


def together(model: LoadedModel, texts: Sequence[Sequence[int]]) -> mx.array:
    """The same of several texts of one length, float32 [B, T, V]; lazy."""
    rows, tokens = len(texts), len(texts[0])
    border = long_after(model.described.config)
    long = None if border is None else (tokens > border,) * rows
    memory = model.memory(rows)
    inputs = Inputs(mx.array([list(text) for text in texts], dtype=mx.int32))
    step = Step((0,) * rows, (tokens,) * rows, long=long, inputs=inputs)
    memory.prepare(step)
    return model.network.logits(model.network(step, memory)).astype(mx.float32)


def log_odds(logits: mx.array) -> mx.array:
    """Logarithms of probabilities along the last axis."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
