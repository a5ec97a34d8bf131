"""Models of SentencePiece (sentencepiece_model.proto): pieces, scores, types, and how texts are treated.

Texts get the treatment that the model states: its map of characters, fewer blanks, a blank in front, blanks
as U+2581. Pieces that users defined are set apart behind that, so that each is one token and none joins
another. `legacy` of tokenizer_config.json says whether the blank in front stands behind special tokens, too.

Byte-pair models agree with the library on every text that has no U+2581 of its own. Unigram models do where
one way to cut a text is best (the library sums in 32 bits, this one in 64), and maps of characters where no
letter is combined of several: as in transformers' own conversions. `agrees` tells them.
"""

import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.vocabulary.bpe import raw_decoders, replaced, sequence, split
from modelkit.source.gguf.vocabulary.pieces import (
    BYTE,
    CONTROL,
    JOINED,
    MOST_PIECES,
    NORMAL,
    PIECE_CHARS,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
)
from modelkit.source.gguf.vocabulary.sentencepiece import joined_document
from modelkit.source.vocabularies.document import added, document
from modelkit.source.vocabularies.piece_ids import FOUND_NEVER, Arrange, Arranged, arranged, by_class
from modelkit.source.vocabularies.wire import fields, number, real, text
from runtime.quoting import quoted
from runtime.records import dataclass

_BLANK = "\u2581"
_KINDS = {1: UNIGRAM, 2: JOINED}
_OTHER_KINDS = {3: "words between blanks", 4: "single characters"}
_PATTERN_BYTES = 4096
_T5 = ("T5Tokenizer", "T5TokenizerFast")
_WITHOUT_FRAME = ("Ernie4_5_Tokenizer",)
"""Classes that add no begin-of-text token unless tokenizer_config.json says so; Llama's and its copies do."""


@dataclass(frozen=True, slots=True)
class _Model:
    """What a file says. Fields that it leaves out have the format's values."""

    vocabulary: Vocabulary
    charsmap: bytes = b""
    blank_first: bool = True
    fewer_blanks: bool = True
    bos: int = 1
    eos: int = 2


