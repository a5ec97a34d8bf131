"""WordPiece vocabularies. GGUF files mark a word's first piece with U+2581, BERT all others with `##`."""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import MalformedFile
from modelkit.source.gguf.vocabulary.pieces import CONTROL, UNKNOWN, Vocabulary
from modelkit.source.gguf.vocabulary.scored import truth

_FIRST, _FOLLOWING = "\u2581", "##"


def word_pieces(vocabulary: Vocabulary, label: str) -> dict[str, int]:
    """BERT's spelling of every piece. Raises MalformedFile where two become one."""
    found: dict[str, int] = {}
    for piece, (one, type_) in zip(vocabulary.pieces, enumerate(vocabulary.types), strict=True):
        if piece.startswith(_FIRST) and len(piece) > 1:
            piece = piece[1:]
        elif type_ not in (CONTROL, UNKNOWN) and not (piece.startswith("[") and piece.endswith("]")):
            piece = _FOLLOWING + piece
        if found.setdefault(piece, one) != one:
            raise MalformedFile(f"{label}: two tokens are {piece[:40]!r} in BERT's spelling")
    return found


def word_document(
    vocabulary: Vocabulary, metadata: Mapping[str, Any], unknown: str, label: str
) -> dict[str, Any]:
    """normalizer, pre_tokenizer, model and decoder of a tokenizer.json."""
    lower = truth(metadata, "normalizer.lowercase", label, usual=True)
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": truth(metadata, "normalizer.strip_accents", label, usual=lower),
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": _FOLLOWING,
            "max_input_chars_per_word": 10_000,
            "vocab": word_pieces(vocabulary, label),
        },
        "decoder": {"type": "WordPiece", "prefix": _FOLLOWING, "cleanup": True},
    }
