"""One forward pass over a whole sequence, with memory that nothing else sees.

Texts of a model whose prompts an encoder reads are answers: each has a prompt of its own (`Answering`), which
is read in the same pass. A model may have adapters beside its weights (`Adapted`), the same for every text.
What a model says of a text is what comes next at each place; of one that makes vectors (`Embedding`), its
vector.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields

import mlx.core as mx

from runtime.embedding import Pool, divisor, pooled
from runtime.loaded import LoadedModel
from runtime.nn.feed_forward.dense import Dense
from runtime.nn.positions.rope_spec import long_after
from runtime.records import dataclass
from runtime.step import Adapters, Inputs, Step


@dataclass(frozen=True, slots=True)
class Adapted(LoadedModel):
    """A model with what is added to its weights."""

    chosen: Callable[[int], Adapters | None] = lambda _: None
    """For a step of so many rows."""


def adapted(model: LoadedModel, chosen: Callable[[int], Adapters | None]) -> Adapted:
    """The model with these."""
    return Adapted(**{one.name: getattr(model, one.name) for one in fields(model)}, chosen=chosen)


def adapters_of(model: LoadedModel, rows: int) -> Adapters | None:
    """What a step of so many rows has of them."""
    return model.chosen(rows) if isinstance(model, Adapted) else None


@dataclass(frozen=True, slots=True)
class Answering(Adapted):
    """A model that answers what its encoder reads, with what it reads before each text."""

    sources: Mapping[tuple[int, ...], tuple[int, ...]] = field(
        default_factory=dict[tuple[int, ...], tuple[int, ...]]
    )
    """Text -> prompt. Prompts are of one length."""


def answering(model: LoadedModel, sources: Mapping[tuple[int, ...], tuple[int, ...]]) -> Answering:
    """The model with these."""
    return Answering(**{one.name: getattr(model, one.name) for one in fields(model)}, sources=sources)


@dataclass(frozen=True, slots=True)
class Embedding(Adapted):
    """A model of which a text's vector counts."""

    pool: Pool = "mean"
    dense: Sequence[Dense] = ()
    """What the vector passes through then."""
    skipped: int = 0
    """How many tokens at the beginning of each text are no part of it."""


def embedding(model: LoadedModel, pool: Pool, dense: Sequence[Dense], skipped: int = 0) -> Embedding:
    """The model with these."""
    own = {one.name: getattr(model, one.name) for one in fields(model)}
    return Embedding(**own, pool=pool, dense=dense, skipped=skipped)


def outputs(model: LoadedModel, texts: Sequence[Sequence[int]]) -> mx.array:
    """What a model says of texts of one length, float32; lazy. Logarithms of probabilities [B, T, V]; of
    vectors, which texts of any length have, each of length 1: [B, D].
    """
    if isinstance(model, Embedding):
        return mx.concatenate([_vector(model, ids) for ids in texts])
    return log_odds(together(model, texts))


def distance(wanted: mx.array, found: mx.array, model: LoadedModel) -> mx.array:
    """How far what is found is from what is wanted, both as `outputs`: the KL divergence at each place in
    nats [B, T]; of vectors what their cosine lacks of 1 [B], half the square of their distance.
    """
    if isinstance(model, Embedding):
        return (wanted - found).square().sum(axis=-1) / 2
    return (mx.exp(wanted) * (wanted - found)).sum(axis=-1)


def _vector(model: Embedding, ids: Sequence[int]) -> mx.array:
    """[1, D], of length 1; lazy."""
    hidden, step = _read(model, [ids])
    counts, skipped = mx.array(step.counts), model.skipped
    summed = pooled(hidden.astype(mx.float32), counts, model.pool, skipped=(skipped,))
    vector = summed / divisor(len(ids), model.pool, skipped)
    for layer in model.dense:
        vector = layer(vector)
    return vector / mx.sqrt(vector.square().sum(axis=-1, keepdims=True))


def logits(model: LoadedModel, ids: Sequence[int]) -> mx.array:
    """What is predicted after each of `ids`, float32 [T, V]; lazy."""
    return together(model, [ids])[0]


def together(model: LoadedModel, texts: Sequence[Sequence[int]]) -> mx.array:
    """The same of several texts of one length, float32 [B, T, V]; lazy."""
    hidden, step = _read(model, texts)
    return model.network.logits(hidden, step).astype(mx.float32)


def _read(model: LoadedModel, texts: Sequence[Sequence[int]]) -> tuple[mx.array, Step]:
    """(the hidden states [B, T, D] of texts of one length, the step they were read in); lazy."""
    rows, tokens = len(texts), len(texts[0])
    border = long_after(model.described.config)
    long = None if border is None else (tokens > border,) * rows
    memory = model.memory(rows)
    inputs = Inputs(mx.array([list(text) for text in texts], dtype=mx.int32))
    adapters = adapters_of(model, rows)
    step = Step((0,) * rows, (tokens,) * rows, long=long, inputs=inputs, adapters=adapters)
    memory.prepare(step)
    if isinstance(model, Answering):
        prompts = [list(model.sources[tuple(text)]) for text in texts]
        model.network.encode(Inputs(mx.array(prompts, dtype=mx.int32)), step, memory)
    return model.network(step, memory), step


def log_odds(logits: mx.array) -> mx.array:
    """Logarithms of probabilities along the last axis."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
