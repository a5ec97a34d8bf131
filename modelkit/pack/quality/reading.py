"""The model that formats are chosen for, in memory as floats, and the texts on which it is compared.

All numbers are computed in float32, whatever the source's type. Texts are short: a sequence's activations
stay in memory while it is differentiated. A model that makes vectors writes no texts: they are lines of a
file, every other one held out.
"""

from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit.display import UTF_8
from modelkit.errors import ModelkitError, PlanError
from modelkit.pack.part import Part
from modelkit.pack.planning.left_out import is_in_the_way
from modelkit.pack.planning.plan import plan
from modelkit.pack.planning.planned import Plan
from modelkit.pack.planning.policy import Choice
from modelkit.progress import Progress, bar
from modelkit.python_faults import unread
from modelkit.source.prequantized import (
    CodeWeights,
    FloatWeights,
    Fp8Weights,
    GgufWeights,
    MlxWeights,
    SourceKind,
)
from modelkit.tokenizer.tokenizer import MOST_CHARS
from runtime.blocks.types import BLOCK_TYPES
from runtime.quant import Format, find_format
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx

    from modelkit.pack.ready import Ready
    from runtime.loaded import LoadedModel

Texts = tuple[tuple[int, ...], ...]

_MOST_TEXT_BYTES = 64 << 20
_LEAST_LINES = 8


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
    lines: int = 64
    """Of a model that makes vectors: texts in all."""


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
    """For tuning: the model's own; of one that makes vectors the calibration texts."""
    steps: int = 0
    """Of tuning."""
    vectors: bool = False
    """Does the model make vectors, and write nothing?"""


def read(
    part: Part,
    ready: "Ready",
    calibration: Path | None,
    progress: Progress,
    *,
    train: bool,
    draft: "LoadedModel | None" = None,
) -> Reading:
    """Load the part's source and write or read its texts. draft: a model that reads them, too. Raises
    PlanError: too large.
    """
    model = load(part)
    if not model.described.writes:
        return _vectors(model, ready, calibration, train=train)
    if model.described.start_id is not None:
        return _answers(part, model, ready, calibration, progress, train=train)
    readers = (model, draft) if draft else (model,)
    width = min(one.vocab_size for one in readers)
    tokens = min(SIZES.tokens, *(one.context_length for one in readers))
    counts = (0 if calibration else SIZES.calibration, SIZES.held_out, SIZES.training if train else 0)
    rows = _written(part, model, ready, _start(ready), sum(counts), tokens, progress, width=width)
    own, held, more = rows[: counts[0]], rows[counts[0] : sum(counts[:2])], rows[sum(counts[:2]) :]
    texts = _cut(calibration, ready, tokens, width) if calibration else tuple(own)
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
    cut = _cut(calibration, ready, tokens - 1, model.vocab_size) if calibration else ()
    given = [(*text, end) for text in cut]
    counts = (len(given) or SIZES.calibration, SIZES.held_out, SIZES.training if train else 0)
    asked = [(end,)] * (sum(counts) - len(given))
    wrote = _written(part, model, ready, start, len(asked), tokens, progress, sources=asked)
    prompts = [*given, *((*text[1:], end) for text in wrote)]
    rows = _written(part, model, ready, start, len(prompts), tokens, progress, sources=prompts)
    model = answering(model, dict(zip(rows, prompts, strict=True)))
    texts, held, more = rows[: counts[0]], rows[counts[0] : sum(counts[:2])], rows[sum(counts[:2]) :]
    return Reading(model, tuple(texts), tuple(held), calibration is None, tuple(more), SIZES.steps)


def _vectors(model: "LoadedModel", ready: "Ready", calibration: Path | None, *, train: bool) -> Reading:
    """Of a model that makes vectors. It reads as it does for a user: behind what its authors put before
    texts, and cut where they say, but sooner.
    """
    from runtime.nn.dense import Dense
    from runtime.quality.reading import embedding

    assert calibration is not None, "refuse_packed asks for it"
    pooling = ready.pooling
    if pooling.problem is not None:
        raise PlanError(f"formats cannot be tried on vectors: there are none, since {pooling.problem}")
    most = min(SIZES.tokens, model.context_length, pooling.most_tokens or SIZES.tokens)
    skipped = pooling.skipped(pooling.prefix, ready.tokenizer)
    texts = _lines(calibration, ready, most, model.vocab_size, skipped)
    chosen, held = texts[::2], texts[1::2]
    model = embedding(model, pooling.pool, [Dense(one.read()) for one in pooling.dense], skipped)
    return Reading(model, chosen, held, False, chosen if train else (), SIZES.steps, vectors=True)


def _lines(path: Path, ready: "Ready", most: int, width: int, skipped: int) -> Texts:
    """The lines of a file, as many as are looked at, spread evenly over it. most: tokens of each. width: ids
    below it can be read. skipped: tokens of each that are no part of its vector.
    """
    pooling = ready.pooling
    lines = [*dict.fromkeys(line.strip() for line in _beginning(path).splitlines() if line.strip())]
    if len(lines) < _LEAST_LINES:
        raise PlanError(
            f"{path.name} has {len(lines)} different lines; at least {_LEAST_LINES} are needed",
            hint="The model makes embeddings: each line is a text that it makes a vector of.",
        )
    picked = [lines[at] for at in _spread(len(lines) - 1, min(SIZES.lines, len(lines)))]
    plain = [pooling.plain(pooling.prefix + line) for line in picked]
    try:
        read = [ready.tokenizer.encode_within(one, most)[0] for one in plain]
    except ModelkitError as error:
        raise PlanError(f"{path.name} cannot be read as texts: {error}") from error
    beyond = next((one for ids in read for one in ids if one >= width), None)
    if beyond is not None:
        raise PlanError(f"{path.name} has the token {beyond}, which the model has no embedding for")
    return tuple(tuple(ids) for ids in read if len(ids) > skipped)


