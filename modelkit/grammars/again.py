"""Thinking that does not begin again: the ids that would begin it where a header says what a message is.

Behind a budget that is spent such a message would only be closed, and a model that begins another each time
never comes to its answer. So of a header as far as it is written, and may still become another, no token may
come that only the header of thinking has there.
"""

from collections.abc import Iterable

from modelkit.chat.styles.style import Header
from modelkit.grammars.messages import remark_of
from modelkit.tokenizer import Tokenizer

_BLANKS = (" ", "\u0120", "\u2581")  # as text; as vocabularies of bytes, and of words, write one


def begins_again(header: Header, tools: Iterable[str], tokenizer: Tokenizer) -> dict[bytes, tuple[int, ...]]:
    """By what is written of a header. tools: those that may be called, each of which has a header."""
    remark, named = remark_of(header), header.heads(one for one in tools if one not in header.not_tools)
    texts = [header.text + header.message, *named]
    others = [one.encode() for one in (*texts, *((remark + header.message,) if remark else ()))]
    thinking = (header.thinking + header.message).encode()
    found = dict[bytes, tuple[int, ...]]()
    for place in range(len(thinking)):
        written = thinking[:place]
        left = [one for one in others if one.startswith(written)]
        if not left:
            break
        stops = range(place + 1, len(thinking) + 1)
        alone = [thinking[place:stop] for stop in stops if not _shared(thinking[:stop], left)]
        if ids := tuple(token for piece in alone for token in _ids_of(piece, tokenizer)):
            found[written] = ids
    return found


def _shared(written: bytes, others: Iterable[bytes]) -> bool:
    return any(one.startswith(written) or written.startswith(one) for one in others)


def _ids_of(piece: bytes, tokenizer: Tokenizer) -> set[int]:
    """Those of tokens that are exactly this."""
    text, pieces = piece.decode(errors="replace"), tokenizer.pieces
    ids = {pieces.get(text.replace(" ", blank)) for blank in _BLANKS}
    return {one for one in ids if one is not None and tokenizer.bytes_of(one) == piece}
