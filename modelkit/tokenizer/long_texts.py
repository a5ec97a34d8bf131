"""The tokens of a text that may be far too long for its request.

Megabytes take the library seconds, and it cannot be stopped. So a text that can hardly fit is read in pieces
first: until there are clearly too many tokens, which most such texts have soon, or until nobody waits. The
end of a piece may be cut otherwise than in the whole text, so pieces are counted, and no model gets them.
"""

from modelkit.interest import check_wanted
from modelkit.tokenizer.tokenizer import Tokenizer
from runtime.records import dataclass

PIECE_CHARS = 1 << 16  # some 20 milliseconds
_CHARS = 8  # of a token: words have four or five, and only blanks and the like have more


@dataclass(frozen=True, slots=True)
class TextTokens:
    """What a text becomes."""

    ids: tuple[int, ...]
    """All of its ids; of one that is far too long those of its beginning, which are too many as well."""
    count: int
    """How many it has; of one that is far too long, about."""

    @property
    def whole(self) -> bool:
        """Are these all of its ids?"""
        return self.count == len(self.ids)


def tokens_of(tokenizer: Tokenizer, text: str, most: int | None, *, add_special: bool = False) -> TextTokens:
    """The tokens of a text, as `encode` gives them. most: how many there may be; with far more it is not read
    to its end. None for all, however many there are.

    Raises RequestError as `encode` does, and ModelkitError where nobody waits for them.
    """
    if most is not None and len(text) > _CHARS * most and (begun := _beginning(tokenizer, text, most)):
        return begun
    check_wanted()
    ids = tuple(tokenizer.encode(text, add_special=add_special))
    return TextTokens(ids, len(ids))


def _beginning(tokenizer: Tokenizer, text: str, most: int) -> TextTokens | None:
    """So much of a text as has far more tokens than `most`; None where all of it has not."""
    ids = list[int]()
    for start in range(0, len(text), PIECE_CHARS):
        check_wanted()
        stop = min(start + PIECE_CHARS, len(text))
        ids += tokenizer.encode(text[start:stop], add_special=False)
        if len(ids) > most + most // 4:
            return TextTokens(tuple(ids), max(len(ids) + 1, len(ids) * len(text) // stop))
    return None
