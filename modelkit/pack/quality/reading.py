"""A model whose formats are to be found, and the texts on which it is compared.

Texts are short: a sequence's activations stay in memory while it is differentiated. A model that makes
vectors writes no texts: they are lines of a file, every other one held out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.errors import PlanError
from modelkit.pack.part import Part
from modelkit.pack.quality.float_model import load
from modelkit.pack.quality.own_texts import TextWriter, prompt_end, text_start
from modelkit.pack.quality.text_file import Text, TextLimits, Texts, read_lines, read_pieces
from modelkit.progress import Progress
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.pack.model_setup import ModelSetup
    from runtime.loaded import LoadedModel


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


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many texts are for what. They are written together, in this order."""

    calibration: int
    held_out: int
    training: int

    @property
    def all(self) -> int:
        return self.calibration + self.held_out + self.training

    def split(self, texts: Sequence[Text]) -> tuple[Texts, Texts, Texts]:
        held, training = self.calibration, self.calibration + self.held_out
        return tuple(texts[:held]), tuple(texts[held:training]), tuple(texts[training:])


def read(
    part: Part,
    ready: "ModelSetup",
    calibration: Path | None,
    progress: Progress,
    *,
    train: bool,
    draft: "LoadedModel | None" = None,
) -> Reading:
    """Load the part's source and write or read its texts. calibration: a file to read them from. train: texts
    for tuning are needed, too. draft: a model that reads the texts, too. Raises PlanError: too large.
    """
    model = load(part)
    if not model.described.writes:
        return _vectors(model, ready, calibration, train=train)
    start = model.described.start_id
    readers = (model, draft) if draft and start is None else (model,)
    writer = TextWriter(
        model,
        text_start(ready) if start is None else start,
        tokens=min(SIZES.tokens, *(one.context_length for one in readers)),
        width=min(one.vocab_size for one in readers),
        never=(*ready.stop_ids, *ready.suppressed),
        progress=progress,
        label=f"{part.plan.role}: writing tokens",
    )
    return (_texts if start is None else _answers)(writer, ready, calibration, train=train)


def _texts(writer: TextWriter, ready: "ModelSetup", calibration: Path | None, *, train: bool) -> Reading:
    """Of a model that goes on from its prompt."""
    counts = _Counts(0 if calibration else SIZES.calibration, SIZES.held_out, SIZES.training if train else 0)
    own, held, training = counts.split(writer.texts(counts.all))
    texts = _pieces(calibration, ready, writer, writer.tokens) if calibration else own
    return Reading(writer.model, texts, held, calibration is None, training, SIZES.steps)


def _answers(writer: TextWriter, ready: "ModelSetup", calibration: Path | None, *, train: bool) -> Reading:
    """Of a model whose prompts an encoder reads, texts are its answers. What it answers is the calibration's
    text, else what it answered before, the first time to an empty prompt.
    """
    from runtime.quality.reading import answering

    end = prompt_end(ready)
    pieces = _pieces(calibration, ready, writer, writer.tokens - 1) if calibration else ()
    given = [(*piece, end) for piece in pieces]
    counts = _Counts(len(given) or SIZES.calibration, SIZES.held_out, SIZES.training if train else 0)
    first = writer.answers([(end,)] * (counts.all - len(given)))
    prompts = [*given, *((*text[1:], end) for text in first)]
    answers = writer.answers(prompts)
    model = answering(writer.model, dict(zip(answers, prompts, strict=True)))
    texts, held, training = counts.split(answers)
    return Reading(model, texts, held, calibration is None, training, SIZES.steps)


def _pieces(file: Path, ready: "ModelSetup", writer: TextWriter, tokens: int) -> Texts:
    return read_pieces(file, ready.tokenizer, TextLimits(2 * SIZES.calibration, tokens, writer.width))


def _vectors(model: "LoadedModel", ready: "ModelSetup", calibration: Path | None, *, train: bool) -> Reading:
    """Of a model that makes vectors. It reads as it does for a user: behind what its authors put before
    texts, and cut where they say, but sooner.
    """
    from runtime.nn.feed_forward.dense import Dense
    from runtime.quality.reading import embedding

    assert calibration is not None, "refuse_packed asks for it"
    pooling = ready.pooling
    if pooling.problem is not None:
        raise PlanError(f"formats cannot be tried on vectors: there are none, since {pooling.problem}")
    most = min(SIZES.tokens, model.context_length, pooling.most_tokens or SIZES.tokens)
    skipped = pooling.skipped(pooling.prefix, ready.tokenizer)
    texts = read_lines(calibration, ready, TextLimits(SIZES.lines, most, model.vocab_size), skipped)
    chosen, held = texts[::2], texts[1::2]
    model = embedding(model, pooling.pool, [Dense(one.read()) for one in pooling.dense], skipped)
    return Reading(model, chosen, held, False, chosen if train else (), SIZES.steps, vectors=True)
