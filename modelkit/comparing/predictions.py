"""Two models on one text: how far apart their predictions are, and how fast each decodes.

Either is a stored package or a model folder, with adapters that are named behind it (`models`). Both
are read in float32, so that what differs is what they store; speed is measured as `run` would decode, the two
taking turns token by token, and said as a ratio.
"""

import os
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit import arguments, text_files
from modelkit.comparing.models import Side, load_side, open_sides
from modelkit.comparing.texts import again_behind, texts_for
from modelkit.errors import LoadError, ModelkitError
from modelkit.faults import translated
from modelkit.opening.opened import Opened
from modelkit.progress import Advance, Progress, Silent, bar
from modelkit.python_faults import unread
from modelkit.requests.attached import Chosen
from modelkit.settings import Settings, settings_at
from runtime.cpu.threads import Threads
from runtime.models import describe
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.loaded import LoadedModel

_TIMED_TOKENS = 24  # at least, and more where they are quick, up to _MOST_TIMED
_TIMED_S = 1.0
_MOST_TIMED = 128
_MOST_TEXT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of B with A."""

    kl: float
    """Mean KL(A || B), nats per token."""
    kl_back: float
    """Mean KL(B || A)."""
    kl_p99: float
    """Of KL(A || B), the 99th percentile over tokens."""
    same_top: float
    """The share of places at which both have the same likeliest token."""
    perplexities: tuple[float, float]
    """Of A and B on the text."""
    weight_bytes: tuple[int, int]
    """As stored, with those of adapters that answer."""
    speed: float | None
    """Tokens per second of B over those of A, decoding one sequence; None: not measured."""
    tokens: int
    """Read by both."""
    own_text: bool
    """Did A write the text?"""
    adapters: tuple[Chosen, Chosen] = ((), ())
    """Names and scales of those that answered, of A and B."""
    tokens_left_out: int = 0
    """Of the text that was given, behind those that were read."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "adapters": [dict(one) for one in self.adapters]}


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    text: str | None = None,
    speed: bool = False,
    home: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Read both on `text`, or on one that A writes itself. a, b: names, or paths; NAME+ADAPTER, or
    NAME+ADAPTER=0.5, is the model with that adapter of its package, and the other then with those that it
    names. speed: measure that too. home: the folder of the store, instead of MODELKIT_HOME. Raises
    ModelkitError: LoadError for models of different vocabularies.
    """
    names = arguments.model(a, "a"), arguments.model(b, "b")
    given = arguments.optional(arguments.text, text, "text")
    timed = arguments.flag(speed, "speed")
    with translated():
        return compared(names, settings_at(home), given, speed=timed)


def compared(
    names: tuple[str | os.PathLike[str], str | os.PathLike[str]],
    settings: Settings,
    text: str | None,
    *,
    speed: bool,
    progress: Progress | None = None,
) -> Comparison:
    """As `compare`."""
    progress = progress or Silent()
    with ExitStack() as stack:
        first, second = open_sides(stack, names, settings)
        _both_write(first.opened, second.opened)
        _same_vocabulary(first.opened, second.opened)
        models = load_side(first), load_side(second)
        settle = stack.enter_context(_threads())
        settle()
        models, texts, left_out = texts_for(first.opened, models, text, progress)
        with bar(progress, "comparing tokens", sum(map(len, texts))):
            there, back = _read(models, texts, settle, progress.advance)
        return Comparison(
            kl=there.kl,
            kl_back=back.kl,
            kl_p99=there.kl_p99,
            same_top=there.same_top,
            perplexities=(there.perplexity, back.perplexity),
            weight_bytes=(first.stored_bytes, second.stored_bytes),
            speed=_ratio(first, second, models, texts[0], settle) if speed else None,
            tokens=there.tokens,
            own_text=text is None,
            adapters=(first.chosen, second.chosen),
            tokens_left_out=left_out,
        )


def _both_write(first: Opened, second: Opened) -> None:
    for opened in (first, second):
        if not describe(opened.inventory.config).writes:
            raise LoadError(
                f"{opened.label} makes embeddings and writes no text, so predictions cannot be compared",
                hint="`modelkit compare --embeddings` and compare_embeddings compare vectors of texts.",
            )


def _same_vocabulary(first: Opened, second: Opened) -> None:
    from modelkit.tokenizer import same_tokens

    one, other = first.ready.tokenizer, second.ready.tokenizer
    difference = same_tokens(one, other)
    if difference is not None:
        raise LoadError(
            f"{first.label} and {second.label} have different vocabularies: {difference}",
            hint="Predictions can be compared between models of one tokenizer only.",
        )


def _read(
    models: "tuple[LoadedModel, LoadedModel]",
    texts: Sequence[Sequence[int]],
    settle: Callable[[], None],
    advance: Advance,
) -> tuple[Any, Any]:
    """Divergence there and back, over the ids that both have: vocabularies may be padded differently."""
    from runtime.quality.divergence import divergence, reader
    from runtime.quality.reading import log_odds

    width = min(one.vocab_size for one in models)

    def narrow(model: "LoadedModel") -> "Callable[[Sequence[int]], mx.array]":
        read, known = reader(model), dict[tuple[int, ...], Any]()

        def once(ids: Sequence[int]) -> "mx.array":
            key = tuple(ids)
            if key not in known:
                known.clear()  # there and back read a text one after the other
                known[key] = log_odds(read(ids)[:, :width])
            return known[key]

        return once

    first, second = map(narrow, models)
    there: list[Any] = []
    back: list[Any] = []
    for ids in texts:
        settle()
        there.append(divergence(first, second, [ids]))
        back.append(divergence(second, first, [ids]))
        advance(len(ids))
    return _joined(there), _joined(back)


@contextmanager
def _threads() -> Generator[Callable[[], None]]:
    """What to call before both models compute: they then get as many threads as other programs leave cores
    for. No engine is here to choose, and a product of BLAS waits for a thread whose core another program has.
    """
    threads = Threads()
    try:
        yield lambda: threads.before_step(time.monotonic())
    finally:
        threads.rest()


def _joined(parts: Sequence[Any]) -> Any:
    """The mean over texts, weighted by their tokens; of the percentile too, which is near enough."""
    from math import exp, log

    total = sum(part.tokens for part in parts)

    def mean(value: Callable[[Any], float]) -> float:
        return sum(value(part) * part.tokens for part in parts) / total

    return replace(
        parts[0],
        kl=mean(lambda one: one.kl),
        kl_p99=mean(lambda one: one.kl_p99),
        same_top=mean(lambda one: one.same_top),
        perplexity_ratio=exp(mean(lambda one: log(one.perplexity_ratio))),
        perplexity=exp(mean(lambda one: log(one.perplexity))),
        tokens=total,
    )


def _ratio(
    first: Side,
    second: Side,
    models: "tuple[LoadedModel, LoadedModel]",
    text: Sequence[int],
    settle: Callable[[], None],
) -> float | None:
    """Speed of B over that of A: the median over pairs of tokens, one of each, so that a busy machine slows
    both, and neither is always the first.
    """
    from runtime.device import device

    if device().fast_dtype is None:  # a GPU: `run` computes in the types that are stored
        models = again_behind(models, (load_side(first, None), load_side(second, None)))
    decoders = [_decoder(model, text) for model in models]
    times: list[list[float]] = [[], []]
    most = min(_MOST_TIMED, *(model.context_length for model in models))
    for turn in range(max(most, _TIMED_TOKENS)):
        if turn >= _TIMED_TOKENS and sum(map(sum, times)) >= _TIMED_S:
            break
        settle()
        for place in (0, 1) if turn % 2 else (1, 0):
            began = time.perf_counter()
            decoders[place]()
            times[place].append(time.perf_counter() - began)
    return statistics.median(a / b for a, b in zip(*(one[2:] for one in times), strict=True))


def _decoder(model: "LoadedModel", text: Sequence[int]) -> Callable[[], None]:
    """A function that decodes one more token, behind its prompt where an encoder reads that."""
    import mlx.core as mx

    from runtime.quality.reading import Answering, adapters_of
    from runtime.step import Inputs, Step

    memory, adapters = model.memory(), adapters_of(model, 1)
    place = 0
    prompt = model.sources[tuple(text)] if isinstance(model, Answering) else None

    def decode() -> None:
        nonlocal place
        inputs = Inputs(mx.array([[text[place % len(text)]]], dtype=mx.int32))
        step = Step((place,), (1,), inputs=inputs, adapters=adapters)
        memory.prepare(step)
        if prompt is not None and not place:
            model.network.encode(Inputs(mx.array([list(prompt)], dtype=mx.int32)), step, memory)
        mx.eval(model.network.logits(model.network(step, memory), step))
        memory.commit(step, step.counts)
        place += 1

    return decode


def read_text(path: Path) -> str:
    """A text file to compare on. Raises ModelkitError."""
    try:
        with path.open("rb") as file:
            return text_files.read_text(file, _MOST_TEXT_BYTES)
    except (OSError, ValueError) as error:
        raise ModelkitError(
            f"{path.name} cannot be read as a text: {unread(error)}",
            hint=f"Take a text file (UTF-8) of at most {_MOST_TEXT_BYTES:,} bytes.",
        ) from error
