"""What a tokenizer is, as one number: equal for files that mean the same by every id."""

import hashlib
import json
from typing import Any


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
