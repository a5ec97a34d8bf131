"""The `tokenizers` library's tokenizer of a checked tokenizer.json.

The library reads a long file slowly: it keeps all parts of a model until it knows which of four kinds they
make. A byte-pair vocabulary was read here already, in order to be checked, and is handed over as it is, which
takes about half the time: 0.36 s for 0.63 with 200,000 tokens and 280,000 merges.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

_FLAGS = {"fuse_unk", "byte_fallback", "ignore_merges"}
_OPTIONS = {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"} | _FLAGS
_ADDED = ("single_word", "lstrip", "rstrip", "normalized", "special")


def built(document: dict[str, Any], text: str | None) -> "tokenizers.Tokenizer":
    """text: the document as it was read; None where it is another one than was checked. What the library
    raises says what it lacks.
    """
    import tokenizers

    if _is_handed_over(document):
        return _of_pairs(document)
    text = json.dumps(document, ensure_ascii=False) if text is None else text
    return tokenizers.Tokenizer.from_str(text)


def _is_handed_over(document: Mapping[str, Any]) -> bool:
    """Is all of it what this way and the library's own reader take for the same?"""
    model, tokens = document["model"], document["added_tokens"]
    return (
        model["type"] == "BPE"
        and model.keys() <= {"type", "vocab", "merges"} | _OPTIONS
        and all(isinstance(model.get(flag), bool | None) for flag in _FLAGS)
        and all(token.keys() == {"id", "content", *_ADDED} for token in tokens)
    )


def _of_pairs(document: dict[str, Any]) -> "tokenizers.Tokenizer":
    import tokenizers

    model = document["model"]
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    native = tokenizers.Tokenizer.from_str(
        json.dumps({**document, "added_tokens": [], "model": empty}, ensure_ascii=False)
    )
    merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
    options = {name: model[name] for name in _OPTIONS if model.get(name) is not None}
    native.model = tokenizers.models.BPE(model["vocab"], merges, **options)
    # Last: one that is a piece of the vocabulary has that one's id, and others the ids behind it.
    native.add_tokens(
        [
            tokenizers.AddedToken(token["content"], **{flag: token[flag] for flag in _ADDED})
            for token in document["added_tokens"]
        ]
    )
    return native