def sentencepiece_document(
    data: bytes, config: Mapping[str, Any], label: str, arrange: Arrange | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """A tokenizer.json, and its bos_token and eos_token as tokenizer_config.json would say them. data: the
    file; config: tokenizer_config.json; arrange: where ids are others than the file's. Raises MalformedFile
    for a file that is not whole, UnsupportedSource for what the tokenizer library cannot do.
    """
    model, arrange = _read(data, label), arrange or by_class(config)
    if arrange is not None:
        return _arranged(model, arrange(model.vocabulary.pieces), config, label)
    vocabulary = model.vocabulary
    pieces, types = vocabulary.pieces, vocabulary.types
    user, special = _users(vocabulary), _specials(vocabulary)
    first, last = (
        pieces[one] if 0 <= one < len(pieces) and types[one] == CONTROL else None
        for one in (model.bos, model.eos)
    )
    class_ = config.get("tokenizer_class")
    bare = class_ in (*_T5, *_WITHOUT_FRAME) or isinstance(config.get("add_bos_token"), bool)
    made = document(
        normalizer=_normalizer(model, config),
        pre_tokenizer=_pre_tokenizer(model, user, config, label),
        model=_tokens(vocabulary, user, label),
        decoder=_decoder(model),
        added_tokens=[*special, *_sentinels(len(pieces), config)],
        first=None if bare else first,
        last=last if class_ in _T5 else None,
    )
    roles = (("bos_token", first), ("eos_token", last))
    return made, {role: piece for role, piece in roles if piece is not None}


def _arranged(
    model: _Model, order: Arranged, config: Mapping[str, Any], label: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """The same with other ids."""
    vocabulary = arranged(model.vocabulary, order, label)
    user = _users(vocabulary)
    made = document(
        normalizer=_normalizer(model, config),
        pre_tokenizer=_pre_tokenizer(model, user, config, label),
        model=_tokens(vocabulary, user, label),
        decoder=_decoder(model, (FOUND_NEVER,)),
        added_tokens=[*_specials(vocabulary), *order.behind],
        first=order.first,
        last=order.last,
    )
    class_ = {} if order.class_ is None else {"tokenizer_class": order.class_}
    return made, {"eos_token": "</s>", **class_}


def _users(vocabulary: Vocabulary) -> list[str]:
    """Pieces that users defined, the longest first."""
    return sorted((vocabulary.pieces[one] for one in vocabulary.of_type(USER_DEFINED)), key=len, reverse=True)


def _specials(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    found = vocabulary.of_type(CONTROL, UNKNOWN)
    return [added(one, vocabulary.pieces[one], special=True) for one in found]


def agrees(made: Mapping[str, Any]) -> bool:
    """Does a document made here give the library's ids on every text?"""
    return made["model"]["type"] == "BPE" and "Precompiled" not in str(made["normalizer"])


def _read(data: bytes, label: str) -> _Model:
    rows: list[tuple[str, float, int]] = []
    kind, said = 1, dict[str, Any]()
    for field, value in fields(data, label):
        if field == 1:
            rows.append(_piece(text(value), label))
        elif field == 2:
            trainer = {key: number(one) for key, one in fields(text(value), label)}
            kind = trainer.get(3, 1)
            said |= {"bos": trainer.get(41, 1), "eos": trainer.get(42, 2)}
            if trainer.get(24):
                raise UnsupportedSource(f"{label} sets blanks behind words (`treat_whitespace_as_suffix`)")
        elif field == 3:
            normal = dict(fields(text(value), label))
            said |= {
                "charsmap": text(normal.get(2, b"")),
                "blank_first": bool(number(normal.get(3, 1))),
                "fewer_blanks": bool(number(normal.get(4, 1))),
            }
            if not number(normal.get(5, 1)):
                raise UnsupportedSource(f"{label} leaves blanks as they are (`escape_whitespaces` is false)")
        elif field == 5 and text(dict(fields(text(value), label)).get(2, b"")):
            raise UnsupportedSource(f"{label} changes texts back when it writes them (`denormalizer_spec`)")
        if len(rows) > MOST_PIECES:
            raise MalformedFile(f"{label} has more than {MOST_PIECES:,} pieces")
    if kind not in _KINDS:
        raise UnsupportedSource(f"{label} cuts texts into {_OTHER_KINDS.get(kind, f'pieces by kind {kind}')}")
    return _Model(_vocabulary(rows, _KINDS[kind], label), **said)


def _piece(data: bytes, label: str) -> tuple[str, float, int]:
    found = dict(fields(data, label))
    score, type_ = real(found[2]) if 2 in found else 0.0, number(found.get(3, NORMAL))
    try:
        piece = text(found.get(1, b"")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFile(f"{label} has a piece that is not UTF-8") from error
    if not 0 < len(piece) <= PIECE_CHARS or not math.isfinite(score):
        raise MalformedFile(f"{label} has a piece without text or score, or one that is too long")
    if type_ == UNUSED or not NORMAL <= type_ <= BYTE:
        raise UnsupportedSource(f"{label} has pieces that are not used, such as {quoted(piece)}")
    return piece, score, type_


def _vocabulary(rows: Sequence[tuple[str, float, int]], kind: str, label: str) -> Vocabulary:
    ids = {piece: one for one, (piece, _, _) in enumerate(rows)}
    if not rows or len(ids) < len(rows):
        raise MalformedFile(f"{label} has no pieces, or one of them twice")
    pieces, scores, types = zip(*rows, strict=True)
    return Vocabulary(kind, pieces, types, ids, scores, None)


def _sentinels(first: int, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """T5's class adds marks of masked places that the file does not have, the last one first."""
    if config.get("tokenizer_class") not in _T5:
        return []
    count = config.get("extra_ids", 100)
    count = count if type(count) is int and 0 <= count <= 1000 else 100
    return [added(first + one, f"<extra_id_{count - 1 - one}>", special=True) for one in range(count)]


def _normalizer(model: _Model, config: Mapping[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if model.charsmap:
        map_ = b64encode(model.charsmap).decode("ascii")
        parts.append({"type": "Precompiled", "precompiled_charsmap": map_})
    if model.fewer_blanks:
        for pattern, content in ((r"\A +|[ \u2581]+\z", ""), (" {2,}", " ")):
            parts.append({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})
    if model.blank_first and _everywhere(config):
        parts.append({"type": "Prepend", "prepend": _BLANK})
    return sequence("normalizers", [*parts, replaced(" ", _BLANK)])


def _everywhere(config: Mapping[str, Any]) -> bool:
    return config.get("legacy") is not False


def _pre_tokenizer(
    model: _Model, user: Sequence[str], config: Mapping[str, Any], label: str
) -> dict[str, Any] | None:
    parts: list[dict[str, Any]] = []
    if model.blank_first and not _everywhere(config):
        parts.append({"type": "Metaspace", "replacement": _BLANK, "prepend_scheme": "first", "split": False})
    if user:
        pattern = "|".join(map(re.escape, user))
        if len(pattern.encode()) > _PATTERN_BYTES:
            raise UnsupportedSource(f"{label} has {len(user):,} pieces that users defined; that is too many")
        parts.append(split(pattern))
    return sequence("pretokenizers", parts) if parts else None


def _tokens(vocabulary: Vocabulary, user: Sequence[str], label: str) -> dict[str, Any]:
    """The model part. Where users defined pieces, a part of a text that is one is taken whole."""
    fallback = bool(vocabulary.of_type(BYTE))
    if vocabulary.kind == JOINED:
        made = joined_document(vocabulary, {}, label)[0]["model"]
        return {**made, "byte_fallback": fallback, "ignore_merges": bool(user)}
    unknown = vocabulary.of_type(UNKNOWN)
    scores = vocabulary.scores or ()
    return {
        "type": "Unigram",
        "unk_id": unknown[0] if unknown else None,
        "vocab": [list(pair) for pair in zip(vocabulary.pieces, scores, strict=True)],
        "byte_fallback": fallback,
    }


def _decoder(model: _Model, before: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    first = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if model.blank_first else []
    return sequence("decoders", [*before, *raw_decoders(), *first])
