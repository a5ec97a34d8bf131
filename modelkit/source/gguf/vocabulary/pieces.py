"""The vocabulary of a GGUF file as its metadata states it, checked part against part.

Every list is as long as the vocabulary, no piece occurs twice, every id lies inside. What is longer or more
than a tokenizer can have is refused here, before anything is built from it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from runtime.quoting import quoted, shown
from runtime.records import dataclass

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token types. 0 is "undefined", which llama.cpp treats as normal."""

MOST_PIECES = 2_000_000
MOST_MERGES = 4_000_000
PIECE_CHARS = 4096
KEY = "tokenizer.ggml."

BYTES, JOINED, PLAIN, WORDS, UNIGRAM = "gpt2", "llama", "gemma4", "bert", "t5"
"""What `tokenizer.ggml.model` may be: names of the first model of each kind, as llama.cpp has them."""

_KINDS = {
    BYTES: "byte-level BPE",
    JOINED: "SentencePiece BPE",
    PLAIN: "BPE over plain text",
    WORDS: "WordPiece",
    UNIGRAM: "Unigram",
}
_REFUSED = {
    "rwkv": "a trie of its own",
    "plamo2": "PLaMo 2's own search",
    "hybriddna": "letters of genes",
    "whitespace": "words between blanks",
    "none": "no vocabulary at all",
    "no_vocab": "no vocabulary at all",
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a file says of its tokens."""

    kind: str
    """BYTES, JOINED, PLAIN, WORDS or UNIGRAM."""
    pieces: Sequence[str]
    """By id."""
    types: Sequence[int]
    """As many as pieces."""
    ids: Mapping[str, int]
    """Of pieces."""
    scores: Sequence[float] | None
    """As many as pieces, all finite."""
    merges: Sequence[str] | None

    def of_type(self, *types: int) -> list[int]:
        """Ids of these types, in order."""
        return [one for one, type_ in enumerate(self.types) if type_ in types]


def read_vocabulary(metadata: Mapping[str, Any], label: str) -> Vocabulary:
    """Raises MalformedFile where parts contradict each other, UnsupportedSource for a kind not built here."""
    kind = _kind(metadata, label)
    pieces = _texts(metadata, "tokens", label, MOST_PIECES)
    if not pieces:
        raise MalformedFile(f"{label} has no tokens (`{KEY}tokens`)")
    # llama.cpp gives an empty piece this name, too.
    pieces = [piece or f"[EMPTY_{one}]" for one, piece in enumerate(pieces)]
    ids = {piece: one for one, piece in enumerate(pieces)}
    if len(ids) < len(pieces):
        twice = next(piece for one, piece in enumerate(pieces) if ids[piece] != one)
        raise MalformedFile(f"{label}: the token {quoted(twice)} has two ids")
    longest = max(pieces, key=len)
    if len(longest) > PIECE_CHARS:
        raise MalformedFile(
            f"{label} has a token of {len(longest):,} characters; at most {PIECE_CHARS:,} are taken"
        )
    types = _numbers(metadata, "token_type", label, len(pieces), int) or [NORMAL] * len(pieces)
    scores = _numbers(metadata, "scores", label, len(pieces), float)
    merges = _texts(metadata, "merges", label, MOST_MERGES) if KEY + "merges" in metadata else None
    return Vocabulary(kind, pieces, types, ids, scores, merges)


def _kind(metadata: Mapping[str, Any], label: str) -> str:
    kind = metadata.get(KEY + "model")
    if not isinstance(kind, str):
        raise MalformedFile(f"{label} does not say what kind of tokenizer it has (`{KEY}model`)")
    if kind not in _KINDS:
        why = f": {_REFUSED[kind]}" if kind in _REFUSED else ""
        raise UnsupportedSource(
            f"{label} has a tokenizer of the kind `{shown(kind)}`{why}; known are "
            + ", ".join(f"`{name}` ({what})" for name, what in _KINDS.items())
        )
    return kind


def _texts(metadata: Mapping[str, Any], name: str, label: str, most: int) -> list[str]:
    value = metadata.get(KEY + name)
    if value is None:
        return []
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise MalformedFile(f"{label}: `{KEY}{name}` is not a list of texts")
    if len(value) > most:
        raise MalformedFile(f"{label}: `{KEY}{name}` has {len(value):,} entries; at most {most:,} are taken")
    texts = list(value)
    if not all(isinstance(text, str) for text in texts):
        raise MalformedFile(f"{label}: `{KEY}{name}` is not a list of texts")
    return texts


def _numbers(
    metadata: Mapping[str, Any], name: str, label: str, count: int, kind: type[int] | type[float]
) -> list[Any] | None:
    """None where the file has no such list. Whole numbers serve as scores, as they do in llama.cpp."""
    value = metadata.get(KEY + name)
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise MalformedFile(f"{label}: `{KEY}{name}` is not a list of numbers")
    if len(value) != count:
        raise MalformedFile(f"{label}: `{KEY}{name}` has {len(value):,} entries for {count:,} tokens")
    numbers = list(value)
    allowed = (int,) if kind is int else (int, float)
    if not all(type(one) in allowed and math.isfinite(one) for one in numbers):
        raise MalformedFile(f"{label}: `{KEY}{name}` is not a list of finite numbers")
    return numbers
