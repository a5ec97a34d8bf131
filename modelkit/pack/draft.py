"""Does an embedding cover its tokenizer, and does a draft mean by every id what its target means?

Drafted ids are compared with the target's. A draft without a tokenizer of its own is taken to have been
made with the target's. Vocabularies may be padded differently, and a few added tokens may differ (QwQ marks
its thinking, and the small models of its family have no such marks): a wrong guess costs no text. A special
token of a model without a row (an image token in a text-only member of a family) never reaches it, so it is
worth a note; any other is a mistake.
"""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from modelkit.errors import ModelkitError, PlanError, TokenizerError
from modelkit.pack.planning.notes import counted
from modelkit.source.companion_files import TOKENIZER
from modelkit.source.tree import Files
from modelkit.tokenizer import Tokenizer, load_tokenizer, other_ids, same_tokens
from runtime.config.text import text_config
from runtime.quoting import quoted

MOST_OTHERS = 128  # as in llama.cpp
_MADE = "A draft must be made for its target's tokenizer: the same family, or distilled from it."


@contextmanager
def in_its_words() -> Generator[None]:
    """What is refused while a draft is planned comes with advice about the draft."""
    try:
        yield
    except ModelkitError as error:
        error.hint = error.hint and about_draft(error.hint)
        raise


def about_draft(advice: str) -> str:
    """The same where it names the directive or the option for formats, which are other ones for drafts."""
    return re.sub(r"(?<![\w-])-q (?=\w)", "--quantize-draft ", advice).replace("FROM takes", "DRAFT takes")


def check_rows(config: Mapping[str, Any], tokenizer: Tokenizer, what: str) -> tuple[str, ...]:
    """Notes on special tokens that `what` cannot embed. Raises PlanError for ordinary ones."""
    rows = _vocab_size(config)
    if rows is None or tokenizer.vocab_size <= rows:
        return ()
    beyond = {piece: at for piece, at in tokenizer.pieces.items() if at >= rows}
    ordinary = beyond.keys() - {piece for piece, at in beyond.items() if at in tokenizer.special_ids}
    if ordinary:
        raise PlanError(
            f"{what} embeds {rows:,} ids, and its tokenizer has {tokenizer.vocab_size:,}",
            hint="Take config.json and tokenizer.json from the same model.",
        )
    names = ", ".join(sorted(beyond)[:3])
    return (f"{what} has no embedding for {len(beyond)} special tokens ({names}); they cannot be used",)


def check_draft(config: Mapping[str, Any], files: Files, target: Tokenizer) -> tuple[str, ...]:
    """Notes on a draft of that config and files. Raises PlanError, saying what differs, for other tokens."""
    others = {*_other_ids(files, target), *_beyond(config, target)}
    if not others:
        return ()
    first = min(others)
    piece = target.id_to_piece(first)
    named = f"id {first} is {quoted(piece) if piece else 'nothing'} in the target"
    many = counted(len(others), "added token")
    return (f"{many} not the same in draft and target ({named}): no guess of one is right",)


def _other_ids(files: Files, target: Tokenizer) -> tuple[int, ...]:
    """The ids of added tokens that a draft's tokenizer does not have as its target's does."""
    if TOKENIZER not in files:
        return ()
    try:
        own = load_tokenizer(files)
    except TokenizerError as error:
        raise TokenizerError(f"the draft: {error.message}", hint=error.hint) from error
    others = other_ids(target, own)
    if len(others) > MOST_OTHERS or not all(_may_differ(one, at) for at in others for one in (target, own)):
        raise PlanError(f"the draft's tokenizer is not the target's: {same_tokens(target, own)}", hint=_MADE)
    return others


def _beyond(config: Mapping[str, Any], target: Tokenizer) -> tuple[int, ...]:
    """The target's added tokens that have no row in the draft's table."""
    rows = _vocab_size(config)
    if rows is None or target.vocab_size <= rows:
        return ()
    beyond = tuple(at for at in target.pieces.values() if at >= rows)
    if len(beyond) > MOST_OTHERS or not all(_may_differ(target, at) for at in beyond):
        said = f"the draft embeds {rows:,} ids, and its target's tokenizer has {target.vocab_size:,}"
        raise PlanError(said, hint=_MADE)
    return beyond


def _may_differ(tokenizer: Tokenizer, at: int) -> bool:
    return at in tokenizer.added or tokenizer.id_to_piece(at) is None


def _vocab_size(config: Mapping[str, Any]) -> int | None:
    """Rows of its table, in which Molmo 2 has more than `vocab_size`."""
    text = text_config(config)
    size, more = text.get("vocab_size"), text.get("additional_vocab_size", 0)
    return size + more if type(size) is int and type(more) is int else None