def _written(
    part: Part,
    model: "LoadedModel",
    ready: "Ready",
    start: int,
    count: int,
    tokens: int,
    progress: Progress,
    sources: "Sequence[Sequence[int]] | None" = None,
    width: int | None = None,
) -> list[tuple[int, ...]]:
    """Texts of the model's own. sources: what it answers, one for each, of one length. width: ids below it
    are written.
    """
    import numpy as np

    from runtime.quality import own_text

    never = {one for one in (*ready.stop_ids, *ready.suppressed) if one < model.vocab_size}
    never.update(range(width or model.vocab_size, model.vocab_size))
    asked = None if sources is None else np.array(sources, np.int32).reshape(count, -1)
    with bar(progress, f"{part.plan.role}: writing tokens", count * (tokens - 1)):
        found = own_text.write(
            model, start, count, tokens, never=never, sources=asked, advance=progress.advance
        )
    return [tuple(row) for row in found.tolist()]


def load(part: Part) -> "LoadedModel":
    """The part's source as float32. Raises PlanError."""
    from runtime.cpu import bind_blas
    from runtime.device import device
    from runtime.errors import RuntimeFault
    from runtime.loading import load_model

    here = device()
    config, weights = _stored(part)
    try:
        if here.kind == "cpu":
            bind_blas()
        return load_model(config, weights, on=replace(here, fast_dtype="float32", as_stored=False))
    except RuntimeFault as fault:
        raise PlanError(
            f"{part.source.inventory.origin} cannot be read to choose formats: {fault}",
            hint="Weights are held as float32 meanwhile. Name a format instead, such as q4.",
        ) from fault


def _stored(part: Part) -> "tuple[Mapping[str, Any], list[Path] | dict[str, mx.array]]":
    """What the source says of itself, and its weights: where they lie, or, of a form that nothing runs, the
    tensors of a package with their numbers. Never in the format that the part is to get. Numbers whose
    formats are to be found are floats: the network is differentiated.
    """
    kind, inventory = part.source.kind, part.source.inventory
    floats = isinstance(kind, FloatWeights) and not is_in_the_way(inventory)
    if floats or (isinstance(kind, MlxWeights) and not kind.factored):
        return part.plan.config, [file.path for file in inventory.weights]
    from modelkit.pack.writing.arrays import read_arrays

    searched = part.asked is not None and part.asked.measures
    if isinstance(kind, Fp8Weights):
        whole = replace(part, plan=_decoded(part))
    elif searched and (isinstance(kind, CodeWeights) or is_packed(kind)):
        whole = replace(part, plan=_plan(part, find_format("f32")))
    else:
        whole = replace(part, plan=_plan(part, None))
    return whole.plan.config, read_arrays(whole)


def _decoded(part: Part) -> Plan:
    """Of FP8: it becomes bfloat16, which is what formats are made of; the rest stays."""
    fine = _plan(part, find_format("q8g32"))
    return _plan(part, fine.format, {one.name: Choice(None, "as in the source") for one in fine.tensors})


def is_packed(kind: SourceKind) -> bool:
    """Is it a GGUF file with blocks?"""
    return isinstance(kind, GgufWeights) and any(name in BLOCK_TYPES for name in kind.types())


def _plan(part: Part, wanted: Format | None, chosen: Mapping[str, Choice] | None = None) -> Plan:
    source, role = part.source, part.plan.role
    return plan(source.inventory, source.kind, wanted, role=role, spare=part.spare, chosen=chosen)


def _start(ready: "Ready") -> int:
    """What texts begin with: the token that prompts begin with, else one that ends texts, as GPT-2 has it."""
    tokenizer = ready.tokenizer
    known = (tokenizer.bos_id, tokenizer.eos_id, *sorted(ready.stop_ids), 0)
    return next(one for one in known if one is not None)


def prompt_end(ready: "Ready") -> int:
    """What prompts of an encoder end with."""
    known = (ready.tokenizer.eos_id, *sorted(ready.stop_ids), 0)
    return next(one for one in known if one is not None)


def _cut(path: Path, ready: "Ready", tokens: int, width: int) -> Texts:
    """A text in pieces of `tokens` ids, spread evenly over as much as is tokenized at once. width: ids below
    it can be read.
    """
    text = _beginning(path)[:MOST_CHARS]
    try:
        ids = ready.tokenizer.encode(text, add_special=False)
    except ModelkitError as error:
        raise PlanError(f"{path.name} cannot be read as a text: {unread(error)}") from error
    beyond = next((one for one in ids if one >= width), None)
    if beyond is not None:
        raise PlanError(
            f"{path.name} has the token {beyond}, which the model has no embedding for",
            hint="Take a text without special tokens of images and the like.",
        )
    start = [ready.tokenizer.bos_id] if ready.tokenizer.bos_id is not None else []
    length = tokens - len(start)
    if len(ids) < length:
        raise PlanError(
            f"{path.name} has {len(ids):,} tokens; at least {length:,} are needed",
            hint="Take a longer text, or none: the model then writes its own.",
        )
    count = min(2 * SIZES.calibration, len(ids) // length)
    starts = _spread(len(ids) - length, count)
    return tuple((*start, *ids[at : at + length]) for at in starts)


def _beginning(path: Path) -> str:
    """As much of a text as is looked at, in whole letters. Raises PlanError."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_TEXT_BYTES)
        return getincrementaldecoder(UTF_8)().decode(raw, final=len(raw) < _MOST_TEXT_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path.name} cannot be read as a text: {unread(error)}") from error


def _spread(last: int, count: int) -> Sequence[int]:
    return [last * place // max(count - 1, 1) for place in range(count)]
