"""The model that formats are chosen for, in memory as floats, and the texts on which it is compared.

All numbers are computed in float32, whatever the source's type. Texts are short: a sequence's activations
stay in memory while it is differentiated.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.errors import ModelkitError, PlanError
from modelkit.pack.conversion import Part, Progress
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
    that writes nothing by which formats could be told apart, or only an answer to what its encoder reads.
    Nothing is loaded for it.
    """
    from runtime.models import describe

    kind = part.source.kind
    if not describe(part.plan.config).writes:
        raise PlanError(
            f"{part.source.inventory.origin} makes embeddings: no formats are searched for by what it writes",
            hint="Name a format, such as q8.",
        )
    _refuse_encoder(part)
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


def _refuse_encoder(part: Part) -> None:
    from runtime.models import describe

    if describe(part.plan.config).start_id is not None:
        raise PlanError(
            f"{part.source.inventory.origin} answers what an encoder reads; formats are searched for in "
            "models that go on from their prompt",
            hint="Name a format instead, such as q4.",
        )


def read(part: Part, ready: "Ready", calibration: Path | None, progress: Progress, *, train: bool) -> Reading:
    """Load the part's source and write or read its texts. Raises PlanError: too large, or of a kind that
    cannot write by itself.
    """
    from runtime.quality import own_text

    _refuse_encoder(part)  # a draft's target comes here without `refuse_packed`
    model = load(part)
    tokens = min(SIZES.tokens, model.context_length)
    counts = (0 if calibration else SIZES.calibration, SIZES.held_out, SIZES.training if train else 0)
    progress.begin(f"{part.plan.role}: writing tokens", sum(counts) * (tokens - 1))
    try:
        never = {one for one in (*ready.stop_ids, *ready.suppressed) if one < model.vocab_size}
        written = own_text.write(
            model, _start(ready), sum(counts), tokens, never=never, advance=progress.advance
        )
    finally:
        progress.finish()
    rows = [tuple(row) for row in written.tolist()]
    own, held, more = rows[: counts[0]], rows[counts[0] : sum(counts[:2])], rows[sum(counts[:2]) :]
    texts = _cut(calibration, ready, tokens) if calibration else tuple(own)
    return Reading(model, texts, tuple(held), calibration is None, tuple(more), SIZES.steps)


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
