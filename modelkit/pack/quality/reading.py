"""The model that formats are chosen for, in memory as floats, and the texts on which it is compared.

All numbers are computed in float32, whatever the source's type. Texts are short: a sequence's activations
stay in memory while it is differentiated.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.errors import ModelkitError, PlanError
from modelkit.pack.conversion import Progress
from modelkit.pack.part import Part
from modelkit.source.prequantized import FloatWeights, GgufWeights
from runtime.blocks.types import BLOCK_TYPES
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx

    from modelkit.pack.ready import Ready
    from runtime.loaded import LoadedModel

Texts = tuple[tuple[int, ...], ...]

_MOST_TEXT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is read."""

    calibration: int = 8
    """Texts."""
    held_out: int = 4
    """Texts that nothing is chosen by."""
    tokens: int = 128
    """Of each text."""
    steps: int = 150
    """Of tuning."""
    training: int = 32
    """Texts that scales are tuned on."""


SIZES = Sizes()


@dataclass(frozen=True, slots=True)
class Reading:
    """A model and its texts."""

    model: "LoadedModel"
    calibration: Texts
    held_out: Texts
    own: bool
    """Did the model write the calibration texts itself?"""
    training: Texts = ()
    """For tuning: the model's own."""
    steps: int = 0
    """Of tuning."""


def refuse_packed(part: Part, asked: object) -> None:
    """Raise PlanError unless the source is plain floats: only those can be read without loss. And for a model
    that writes nothing by which formats could be told apart. Nothing is loaded for it.
    """
    from runtime.models import describe

    kind = part.source.kind
    if not describe(part.plan.config).writes:
        raise PlanError(
            f"{part.source.inventory.origin} makes embeddings: no formats are searched for by what it writes",
            hint="Name a format, such as q8.",
        )
    if isinstance(kind, FloatWeights):
        return
    origin = part.source.inventory.origin
    if isinstance(kind, GgufWeights):
        types = [name.upper() for name in kind.types() if name in BLOCK_TYPES]
        if not types:
            return
        raise PlanError(
            f"{origin} is quantized already ({', '.join(types)}); it cannot be stored as {asked}",
            hint="Start from the unquantized model. Where there is none, decode it first: create a package "
            "of it with -q bf16, and name that in FROM; formats are found for what is left of its numbers.",
        )
    if part.plan.converts:
        raise PlanError(
            f"{origin} has to be converted before it can be read, so no formats can be searched for",
            hint="Make a package of it first, with -q bf16, and name that in FROM.",
        )
    raise PlanError(
        f"{origin} is quantized already; it cannot be stored as {asked}",
        hint="Leave the target out, or start from the unquantized model.",
    )


def read(part: Part, ready: "Ready", calibration: Path | None, progress: Progress, *, train: bool) -> Reading:
    """Load the part's source and write or read its texts. Raises PlanError: too large."""
    model = load(part)
    if model.described.start_id is not None:
        return _answers(part, model, ready, calibration, progress, train=train)
    tokens = min(SIZES.tokens, model.context_length)
    counts = (0 if calibration else SIZES.calibration, SIZES.held_out, SIZES.training if train else 0)
    rows = _written(part, model, ready, _start(ready), sum(counts), tokens, progress)
    own, held, more = rows[: counts[0]], rows[counts[0] : sum(counts[:2])], rows[sum(counts[:2]) :]
    texts = _cut(calibration, ready, tokens) if calibration else tuple(own)
    return Reading(model, texts, tuple(held), calibration is None, tuple(more), SIZES.steps)


