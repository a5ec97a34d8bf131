"""The texts in a file that a user brings: pieces of one long text, or its lines."""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.errors import ModelkitError, PlanError
from modelkit.python_faults import unread
from modelkit.text_files import UTF_8
from modelkit.tokenizer.tokenizer import MOST_CHARS
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.pack.model_setup import ModelSetup
    from modelkit.tokenizer.tokenizer import Tokenizer

Text = tuple[int, ...]
Texts = tuple[Text, ...]

_MOST_TEXT_BYTES = 64 << 20
_LEAST_LINES = 8


@dataclass(frozen=True, slots=True)
class TextLimits:
    """How much of a file is read."""

    texts: int
    """At most."""
    tokens: int
    """Of each."""
    width: int
    """Ids below it can be read."""


def read_pieces(path: Path, tokenizer: "Tokenizer", limits: TextLimits) -> Texts:
    """A text in pieces of `limits.tokens` ids, spread evenly over as much as is tokenized at once. Raises
    PlanError.
    """
    text = _beginning(path)[:MOST_CHARS]
    try:
        ids = tokenizer.encode(text, add_special=False)
    except ModelkitError as error:
        raise PlanError(f"{path.name} cannot be read as a text: {unread(error)}") from error
    beyond = next((one for one in ids if one >= limits.width), None)
    if beyond is not None:
        raise PlanError(
            f"{path.name} has the token {beyond}, which the model has no embedding for",
            hint="Take a text without special tokens of images and the like.",
        )
    start = [tokenizer.bos_id] if tokenizer.bos_id is not None else []
    length = limits.tokens - len(start)
    if len(ids) < length:
        raise PlanError(
            f"{path.name} has {len(ids):,} tokens; at least {length:,} are needed",
            hint="Take a longer text, or none: the model then writes its own.",
        )
    count = min(limits.texts, len(ids) // length)
    starts = _spread(len(ids) - length, count)
    return tuple((*start, *ids[at : at + length]) for at in starts)


def read_lines(path: Path, ready: "ModelSetup", limits: TextLimits, skipped: int) -> Texts:
    """Different lines of a file, spread evenly over it, as a model that makes vectors reads them. skipped:
    tokens of each that are no part of its vector. Raises PlanError.
    """
    pooling = ready.pooling
    lines = [*dict.fromkeys(line.strip() for line in _beginning(path).splitlines() if line.strip())]
    if len(lines) < _LEAST_LINES:
        raise PlanError(
            f"{path.name} has {len(lines)} different lines; at least {_LEAST_LINES} are needed",
            hint="The model makes embeddings: each line is a text that it makes a vector of.",
        )
    picked = [lines[at] for at in _spread(len(lines) - 1, min(limits.texts, len(lines)))]
    plain = [pooling.plain(pooling.prefix + line) for line in picked]
    try:
        read = [ready.tokenizer.encode_within(one, limits.tokens)[0] for one in plain]
    except ModelkitError as error:
        raise PlanError(f"{path.name} cannot be read as texts: {error}") from error
    beyond = next((one for ids in read for one in ids if one >= limits.width), None)
    if beyond is not None:
        raise PlanError(f"{path.name} has the token {beyond}, which the model has no embedding for")
    return tuple(tuple(ids) for ids in read if len(ids) > skipped)


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
