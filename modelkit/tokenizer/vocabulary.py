"""The model part of a tokenizer.json: pieces, ids, merges, added tokens. Checked against each other.

Errors are ValueErrors that complete the sentence "tokenizer.json is refused: ..."; `check` names the file.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.json_text import is_finite
from runtime.quoting import quoted

PIECE_BYTES = 4096
MOST_PIECES = 2_000_000
MOST_MERGES = 4_000_000
MOST_ADDED = 65_536
SLACK_IDS = 1024


def check_vocabulary(model: object, added: object) -> tuple[dict[str, Any], dict[str, int]]:
    """The model with its type stated (old files leave it out), and the id of every piece and added token."""
    if not isinstance(model, dict):
        raise ValueError("it has no model")
    checked = {**model, "type": model.get("type") or _old_type(model)}
    kind = checked["type"]
    for field in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        _check_short(checked, field)
    if kind == "BPE":
        ids = _pieces(checked.get("vocab"))
        _check_merges(checked)
        _check_dropout(checked.get("dropout"))
    elif kind == "Unigram":
        ids = _scored_pieces(checked)
    elif kind in ("WordPiece", "WordLevel"):
        ids = _pieces(checked.get("vocab"))
        _check_number(checked, "max_input_chars_per_word")
    else:
        raise ValueError(f"its model is of an unknown type, {quoted(kind)}")
    if kind != "Unigram" and checked.get("unk_token") is not None:
        _check_unknown_token(checked["unk_token"], ids, added)
    _add_tokens(added, ids)
    _check_ids(ids)
    return checked, ids


def _old_type(model: dict[str, Any]) -> str:
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "continuing_subword_prefix" in model else "WordLevel"


def _pieces(vocab: object) -> dict[str, int]:
    if not isinstance(vocab, dict) or not vocab or len(vocab) > MOST_PIECES:
        raise ValueError(f"its vocabulary must be an object of 1 to {MOST_PIECES:,} pieces")
    if set(map(type, vocab.values())) == {int} and max(map(len, vocab)) <= PIECE_BYTES:
        return dict(vocab)
    for piece, one in vocab.items():
        if type(one) is not int or len(piece) > PIECE_BYTES:
            raise ValueError(f"the vocabulary entry {quoted(piece)} is not a short piece with an integer id")
    return dict(vocab)


def _scored_pieces(model: dict[str, Any]) -> dict[str, int]:
    """A Unigram vocabulary: [piece, log probability] in the order of the ids."""
    vocab = model.get("vocab")
    if not isinstance(vocab, list) or not 0 < len(vocab) <= MOST_PIECES:
        raise ValueError(f"its vocabulary must be a list of 1 to {MOST_PIECES:,} pieces")
    ids: dict[str, int] = {}
    for one, entry in enumerate(vocab):
        piece, score = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if not isinstance(piece, str) or not 0 < len(piece) <= PIECE_BYTES or piece in ids:
            raise ValueError(f"vocabulary entry {one} is not a new piece with its score")
        if not is_finite(score):
            raise ValueError(f"the score of vocabulary entry {one} is not a finite number")
        ids[piece] = one
    unknown = model.get("unk_id")
    if unknown is not None and (type(unknown) is not int or not 0 <= unknown < len(vocab)):
        raise ValueError("unk_id lies outside the vocabulary")
    return ids


def _check_merges(model: dict[str, Any]) -> None:
    """That each joins known pieces into a known one is for the library to find, which looks them all up; but
    behind a prefix that later pieces have, it cuts what it has not measured.
    """
    merges = model.get("merges")
    if not isinstance(merges, list) or len(merges) > MOST_MERGES:
        raise ValueError(f"its merges must be a list of at most {MOST_MERGES:,}")
    fault = merge_fault(model) if model.get("continuing_subword_prefix") else None
    if fault is not None:
        raise ValueError(fault)


def merge_fault(model: Mapping[str, Any]) -> str | None:
    """What is wrong with the first merge that does not join two known pieces into a known one; None for none.
    model: one that was checked.
    """
    ids, prefix = model["vocab"], len(model.get("continuing_subword_prefix") or "")
    for number, merge in enumerate(model["merges"]):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            return f"merge {number} does not name two pieces"
        left, right = parts
        if left not in ids or right not in ids or left + right[prefix:] not in ids:
            return f"merge {number} joins or makes a piece that is not in the vocabulary"
    return None


def _check_dropout(dropout: object) -> None:
    if dropout not in (None, 0, 0.0):
        raise ValueError("its model drops merges at random (`dropout`), so one text would have many ids")


def _check_number(model: dict[str, Any], field: str) -> None:
    value = model.get(field)
    if value is not None and (type(value) is not int or not 0 < value <= 10_000):
        raise ValueError(f"model.{field} must be a whole number up to 10,000")


def _check_short(model: dict[str, Any], field: str) -> None:
    value = model.get(field)
    if value is not None and (not isinstance(value, str) or len(value) > PIECE_BYTES):
        raise ValueError(f"model.{field} must be a short text")


def _check_unknown_token(token: str, ids: dict[str, int], added: object) -> None:
    others = added if isinstance(added, list) else []
    if token not in ids and not any(isinstance(one, dict) and one.get("content") == token for one in others):
        raise ValueError(f"its unk_token {quoted(token)} is not in the vocabulary")


def _add_tokens(added: object, ids: dict[str, int]) -> None:
    """Enter the added tokens into `ids`; one that is also a piece must have the piece's id."""
    if not isinstance(added, list) or len(added) > MOST_ADDED:
        raise ValueError(f"added_tokens must be a list of at most {MOST_ADDED:,}")
    for entry in added:
        content, one = (entry.get("content"), entry.get("id")) if isinstance(entry, dict) else (None, None)
        if not isinstance(content, str) or not 0 < len(content) <= PIECE_BYTES or type(one) is not int:
            raise ValueError("an added token has no content or no id")
        if ids.setdefault(content, one) != one:
            raise ValueError(f"the added token {quoted(content)} has two ids, {ids[content]} and {one}")


def _check_ids(ids: dict[str, int]) -> None:
    used = set(ids.values())
    if len(used) != len(ids):
        raise ValueError("two tokens have the same id")
    if min(used) < 0 or max(used) >= 2 * len(ids) + SLACK_IDS:
        raise ValueError(f"its ids reach from {min(used)} to {max(used)}, for {len(ids):,} tokens")
