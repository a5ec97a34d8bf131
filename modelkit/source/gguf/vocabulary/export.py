"""A tokenizer.json as GGUF metadata: what `files` reads, the other way round.

The way of cutting text (`tokenizer.ggml.pre`) is the caller's to recognise, since that takes the tokenizer
library. What a GGUF file cannot say of a tokenizer is said in notes.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from modelkit.errors import UnsupportedSource
from modelkit.source.gguf.vocabulary.pieces import (
    BYTE,
    BYTES,
    CONTROL,
    JOINED,
    KEY,
    NORMAL,
    PLAIN,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    WORDS,
)
from modelkit.source.gguf.vocabulary.words import file_piece, word_metadata
from runtime.quoting import quoted
from runtime.records import dataclass

_BLANK = "\u2581"
_ROLES = {
    "bos": "bos",
    "eos": "eos",
    "unk": "unknown",
    "pad": "padding",
    "eot": "eot",
    "eom": "eom",
    "cls": "cls",
    "sep": "seperator",  # as the format spells it
    "mask": "mask",
}
_SPARE_SCORE = -1e9


@dataclass(frozen=True, slots=True)
class Stated:
    """A vocabulary on its way into metadata."""

    kind: str
    """BYTES, JOINED, PLAIN, WORDS or UNIGRAM."""
    metadata: Mapping[str, Any]
    notes: tuple[str, ...]


def kind_of(document: Mapping[str, Any], *, plain: bool, label: str) -> str:
    """`tokenizer.ggml.model` of a tokenizer.json. plain: merges over text go before scores made of them.

    Raises UnsupportedSource for one that llama.cpp has no kind for.
    """
    model = document["model"]
    if model["type"] == "Unigram":
        return UNIGRAM
    if model["type"] == "WordPiece" and word_metadata(document) is not None:
        return WORDS
    if model["type"] == "BPE":
        text = str(document.get("decoder")) + str(document.get("pre_tokenizer"))
        if model.get("byte_fallback"):
            return PLAIN if plain else JOINED
        if "ByteLevel" in text:
            return BYTES
    raise UnsupportedSource(
        f"{label} has a tokenizer ({quoted(model['type'])}) that no GGUF file can hold as it is"
    )


def state(document: Mapping[str, Any], kind: str, rows: int, label: str) -> Stated:
    """Pieces, types, merges or scores. rows: of the embedding; those without a token become padding.

    Raises UnsupportedSource where there are more tokens than rows.
    """
    ids = _ids(document)
    if max(ids.values()) >= rows:
        raise UnsupportedSource(
            f"{label} has {max(ids.values()) + 1:,} tokens, and an embedding of {rows:,} rows"
        )
    pieces = [f"[PAD{one}]" for one in range(rows)]
    for piece, one in ids.items():
        pieces[one] = piece
    types = _types(document, ids, rows)
    for one, type_ in enumerate(types):
        if type_ == USER_DEFINED and kind not in (BYTES, WORDS):
            pieces[one] = pieces[one].replace(_BLANK, " ")
        elif kind == WORDS and type_ != UNUSED:
            pieces[one] = file_piece(pieces[one], type_)
    made: dict[str, Any] = {KEY + "model": kind, KEY + "tokens": tuple(pieces)}
    model = document["model"]
    if kind in (BYTES, PLAIN):
        made[KEY + "merges"] = tuple(" ".join(_pair(merge)) for merge in model["merges"])
    elif kind == JOINED:
        made[KEY + "scores"] = _scores_of_merges(model["merges"], pieces, types)
    elif kind == WORDS:
        made |= word_metadata(document) or {}
    else:
        scores = [float(score) for _, score in model["vocab"]]
        made[KEY + "scores"] = (*scores, *[_SPARE_SCORE] * (rows - len(scores)))
    made[KEY + "token_type"] = tuple(types)
    made |= _blanks(document, kind)
    return Stated(kind, made, tuple(_lost(document)))


def special_ids(roles: Mapping[str, int | None]) -> dict[str, int]:
    """The keys of ids. Roles: those of `_ROLES`."""
    return {KEY + f"{_ROLES[role]}_token_id": one for role, one in roles.items() if one is not None}


def _ids(document: Mapping[str, Any]) -> dict[str, int]:
    vocab = document["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, Mapping) else {row[0]: one for one, row in enumerate(vocab)}
    return {**ids, **{token["content"]: token["id"] for token in document["added_tokens"]}}


def _types(document: Mapping[str, Any], ids: Mapping[str, int], rows: int) -> list[int]:
    types = [UNUSED] * rows
    model = document["model"]
    fallback = bool(model.get("byte_fallback"))
    for piece, one in ids.items():
        types[one] = BYTE if fallback and _is_byte(piece) else NORMAL
    for token in document["added_tokens"]:
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    unknown = model.get("unk_token")
    if (
        isinstance(unknown, str)
        and unknown in ids
        and (model["type"] == "BPE" or types[ids[unknown]] == NORMAL)
    ):
        types[ids[unknown]] = UNKNOWN
    if type(model.get("unk_id")) is int:
        types[model["unk_id"]] = UNKNOWN
    return types


def _is_byte(piece: str) -> bool:
    if len(piece) != 6 or not piece.startswith("<0x") or not piece.endswith(">"):
        return False
    return all(letter in "0123456789ABCDEF" for letter in piece[3:5])


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _scores_of_merges(
    merges: Sequence[str | Sequence[str]], pieces: Sequence[str], types: Sequence[int]
) -> tuple[float, ...]:
    """A piece is as good as its first merge is early; those that are never merged are worst."""
    best: dict[str, float] = {}
    for rank, merge in enumerate(merges):
        best.setdefault("".join(_pair(merge)), -float(rank))
    last = -float(len(merges)) - 1
    return tuple(
        best.get(piece, last - one) if type_ == NORMAL else 0.0
        for one, (piece, type_) in enumerate(zip(pieces, types, strict=True))
    )


def _blanks(document: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """How blanks are treated, and the map of characters, of kinds that are no bytes."""
    text = str(document.get("normalizer")) + str(document.get("pre_tokenizer"))
    if kind == JOINED:
        return {
            KEY + "add_space_prefix": "Prepend" in text
            or "'prepend_scheme': 'always'" in text
            or "'prepend_scheme': 'first'" in text
        }
    if kind != UNIGRAM:
        return {}
    charsmap = _charsmap(document.get("normalizer"))
    made: dict[str, Any] = {KEY + "add_space_prefix": True, KEY + "remove_extra_whitespaces": True}
    return {**made, KEY + "precompiled_charsmap": charsmap} if charsmap else made


def _charsmap(normalizer: Any) -> bytes | None:
    if not isinstance(normalizer, Mapping):
        return None
    if normalizer.get("type") == "Precompiled":
        return b64decode(normalizer["precompiled_charsmap"])
    inner = (_charsmap(one) for one in normalizer.get("normalizers") or ())
    return next((found for found in inner if found), None)


def _lost(document: Mapping[str, Any]) -> list[str]:
    found = [
        token["content"]
        for token in document["added_tokens"]
        if any(token.get(flag) for flag in ("lstrip", "rstrip", "single_word"))
    ]
    if not found:
        return []
    others = f" and {len(found) - 1} other tokens" if len(found) > 1 else ""
    return [f"what {quoted(found[0])}{others} take of the blanks beside them is unknown to llama.cpp"]
