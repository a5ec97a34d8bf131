"""Text that a model writes itself: what a quantized model is compared on where nobody brings a text.

Needs no corpus and no licence and fits any language; the tokens are drawn from the model's own distribution,
with noise that depends on seed, row and position alone.
"""

from collections.abc import Callable, Collection

import mlx.core as mx
import numpy as np

from runtime.loaded import LoadedModel
from runtime.quality.reading import adapters_of
from runtime.sampling.noise import dense_gumbel, keys
from runtime.step import Inputs, Step

SEED = 20011


def write(
    model: LoadedModel,
    start_id: int,
    rows: int,
    tokens: int,
    *,
    never: Collection[int] = (),
    sources: np.ndarray | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """int32 [rows, tokens]: texts that begin with `start_id`. never: ids that are not drawn, as those that
    would end a text. sources: of a model whose prompts an encoder reads, int32 [rows, T]: what it answers.
    advance: called with the tokens written.
    """
    memory = model.memory(rows)
    barred = mx.zeros((model.vocab_size,))
    if never:
        barred[mx.array(sorted(never))] = -mx.inf
    seeds = [SEED + row for row in range(rows)]
    last = np.full((rows, 1), start_id, np.int32)
    texts = [last]
    adapters = adapters_of(model, rows)
    for place in range(tokens - 1):
        step = Step((place,) * rows, (1,) * rows, inputs=Inputs(mx.array(last)), adapters=adapters)
        memory.prepare(step)
        if sources is not None and not place:
            model.network.encode(Inputs(mx.array(sources)), step, memory)
        logits = model.network.logits(model.network(step, memory), step)[:, -1].astype(mx.float32)
        noise = dense_gumbel(keys(seeds, [place] * rows, 1), model.vocab_size)[:, 0]
        last = np.array(mx.argmax(logits + barred + noise, axis=-1), np.int32)[:, None]
        memory.commit(step, step.counts)
        texts.append(last)
        advance(rows)
    return np.concatenate(texts, axis=1)
