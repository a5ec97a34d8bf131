"""Two models on one text: how far apart their predictions are, and how fast each decodes.

Either is a stored package or a model folder. Both are read in float32, so that what differs is what they
store; speed is measured as `run` would decode, the two taking turns token by token, and said as a ratio.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit import arguments
from modelkit.compared_texts import again_behind, texts_for
from modelkit.errors import LoadError, ModelkitError
from modelkit.faults import translated
from modelkit.opening.read import Opened, open_model
from modelkit.opening.start import stored_weights
from modelkit.settings import Settings, settings_at
from modelkit.source.display import UTF_8
from runtime.models import describe
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.loaded import LoadedModel

_TIMED_TOKENS = 24
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
    """As stored."""
    speed: float | None
    """Tokens per second of B over those of A, decoding one sequence; None: not measured."""
    tokens: int
    own_text: bool
    """Did A write the text?"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    text: str | None = None,
    speed: bool = False,
    home: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Read both on `text`, or on one that A writes itself. speed: measure that too. home: the folder of the
    store, instead of MODELKIT_HOME. Raises ModelkitError: LoadError for models of different vocabularies.
    """
    names = arguments.path(a, "a"), arguments.path(b, "b")
    given = arguments.given(arguments.text, text, "text")
    timed = arguments.flag(speed, "speed")
    with translated():
        return compared(names, settings_at(home), given, speed=timed)


def compared(
    names: tuple[str | os.PathLike[str], str | os.PathLike[str]],
    settings: Settings,
    text: str | None,
    *,
    speed: bool,
    advance: Callable[[int], None] = lambda _: None,
) -> Comparison:
    """As `compare`. advance: told the tokens read."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(open_model(name, settings)) for name in names)
        _same_vocabulary(first, second)
        for opened in (first, second):
            _refuse_adapters(opened)
        models = _load(first), _load(second)
        models, texts = texts_for(first, models, text)
        there, back = _read(models, texts, min(one.vocab_size for one in models), advance)
        return Comparison(
            kl=there.kl,
            kl_back=back.kl,
            kl_p99=there.kl_p99,
            same_top=there.same_top,
            perplexities=(there.perplexity, back.perplexity),
            weight_bytes=(_stored_bytes(first), _stored_bytes(second)),
            speed=_ratio(first, second, models, texts[0]) if speed else None,
            tokens=there.tokens,
            own_text=text is None,
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
    for opened in (first, second):
        if not describe(opened.inventory.config).writes:
            raise LoadError(f"{opened.label} makes embeddings and writes no text by which to compare it")


def _refuse_adapters(opened: Opened) -> None:
    """Models are read as their weights are: what adapters add is not in them."""
    names = ", ".join(one.name for one in opened.adapters)
    if names:
        raise LoadError(
            f"{opened.label} answers with adapters ({names}), and models are compared without any",
            hint="Compare what `create --fuse-adapters` makes of it.",
        )


def _load(opened: Opened, dtype: str | None = "float32") -> "LoadedModel":
    """dtype: what is computed in; None: as `run` does."""
    from runtime.cpu import bind_blas
    from runtime.device import device
    from runtime.errors import RuntimeFault
    from runtime.loaded import load_model

    here = device()
    if here.kind == "cpu":
        bind_blas()
    config, weights, _ = stored_weights(opened, opened.target)
    try:
        return load_model(config, weights, on=replace(here, fast_dtype=dtype or here.fast_dtype))
    except RuntimeFault as fault:
        raise LoadError(f"{opened.label} cannot be loaded: {fault}") from fault


def _read(
    models: "tuple[LoadedModel, LoadedModel]",
    texts: Sequence[Sequence[int]],
    width: int,
    advance: Callable[[int], None],
) -> tuple[Any, Any]:
    """Divergence there and back, over the ids that both have: vocabularies may be padded differently."""
    from runtime.quality.divergence import divergence, reader
    from runtime.quality.reading import log_odds

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
        there.append(divergence(first, second, [ids]))
        back.append(divergence(second, first, [ids]))
        advance(len(ids))
    return _joined(there), _joined(back)


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
    first: Opened, second: Opened, models: "tuple[LoadedModel, LoadedModel]", text: Sequence[int]
) -> float | None:
    """Speed of B over that of A: medians of tokens taken in turns, so that a busy machine slows both."""
    from runtime.device import device

    if device().fast_dtype is None:  # a GPU: `run` computes in the types that are stored
        models = again_behind(models, (_load(first, None), _load(second, None)))
    decoders = [_decoder(model, text) for model in models]
    times: list[list[float]] = [[], []]
    for _ in range(_TIMED_TOKENS):
        for place, decode in enumerate(decoders):
            began = time.perf_counter()
            decode()
            times[place].append(time.perf_counter() - began)
    a, b = (statistics.median(one[2:]) for one in times)
    return a / b


def _decoder(model: "LoadedModel", text: Sequence[int]) -> Callable[[], None]:
    """A function that decodes one more token, behind its prompt where an encoder reads that."""
    import mlx.core as mx

    from runtime.quality.reading import Answering
    from runtime.step import Inputs, Step

    memory = model.memory()
    place = 0
    prompt = model.sources[tuple(text)] if isinstance(model, Answering) else None

    def decode() -> None:
        nonlocal place
        step = Step((place,), (1,), inputs=Inputs(mx.array([[text[place % len(text)]]], dtype=mx.int32)))
        memory.prepare(step)
        if prompt is not None and not place:
            model.network.encode(Inputs(mx.array([list(prompt)], dtype=mx.int32)), step, memory)
        mx.eval(model.network.logits(model.network(step, memory)))
        memory.commit(step, step.counts)
        place += 1

    return decode


def _stored_bytes(opened: Opened) -> int:
    return opened.target.plan.nbytes


def read_text(path: Path) -> str:
    """A text file to compare on. Raises ModelkitError."""
    try:
        if path.stat().st_size > _MOST_TEXT_BYTES:
            raise ModelkitError(
                f"{path.name} is larger than {_MOST_TEXT_BYTES:,} bytes", hint="Take a part of it."
            )
        return path.read_text(encoding=UTF_8)
    except (OSError, UnicodeDecodeError) as error:
        raise ModelkitError(f"{path.name} cannot be read as a text: {error}") from error
