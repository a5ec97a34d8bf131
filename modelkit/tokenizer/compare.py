"""Whether two tokenizers are the same. A draft model must mean by every id what its target means."""

from modelkit.tokenizer.tokenizer import Tokenizer
from runtime.quoting import quoted


def other_ids(one: Tokenizer, other: Tokenizer) -> tuple[int, ...]:
    """The ids that are not the same piece in both, or are in one alone."""
    if one.pieces == other.pieces:
        return ()
    pairs = {(at, piece) for piece, at in one.pieces.items()}
    return tuple(sorted({at for at, _ in pairs ^ {(at, piece) for piece, at in other.pieces.items()}}))


def same_tokens(one: Tokenizer, other: Tokenizer) -> str | None:
    """None when every id is the same piece in both, else one sentence on the first difference.

    How text is split into pieces may differ: ids, not texts, pass between a draft and its target.
    """
    if one.pieces == other.pieces:
        return None
    if one.vocab_size != other.vocab_size:
        return f"one vocabulary ends at id {one.vocab_size - 1}, the other at id {other.vocab_size - 1}"
    ours, theirs = ({at: piece for piece, at in each.pieces.items()} for each in (one, other))
    first = next(at for at in range(one.vocab_size) if ours.get(at) != theirs.get(at))
    return f"id {first} is {quoted(ours.get(first))} in one and {quoted(theirs.get(first))} in the other"
