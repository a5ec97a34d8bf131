"""What two models are compared on: texts that both read, a given one in pieces or one that the first writes.

Of models whose prompts an encoder reads, texts are answers, each behind its prompt: what the first answers to
pieces of the given text, else to what it answered an empty prompt. The second reads both as they are.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from modelkit.errors import LoadError
from modelkit.opening.opened import Opened
from modelkit.pack.quality.reading import prompt_end

if TYPE_CHECKING:
    from runtime.loaded import LoadedModel

TEXTS, TOKENS = 4, 128
_MOST_TEXTS = 64

Text: TypeAlias = tuple[int, ...]
Pair: TypeAlias = "tuple[LoadedModel, LoadedModel]"


def texts_for(first: Opened, models: Pair, text: str | None) -> tuple[Pair, list[Text]]:
    """The texts, and the models as they read them. text: None where the first model writes one.

    Raises LoadError for a text that is too short, and for models that begin differently.
    """
    starts = [model.described.start_id for model in models]
    if starts[0] != starts[1]:
        ways = [
            "goes on from its prompt" if one is None else f"begins answers with id {one}" for one in starts
        ]
        raise LoadError(
            f"the first model {ways[0]}, the second {ways[1]}: they cannot read the same text",
            hint="Compare models of one kind.",
        )
    tokens = min(TOKENS, *(model.context_length for model in models))
    width = min(model.vocab_size for model in models)
    if starts[0] is None:
        return models, _texts(first, models[0], text, tokens, width)
    answers = _answers(first, models[0], text, starts[0], tokens, width)
    return _behind(models, answers), list(answers)


def again_behind(models: Pair, other: Pair) -> Pair:
    """`other` with the prompts that `models` have, where they have any."""
    from runtime.quality.reading import Answering

    return _behind(other, models[0].sources) if isinstance(models[0], Answering) else other


def _behind(models: Pair, prompts: Mapping[Text, Text]) -> Pair:
    from runtime.quality.reading import answering

    return answering(models[0], prompts), answering(models[1], prompts)


def _texts(opened: Opened, model: "LoadedModel", text: str | None, tokens: int, width: int) -> list[Text]:
    """width: ids below it are those that both models embed."""
    tokenizer = opened.ready.tokenizer
    if text is not None:
        return _cut(tokenizer.encode(text, add_special=True), tokens, width)
    start = next(one for one in (tokenizer.bos_id, tokenizer.eos_id, 0) if one is not None)
    return _write(opened, model, start, TEXTS, tokens, width)


def _answers(
    opened: Opened, model: "LoadedModel", text: str | None, start: int, tokens: int, width: int
) -> dict[Text, Text]:
    """Answer -> prompt. Answers of one length; so are prompts, but for a last piece of the text."""
    end = prompt_end(opened.ready)
    if text is None:
        wrote = _write(opened, model, start, TEXTS, tokens, width, [(end,)] * TEXTS)
        prompts = [(*one[1:], end) for one in wrote]
    else:
        pieces = _cut(opened.ready.tokenizer.encode(text, add_special=False), tokens - 1, width)
        prompts = [(*piece, end) for piece in pieces]
    found: dict[Text, Text] = {}
    for length in dict.fromkeys(map(len, prompts)):
        asked = [one for one in prompts if len(one) == length]
        wrote = _write(opened, model, start, len(asked), tokens, width, asked)
        found |= zip(wrote, asked, strict=True)
    return found


def _write(
    opened: Opened,
    model: "LoadedModel",
    start: int,
    count: int,
    tokens: int,
    width: int,
    prompts: Sequence[Text] | None = None,
) -> list[Text]:
    import numpy as np

    from runtime.quality import own_text

    never = {one for one in opened.ready.stop_ids if one < width} | set(range(width, model.vocab_size))
    sources = None if prompts is None else np.array(prompts, np.int32)
    rows = own_text.write(model, start, count, tokens, never=never, sources=sources)
    return [tuple(row) for row in rows.tolist()]


def _cut(ids: Sequence[int], tokens: int, width: int) -> list[Text]:
    beyond = next((one for one in ids if one >= width), None)
    if beyond is not None:
        raise LoadError(
            f"the text has the token {beyond}, which one of the models has no embedding for",
            hint="Take a text without special tokens of images and the like.",
        )
    pieces = [tuple(ids[at : at + tokens]) for at in range(0, len(ids), tokens)][:_MOST_TEXTS]
    pieces = [piece for piece in pieces if len(piece) > 1]
    if not pieces:
        raise LoadError("the text has no two tokens to compare on", hint="Take a longer one.")
    return pieces
