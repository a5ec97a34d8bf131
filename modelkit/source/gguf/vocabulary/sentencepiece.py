"""SentencePiece vocabularies, which have a score per piece instead of merges.

llama.cpp joins neighbours as long as the joined text is a piece, the best score first. Merges say the same:
every cut of a piece into two pieces is a merge, and their order is the order of scores. Unigram vocabularies
are searched as a whole by their scores and need no merges.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.vocabulary.bpe import raw_decoders, replaced, sequence
from modelkit.source.gguf.vocabulary.pieces import (
    KEY,
    MOST_MERGES,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
)

_BLANK = "\u2581"
MOST_WORK = 1_000_000_000
"""Sum of squared lengths: what cutting every piece everywhere costs. Large vocabularies have 30 million."""
_CHARSMAP_BYTES = 1 << 20
_STRIPPED = ({"type": "Strip", "content": " ", "start": 1, "stop": 0},)


def joined_document(
    vocabulary: Vocabulary, metadata: Mapping[str, Any], label: str
) -> tuple[dict[str, Any], list[str]]:
    """(normalizer, pre_tokenizer, model and decoder of a tokenizer.json; notes) of a `llama` vocabulary."""
    scores = _scores(vocabulary, label)
    merges = _merges(vocabulary, scores, label)
    if merges:
        _refuse_equal(vocabulary, scores, label)
    unknown = vocabulary.of_type(UNKNOWN)
    blank_first = truth(metadata, "add_space_prefix", label, usual=True)
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": vocabulary.pieces[unknown[0]] if unknown else None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": vocabulary.ids,
        "merges": merges,
    }
    first = [{"type": "Prepend", "prepend": _BLANK}] if blank_first else []
    last = _STRIPPED if blank_first else ()
    notes = (
        ["a blank is put before the text after each special token, as llama.cpp does"] if blank_first else []
    )
    return {
        "normalizer": sequence("normalizers", [*first, replaced(" ", _BLANK)]),
        "pre_tokenizer": None,
        "model": model,
        "decoder": sequence("decoders", [*raw_decoders(), *last]),
    }, notes


def unigram_document(vocabulary: Vocabulary, metadata: Mapping[str, Any], label: str) -> dict[str, Any]:
    """The same of a vocabulary of kind `t5`."""
    scores = _scores(vocabulary, label)
    unknown = vocabulary.of_type(UNKNOWN)
    charsmap = _charsmap(metadata, label)
    normalizers: list[dict[str, Any]] = (
        [{"type": "Precompiled", "precompiled_charsmap": charsmap}] if charsmap else []
    )
    merges = truth(metadata, "remove_extra_whitespaces", label, usual=False)
    first = truth(metadata, "add_space_prefix", label, usual=False)
    words = not any(_BLANK in piece[1:] for piece in vocabulary.pieces)  # or pieces of several
    # Where blanks are merged, one always comes first; else it comes before a text's own.
    metaspace = {
        "type": "Metaspace",
        "replacement": _BLANK,
        "prepend_scheme": "always" if merges else "never",
        "split": words,
    }
    if merges:
        normalizers.append({"type": "Strip", "strip_left": True, "strip_right": True})
        normalizers.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    elif first:
        normalizers.append({"type": "Prepend", "prepend": _BLANK})
    decoder = {**metaspace, "prepend_scheme": "always" if merges or first else "never"}
    if not words:  # that decoder takes all blanks of the first piece
        decoder = sequence("decoders", [*raw_decoders(), *(_STRIPPED if merges or first else ())])
    return {
        "normalizer": sequence("normalizers", normalizers) if normalizers else None,
        "pre_tokenizer": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": unknown[0] if unknown else None,
            "vocab": [list(pair) for pair in zip(vocabulary.pieces, scores, strict=True)],
            "byte_fallback": False,
        },
        "decoder": decoder,
    }


def truth(metadata: Mapping[str, Any], name: str, label: str, *, usual: bool) -> bool:
    """A yes or no of the file's. Raises MalformedFile for anything else."""
    value = metadata.get(KEY + name, usual)
    if not isinstance(value, bool):
        raise MalformedFile(f"{label}: `{KEY}{name}` is neither true nor false")
    return value


def _scores(vocabulary: Vocabulary, label: str) -> list[float]:
    if vocabulary.scores is None:
        raise MalformedFile(f"{label} has a SentencePiece vocabulary without scores (`{KEY}scores`)")
    return [float(score) for score in vocabulary.scores]


def _refuse_equal(vocabulary: Vocabulary, scores: list[float], label: str) -> None:
    ordinary = {score for score, type_ in zip(scores, vocabulary.types, strict=True) if type_ == NORMAL}
    if len(ordinary) == 1:
        raise UnsupportedSource(
            f"{label} has the same score for all pieces, so it cannot be told how text is cut into them",
            hint="mlx-lm writes such files. Use the model that it was made from.",
        )


def _merges(vocabulary: Vocabulary, scores: list[float], label: str) -> list[tuple[str, str]]:
    ids, usable = vocabulary.ids, (0, NORMAL, USER_DEFINED, UNUSED)
    if sum(len(piece) ** 2 for piece in vocabulary.pieces) > MOST_WORK:
        raise MalformedFile(f"{label} has pieces so long that there are too many ways to join them")
    found: list[tuple[float, int, int, int, str, str]] = []
    for one, piece in enumerate(vocabulary.pieces):
        if vocabulary.types[one] in usable:
            for cut in range(1, len(piece)):
                left, right = ids.get(piece[:cut]), ids.get(piece[cut:])
                if left is not None and right is not None:
                    found.append((-scores[one], one, left, right, piece[:cut], piece[cut:]))
        if len(found) > MOST_MERGES:
            raise MalformedFile(f"{label} has more than {MOST_MERGES:,} ways to join its pieces")
    found.sort()
    return [(each[4], each[5]) for each in found]


def _charsmap(metadata: Mapping[str, Any], label: str) -> str | None:
    value = metadata.get(KEY + "precompiled_charsmap")
    if value is None:
        return None
    if not isinstance(value, tuple | list | bytes) or len(value) > _CHARSMAP_BYTES:
        raise MalformedFile(
            f"{label}: `{KEY}precompiled_charsmap` is not a list of at most {_CHARSMAP_BYTES:,} bytes"
        )
    if not all(type(one) is int and -128 <= one < 256 for one in value):
        raise MalformedFile(f"{label}: `{KEY}precompiled_charsmap` is not a list of bytes")
    return b64encode(bytes(one & 255 for one in value)).decode("ascii")
