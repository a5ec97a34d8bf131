"""One forward pass over a whole sequence, with memory that nothing else sees."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.build import build_memory
from runtime.loaded import LoadedModel
from runtime.nn.rope_spec import long_after
from runtime.step import Inputs, Step


def logits(model: LoadedModel, ids: Sequence[int], network: Any = None) -> mx.array:
    """What is predicted after each of `ids`, float32 [T, V]; lazy. network: another one for that config."""
    network = model.network if network is None else network
    border = long_after(model.described.config)
    long = None if border is None else (len(ids) > border,)
    memory = build_memory(model.described.layout, dtype=model.dtype)
    inputs = Inputs(mx.array([list(ids)], dtype=mx.int32))
    step = Step((0,), (len(ids),), long=long, inputs=inputs)
    memory.prepare(step)
    return network.logits(network(step, memory))[0].astype(mx.float32)


def log_odds(logits: mx.array) -> mx.array:
    """Logarithms of probabilities along the last axis."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
