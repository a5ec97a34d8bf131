"""Byte-pair vocabularies with merges: a tokenizer.json in the form that their makers publish."""

from collections.abc import Iterable, Mapping
from typing import Any

from modelkit.errors import MalformedFile
from modelkit.source.gguf.vocabulary.pieces import KEY, UNKNOWN, Vocabulary
from modelkit.source.gguf.vocabulary.splitting import Splitting
from runtime.quoting import quoted

_BLANK = "\u2581"
_LOST_SHARE = 100
"""One merge in so many may name a piece that the vocabulary lacks; with more of them it is not whole."""


def merged_document(
    vocabulary: Vocabulary, splitting: Splitting, label: str
) -> tuple[dict[str, Any], list[str]]:
    """(normalizer, pre_tokenizer, model and decoder of a tokenizer.json; notes).

    Raises MalformedFile for merges that do not belong to the vocabulary.
    """
    merges, notes = _merges(vocabulary, label)
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": _unknown(vocabulary) if splitting.raw else None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": splitting.raw,
        "byte_fallback": splitting.raw,
        "ignore_merges": splitting.whole_first,
        "vocab": vocabulary.ids,
        "merges": merges,
    }
    parts = [split(pattern) for pattern in splitting.patterns]
    if splitting.raw:
        return {
            "normalizer": replaced(" ", _BLANK),
            "pre_tokenizer": sequence("pretokenizers", parts),
            "model": model,
            "decoder": sequence("decoders", raw_decoders()),
        }, notes
    return {
        "normalizer": {"type": "NFC"} if splitting.nfc else None,
        "pre_tokenizer": sequence("pretokenizers", [*parts, byte_level()]),
        "model": model,
        "decoder": byte_level(),
    }, notes


def _unknown(vocabulary: Vocabulary) -> str | None:
    found = vocabulary.of_type(UNKNOWN)
    return vocabulary.pieces[found[0]] if found else None


def _merges(vocabulary: Vocabulary, label: str) -> tuple[list[tuple[str, str]], list[str]]:
    if vocabulary.merges is None:
        raise MalformedFile(f"{label} has a byte-pair vocabulary without merges (`{KEY}merges`)")
    pairs = [_pair(merge, label) for merge in vocabulary.merges]
    kept = [pair for pair in pairs if _made_of(pair, vocabulary.ids)]
    lost = len(pairs) - len(kept)
    if not lost:
        return kept, []
    first = next(pair for pair in pairs if not _made_of(pair, vocabulary.ids))
    said = f"{lost:,} of {len(pairs):,} merges name pieces that the vocabulary lacks, as {quoted(first)}"
    if lost * _LOST_SHARE > len(pairs):
        raise MalformedFile(f"{label}: {said}")
    return kept, [f"{label}: {said}; they are left out"]


def _pair(merge: str, label: str) -> tuple[str, str]:
    """A piece may itself begin with a blank, so the two are parted at the first one after that."""
    cut = merge.find(" ", 1)
    if cut < 0 or cut == len(merge) - 1:
        raise MalformedFile(f"{label}: the merge {quoted(merge)} does not name two pieces")
    return merge[:cut], merge[cut + 1 :]


def _made_of(pair: tuple[str, str], ids: Mapping[str, int]) -> bool:
    return pair[0] in ids and pair[1] in ids and pair[0] + pair[1] in ids


def split(pattern: str) -> dict[str, Any]:
    """Every match a part of its own, what lies between kept as it is."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replaced(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def byte_level() -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def raw_decoders() -> list[dict[str, Any]]:
    """Of pieces that are text with blanks as U+2581, or bytes as `<0x0A>`."""
    return [replaced(_BLANK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]


def sequence(name: str, parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "Sequence", name: list(parts)}
