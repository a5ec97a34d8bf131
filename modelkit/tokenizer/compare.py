"""Whether two tokenizers are the same. A draft model must mean by every id what its target means."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modelkit.tokenizer.tokenizer import Tokenizer


def fingerprint_of(document_text: str) -> str:
    """SHA-256 (hex) of a tokenizer.json's model type, vocabulary, merges and added tokens.

    Spelling does not matter: key order, and merges as pairs or as one text.
    """
    document: dict[str, Any] = json.loads(document_text)
    model: dict[str, Any] = document["model"]
    merges = [one.split(" ") if isinstance(one, str) else one for one in model.get("merges", [])]
    added = sorted(document["added_tokens"], key=lambda token: token["id"])
    identity = [model["type"], model["vocab"], merges, added]
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def same_tokens(one: "Tokenizer", other: "Tokenizer") -> str | None:
    """None when every id is the same piece in both, else one sentence on the first difference.

    How text is split into pieces may differ: ids, not texts, pass between a draft and its target.
    """
    if one.pieces == other.pieces:
        return None
    if one.vocab_size != other.vocab_size:
        return f"one vocabulary ends at id {one.vocab_size - 1}, the other at id {other.vocab_size - 1}"
    ours, theirs = ({at: piece for piece, at in each.pieces.items()} for each in (one, other))
    first = next(at for at in range(one.vocab_size) if ours.get(at) != theirs.get(at))
    return f"id {first} is {ours.get(first)!r} in one and {theirs.get(first)!r} in the other"
