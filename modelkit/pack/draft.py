"""Does an embedding cover its tokenizer, and does a draft mean by every id what its target means?

Drafted ids are compared with the target's. A draft without a tokenizer of its own is taken to have been
made with the target's. Vocabularies may be padded differently. A special token without a row (an image
token in a text-only member of a family) never reaches the model, so it is worth a note; any other is a
mistake.
"""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from modelkit.errors import ModelkitError, PlanError, TokenizerError
from modelkit.source.tree import Files
from modelkit.tokenizer import Tokenizer, load_tokenizer, same_tokens
from runtime.config.text import text_config


@contextmanager
def in_its_words() -> Generator[None]:
    """What is refused while a draft is planned comes with advice about the draft."""
    try:
        yield
    except ModelkitError as error:
        error.hint = error.hint and about_draft(error.hint)
        raise


def about_draft(advice: str) -> str:
    """The same where it names the option for formats, which is another one for drafts."""
    return re.sub(r"(?<![\w-])-q (?=\w)", "--quantize-draft ", advice)


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
    hint = "A draft must be made for its target's tokenizer: the same family, or distilled from it."
    if "tokenizer.json" in files:
        try:
            own = load_tokenizer(files)
        except TokenizerError as error:
            raise TokenizerError(f"the draft: {error.message}", hint=error.hint) from error
        difference = same_tokens(target, own)
        if difference is not None:
            raise PlanError(f"the draft's tokenizer is not the target's: {difference}", hint=hint)
    try:
        return check_rows(config, target, "the draft")
    except PlanError as error:
        raise PlanError(error.message, hint=hint) from error


def _vocab_size(config: Mapping[str, Any]) -> int | None:
    """Rows of its table, in which Molmo 2 has more than `vocab_size`."""
    text = text_config(config)
    size, more = text.get("vocab_size"), text.get("additional_vocab_size", 0)
    return size + more if type(size) is int and type(more) is int else None
