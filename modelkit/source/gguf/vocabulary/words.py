"""WordPiece vocabularies. GGUF files mark a word's first piece with U+2581, BERT all others with `##`."""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import MalformedFile
from modelkit.source.gguf.vocabulary.pieces import CONTROL, KEY, UNKNOWN, USER_DEFINED, Vocabulary
from modelkit.source.gguf.vocabulary.sentencepiece import truth
from runtime.quoting import quoted

_FIRST, _FOLLOWING = "\u2581", "##"
_WHOLE = (CONTROL, UNKNOWN, USER_DEFINED)
"""Types of tokens that are written as they are."""


def word_pieces(vocabulary: Vocabulary, label: str) -> dict[str, int]:
    """BERT's spelling of every piece. Raises MalformedFile where two become one."""
    found: dict[str, int] = {}
    for piece, (one, type_) in zip(vocabulary.pieces, enumerate(vocabulary.types), strict=True):
        if piece.startswith(_FIRST) and len(piece) > 1:
            piece = piece[1:]
        elif type_ not in _WHOLE and not (piece.startswith("[") and piece.endswith("]")):
            piece = _FOLLOWING + piece
        if found.setdefault(piece, one) != one:
            raise MalformedFile(f"{label}: two tokens are {quoted(piece)} in BERT's spelling")
    return found


def file_piece(piece: str, type_: int) -> str:
    """A piece in BERT's spelling as files have it: what `word_pieces` reads."""
    if type_ in _WHOLE:
        return piece
    return piece.removeprefix(_FOLLOWING) if piece.startswith(_FOLLOWING) else _FIRST + piece


def word_metadata(document: Mapping[str, Any]) -> dict[str, bool] | None:
    """How texts are treated before they are cut, as keys of a file; None where llama.cpp does otherwise."""
    normalizer, model = document["normalizer"], document["model"]
    wanted = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    if not isinstance(normalizer, Mapping) or not wanted.items() <= normalizer.items():
        return None
    cut = document["pre_tokenizer"] == {"type": "BertPreTokenizer"}
    if not cut or model.get("continuing_subword_prefix") != _FOLLOWING:
        return None
    lower, strips = normalizer.get("lowercase", True), normalizer.get("strip_accents")
    strips = lower if strips is None else strips
    return {KEY + "normalizer.lowercase": lower, KEY + "normalizer.strip_accents": strips}


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
