"""What two models are compared on: texts that both read, a given one in pieces or one that the first writes.

Of models whose prompts an encoder reads, texts are answers, each behind its prompt: what the first answers to
pieces of the given text, else to what it answered an empty prompt. The second reads both as they are.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from modelkit.errors import LoadError
from modelkit.opening.opened import Opened
from modelkit.pack.quality.own_texts import TextWriter, prompt_end
from modelkit.pack.quality.text_file import Text
from modelkit.progress import Progress

if TYPE_CHECKING:
    from runtime.loaded import LoadedModel

TEXTS, TOKENS = 4, 128
_MOST_TEXTS = 64

Pair: TypeAlias = "tuple[LoadedModel, LoadedModel]"


def texts_for(
    first: Opened, models: Pair, text: str | None, progress: Progress
) -> tuple[Pair, list[Text], int]:
    """The models as they read them, the texts, and how many tokens of `text` are left out behind them. text:
    None where the first model writes one.

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
    tokenizer = first.ready.tokenizer
    ends = (tokenizer.bos_id, tokenizer.eos_id, 0)
    writer = TextWriter(
        models[0],
        next(one for one in ends if one is not None) if starts[0] is None else starts[0],
        tokens=min(TOKENS, *(model.context_length for model in models)),
        width=min(model.vocab_size for model in models),
        never=first.ready.stop_ids,
        progress=progress,
        label="writing tokens",
    )
    if starts[0] is None:
        texts, left_out = _texts(writer, first, text)
        return models, texts, left_out
    answers, left_out = _answers(writer, first, text)
    return _behind(models, answers), list(answers), left_out


def again_behind(models: Pair, other: Pair) -> Pair:
    """`other` with the prompts that `models` have, where they have any."""
    from runtime.quality.reading import Answering

    return _behind(other, models[0].sources) if isinstance(models[0], Answering) else other


def _behind(models: Pair, prompts: Mapping[Text, Text]) -> Pair:
    from runtime.quality.reading import answering

    return answering(models[0], prompts), answering(models[1], prompts)


def _texts(writer: TextWriter, opened: Opened, text: str | None) -> tuple[list[Text], int]:
    if text is not None:
        return _cut(opened.ready.tokenizer.encode(text, add_special=True), writer.tokens, writer.width)
    return writer.texts(TEXTS), 0


def _answers(writer: TextWriter, opened: Opened, text: str | None) -> tuple[dict[Text, Text], int]:
    """Answer -> prompt. Answers of one length; so are prompts, but for a last piece of the text."""
    end = prompt_end(opened.ready)
    left_out = 0
    if text is None:
        prompts = [(*one[1:], end) for one in writer.answers([(end,)] * TEXTS)]
    else:
        ids = opened.ready.tokenizer.encode(text, add_special=False)
        pieces, left_out = _cut(ids, writer.tokens - 1, writer.width)
        prompts = [(*piece, end) for piece in pieces]
    found: dict[Text, Text] = {}
    for length in dict.fromkeys(map(len, prompts)):
        alike = [one for one in prompts if len(one) == length]
        found |= zip(writer.answers(alike), alike, strict=True)
    return found, left_out


def _cut(ids: Sequence[int], tokens: int, width: int) -> tuple[list[Text], int]:
    """Pieces of so many tokens, and how many tokens are behind the last of them."""
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
    return pieces, max(len(ids) - _MOST_TEXTS * tokens, 0)