def _answers(
    part: Part,
    model: "LoadedModel",
    ready: "Ready",
    calibration: Path | None,
    progress: Progress,
    *,
    train: bool,
) -> Reading:
    """Of a model whose prompts an encoder reads, texts are its answers. What it answers is the calibration's
    text, else what it answered before, the first time to an empty prompt.
    """
    from runtime.quality.reading import answering

    start, end = model.described.start_id, prompt_end(ready)
    assert start is not None
    tokens = min(SIZES.tokens, model.context_length)
    given = [(*text, end) for text in _cut(calibration, ready, tokens - 1)] if calibration else []
    counts = (len(given) or SIZES.calibration, SIZES.held_out, SIZES.training if train else 0)
    asked = [(end,)] * (sum(counts) - len(given))
    wrote = _written(part, model, ready, start, len(asked), tokens, progress, sources=asked)
    prompts = [*given, *((*text[1:], end) for text in wrote)]
    rows = _written(part, model, ready, start, len(prompts), tokens, progress, sources=prompts)
    model = answering(model, dict(zip(rows, prompts, strict=True)))
    texts, held, more = rows[: counts[0]], rows[counts[0] : sum(counts[:2])], rows[sum(counts[:2]) :]
    return Reading(model, tuple(texts), tuple(held), calibration is None, tuple(more), SIZES.steps)


def _written(
    part: Part,
    model: "LoadedModel",
    ready: "Ready",
    start: int,
    count: int,
    tokens: int,
    progress: Progress,
    sources: "Sequence[Sequence[int]] | None" = None,
) -> list[tuple[int, ...]]:
    """Texts of the model's own. sources: what it answers, one for each, of one length."""
    import numpy as np

    from runtime.quality import own_text

    never = {one for one in (*ready.stop_ids, *ready.suppressed) if one < model.vocab_size}
    asked = None if sources is None else np.array(sources, np.int32).reshape(count, -1)
    progress.begin(f"{part.plan.role}: writing tokens", count * (tokens - 1))
    try:
        found = own_text.write(
            model, start, count, tokens, never=never, sources=asked, advance=progress.advance
        )
    finally:
        progress.finish()
    return [tuple(row) for row in found.tolist()]


def load(part: Part) -> "LoadedModel":
    """The part's source as float32. Raises PlanError."""
    from runtime.cpu import bind_blas
    from runtime.device import device
    from runtime.errors import RuntimeFault
    from runtime.loaded import load_model

    here = device()
    if here.kind == "cpu":
        bind_blas()
    try:
        return load_model(
            part.plan.config, _weights(part), on=replace(here, fast_dtype="float32", as_stored=False)
        )
    except RuntimeFault as fault:
        raise PlanError(
            f"{part.source.inventory.origin} cannot be read to choose formats: {fault}",
            hint="Weights are held as float32 meanwhile. Name a format instead, such as q4.",
        ) from fault


def _weights(part: Part) -> "list[Path] | dict[str, mx.array]":
    """Where the tensors lie, or those that a package of the file would have."""
    if not isinstance(part.source.kind, GgufWeights):
        return [file.path for file in part.source.inventory.weights]
    from modelkit.pack.arrays import read_arrays

    return read_arrays(part)


def _start(ready: "Ready") -> int:
    """What texts begin with: the token that prompts begin with, else one that ends texts, as GPT-2 has it."""
    tokenizer = ready.tokenizer
    known = (tokenizer.bos_id, tokenizer.eos_id, *sorted(ready.stop_ids), 0)
    return next(one for one in known if one is not None)


def prompt_end(ready: "Ready") -> int:
    """What prompts of an encoder end with."""
    known = (ready.tokenizer.eos_id, *sorted(ready.stop_ids), 0)
    return next(one for one in known if one is not None)


def _cut(path: Path, ready: "Ready", tokens: int) -> Texts:
    """A text in pieces of `tokens` ids, spread evenly over it."""
    try:
        raw = path.read_bytes()[:_MOST_TEXT_BYTES]
        ids = ready.tokenizer.encode(raw.decode(), add_special=False)
    except (OSError, UnicodeDecodeError, ModelkitError) as error:
        raise PlanError(f"{path.name} cannot be read as a text: {error}") from error
    start = [ready.tokenizer.bos_id] if ready.tokenizer.bos_id is not None else []
    length = tokens - len(start)
    if len(ids) < length:
        raise PlanError(
            f"{path.name} has {len(ids)} tokens; at least {length} are needed",
            hint="Take a longer text, or none: the model then writes its own.",
        )
    count = min(2 * SIZES.calibration, len(ids) // length)
    starts = _spread(len(ids) - length, count)
    return tuple((*start, *ids[at : at + length]) for at in starts)


def _spread(last: int, count: int) -> Sequence[int]:
    return [last * place // max(count - 1, 1) for place in range(count)]
