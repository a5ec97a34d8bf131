"""A vocabulary as the library takes it, and names of tokens in grammars.

Where a grammar leaves one way to go on, the library cuts the text of it into tokens as the tokenizer does,
and allows nothing else. A tokenizer finds an added token wherever its text stands (`<think>` in a JSON text),
but for the library such tokens are never text: it would refuse the one token that it allows. So texts are cut
here without added tokens.

The library holds the interpreter's lock, which all streams of a server wait for, while it reads a vocabulary.
Of a tokenizer.json it would parse all and find out what each token stands for: more than half of that time.
"""

import re
from collections.abc import Iterable, Mapping

from modelkit.tokenizer import Tokenizer

_LEADS = "", "\2", "("  # what a text is cut behind, as there may be a blank before its first
_OTHERS = re.compile(r"<\[\^[\d,-]+\]>")
_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|/(?![/*])(?:\\.|[^/\\\n])+/|//[^\n]*|(<[^<>\s]+>)')


def names_tokens(grammar: str) -> bool:
    """Does a grammar in Lark's syntax or GBNF name an added token, which another model may not have?"""
    return any(found[1] for found in _PIECE.finditer(grammar))


class Vocabulary:
    """A tokenizer as the library's TokenizerWrapper takes one.

    Tokens are their bytes; special and spare ones, and those that look like no text, go by names. end: the
    id of a token that ends a text, behind all others where the vocabulary has none: the library has to have
    one, and would take the token 0, which may be a text.
    """

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, size: int, end: int) -> None:
        self._tokenizer, self.eos_token_id = tokenizer, end
        self.tokens = tokenizer.bytes_of_all(size)
        named = {one for one, token in tokenizer.added.items() if token.special or _looks(token.content)}
        named.update(one for one, data in enumerate(self.tokens) if not data)
        for one in named:
            self.tokens[one] = b"<[%d]>" % one
        self.special_token_ids = sorted(named)
        self._named = named
        self._lead = next((lead for lead in _LEADS if self._spelled(self._behind(lead, "a")) == b"a"), "")

    def __call__(self, text: str) -> list[int]:
        """As the text is cut within another; letter by letter where a piece of it has one of those names."""
        ids = self._behind(self._lead, text)
        if self._named.isdisjoint(ids):
            return ids
        return [one for letter in text for one in self._behind(self._lead, letter)]

    def _behind(self, lead: str, text: str) -> list[int]:
        return self._tokenizer.cut(lead + text)[len(self._tokenizer.cut(lead)) :]

    def _spelled(self, ids: list[int]) -> bytes:
        return b"".join(self.tokens[one] for one in ids)


def with_ids(lark: str, marks: Mapping[str, int], ends: Iterable[int] = ()) -> str:
    """A grammar in Lark's syntax, with references to added tokens by their ids in place of their names, also
    to all but one (`<^think>`, of GBNF). ends: ids that end an answer, and are not tokens among others.
    """
    never = "".join(f",{one}" for one in sorted(ends))

    def referred(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        name = f"<{found[1][2:]}" if found[1].startswith("<^") else found[1]
        if name in marks:
            return f"<[{marks[name]}]>" if name == found[1] else f"<[^{marks[name]}{never}]>"
        return f"{found[1][:-2]}{never}]>" if _OTHERS.fullmatch(found[1]) else found[0]

    return _PIECE.sub(referred, lark)


def _looks(content: str) -> bool:
    """Like no text, to the library, whatever the file says."""
    return content.startswith("<") and content.endswith(">")
