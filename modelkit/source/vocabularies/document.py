"""What every tokenizer.json that is made of another file has."""

from collections.abc import Mapping, Sequence
from typing import Any


def document(
    *,
    normalizer: Mapping[str, Any] | None,
    pre_tokenizer: Mapping[str, Any] | None,
    model: Mapping[str, Any],
    decoder: Mapping[str, Any],
    added_tokens: Sequence[Mapping[str, Any]],
    first: str | Sequence[str] | None = None,
    last: str | None = None,
) -> dict[str, Any]:
    """first, last: special tokens that a bare prompt gets around it, of the first one or several."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(added_tokens),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": frame(first, last, {token["content"]: token["id"] for token in added_tokens}),
        "decoder": decoder,
        "model": model,
    }


def byte_pairs(
    vocab: Mapping[str, int], merges: Sequence[Sequence[str]], *, whole_first: bool
) -> dict[str, Any]:
    """The model of pieces that stand for bytes. whole_first: a word that is a token is that one."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": whole_first,
        "vocab": dict(vocab),
        "merges": merges,
    }


def added(one: int, content: str, *, special: bool) -> dict[str, Any]:
    """A token that is found in a text before it is cut."""
    return {
        "id": one,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def frame(
    first: str | Sequence[str] | None, last: str | None, ids: Mapping[str, int]
) -> dict[str, Any] | None:
    """The post-processor that puts special tokens around a bare prompt."""
    before = [first] if isinstance(first, str) else first or ()
    behind = () if last is None else (last,)

    def tokens(texts: Sequence[str], kind: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": text, "type_id": kind}} for text in texts]

    def framed(name: str, kind: int) -> list[dict[str, Any]]:
        return [*tokens(before, kind), {"Sequence": {"id": name, "type_id": kind}}, *tokens(behind, kind)]

    used = sorted({*before, *behind})
    if not used:
        return None
    return {
        "type": "TemplateProcessing",
        "single": framed("A", 0),
        "pair": [*framed("A", 0), *framed("B", 1)],
        "special_tokens": {text: {"id": text, "ids": [ids[text]], "tokens": [text]} for text in used},
    }
