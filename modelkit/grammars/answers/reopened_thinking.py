"""Thinking that does not begin again: the ids that would begin it, by what of its beginning is written.

Behind a budget that is spent thinking would only be closed, and a model that begins it again each time never
comes to its answer. So of a beginning as far as it is written, and may still become another one, no token may
come that only thinking has there.
"""

from collections.abc import Collection, Iterable, Mapping

from modelkit.chat.styles.style import Header, Span, Style
from modelkit.grammars.answers.messages import remark_of
from modelkit.grammars.rules.rules import Marks
from modelkit.tokenizer import Tokenizer

Reopening = Mapping[bytes, tuple[int, ...]]
"""By what is written."""

_BLANKS = (" ", "\u0120", "\u2581")  # as text; as vocabularies of bytes, and of words, write one


def by_header(header: Header, tools: Collection[str], tokenizer: Tokenizer) -> Reopening:
    """Of a message, from behind `start` on. tools: those that may be called, each of which has a header."""
    remark, named = remark_of(header), header.heads(one for one in tools if one not in header.not_tools)
    others = [header.text + header.message, *named, *((remark + header.message,) if remark else ())]
    return _alone(header.thinking + header.message, others, tokenizer)


def by_marks(style: Style, think: Span, marks: Marks, tokenizer: Tokenizer) -> dict[bytes, Reopening]:
    """Of each mark that opens thinking and begins with an added token: others are text as well."""
    found, opens = dict[bytes, Reopening](), [one.strip() for one in think.opens]
    others = [one.strip() for one in style.marks if one.strip() not in opens]
    for mark in opens:
        first = max((one for one in marks if one and mark.startswith(one)), key=len, default=None)
        if first is not None:
            begun, whole = first.encode(), marks[first]
            every = _alone(mark, others, tokenizer)
            behind = {written: ids for written, ids in every.items() if written.startswith(begun)}
            found[mark.encode()] = behind | ({b"": (whole,)} if whole in every.get(b"", ()) else {})
    return found


def _alone(thinking: str, others: Iterable[str], tokenizer: Tokenizer) -> dict[bytes, tuple[int, ...]]:
    mark, rest = thinking.encode(), {one.encode() for one in others if one}
    common = max((_common(mark, one) for one in rest), default=0)
    if any(mark.startswith(one) for one in rest):  # wherever it is on its way, it may be that one
        return {}
    found = dict[bytes, tuple[int, ...]]()
    for place in range(common + 1):
        alone = (mark[place:stop] for stop in range(common + 1, len(mark) + 1))
        if ids := tuple(token for piece in alone for token in _ids_of(piece, tokenizer)):
            found[mark[:place]] = ids
    return found


def _common(a: bytes, b: bytes) -> int:
    """How many bytes of both beginnings agree."""
    return next(
        (at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b))
    )


def _ids_of(piece: bytes, tokenizer: Tokenizer) -> set[int]:
    """Those of tokens that are exactly this."""
    text = piece.decode(errors="replace")
    ids = {tokenizer.piece_to_id(text.replace(" ", blank)) for blank in _BLANKS}
    return {one for one in ids if one is not None and tokenizer.bytes_of(one) == piece}
