"""Parts of tokenizer.json as tokenizer_config.json has them, whose flags count more than the file beside it.

transformers hands the flags to the tokenizer's class, which makes the part of them, with a value of its own
for a flag that is left out. Its generic classes take tokenizer.json as it is.
"""

from collections.abc import Callable, Mapping
from typing import Any

from modelkit.tokenizer.components import SEQUENCES

_WHOLE = ("PreTrained", "TokenizersBackend")
"""Classes without their ending, `TokenizerFast` or `Tokenizer`; "": none is named, and it is the model's."""
_OF_BYTES = ("GPT2", "Roberta", "Bart", "GPTNeoX", "Cohere", "CodeGen", "Qwen2", "Qwen3_5", "")
_OF_PIECES = ("Llama", "CodeLlama", "XLMRoberta")
_OF_LANGUAGES = {
    "Nllb": ("eng_Latn", "{}", True),
    "MBart": ("en_XX", "{}", False),
    "MBart50": ("en_XX", "{}", True),
    "M2M100": ("en", "__{}__", True),
}
"""Classes of translators, which frame a text by the language that `src_lang` says: which that is unless said,
its token, and whether it stands before the text, else behind the end token.
"""
_OF_BERT = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
"""Flags that BERT's classes make their normalizer of, its names for them, and what they are unless said."""


def with_overrides(document: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A checked tokenizer.json beside this tokenizer_config.json."""
    kind = str(config.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    told, cut = dict(document), document["pre_tokenizer"] or {"type": None}
    # No blank unless told, where texts are cut by bytes alone; of more than that tokenizer.json knows more.
    blank = _flag(config, "add_prefix_space", False if cut["type"] == "ByteLevel" else None)
    if kind not in _WHOLE:
        _rewrite(told, "normalizer", lambda part: _lettered(part, config))
    if kind in _OF_BYTES and blank is not None:
        _rewrite(told, "pre_tokenizer", lambda part: _with_bytes(part, blank))
    if kind in _OF_PIECES and blank is False:
        for key in ("normalizer", "pre_tokenizer", "decoder"):
            _rewrite(told, key, _without_blank)
    if kind in _OF_LANGUAGES:
        told["post_processor"] = _framed(document, config, *_OF_LANGUAGES[kind])
    return told


def _framed(
    document: Mapping[str, Any], config: Mapping[str, Any], usual: str, name: str, first: bool
) -> dict[str, Any] | None:
    """What frames a translator's texts; the document's own where a token for it is missing."""
    said, legacy = config.get("src_lang"), config.get("legacy_behaviour") is True
    language, end = name.format(said if isinstance(said, str) else usual), _end(config)
    ids = {token["content"]: token["id"] for token in document["added_tokens"]}
    if not {language, end} <= ids.keys():
        return document["post_processor"]
    special = {text: {"id": text, "ids": [ids[text]], "tokens": [text]} for text in (language, end)}
    frame = [language, None, end] if first and not legacy else [None, end, language]
    return {
        "type": "TemplateProcessing",
        "single": [_placed(text, "A") for text in frame],
        "pair": [_placed(text, one) for text in frame for one in ("AB" if text is None else "A")],
        "special_tokens": special,
    }


def _end(config: Mapping[str, Any]) -> str:
    """The end token of these classes."""
    said = config.get("eos_token", "</s>")
    return str(said.get("content") if isinstance(said, Mapping) else said)


def _placed(text: str | None, sequence: str) -> dict[str, Any]:
    """A token of a frame, or the text."""
    if text is None:
        return {"Sequence": {"id": sequence, "type_id": 0}}
    return {"SpecialToken": {"id": text, "type_id": 0}}


def _flag(config: Mapping[str, Any], name: str, unless: bool | None) -> bool | None:
    return config[name] if isinstance(config.get(name), bool) else unless


_Part = dict[str, Any]


def _rewrite(told: _Part, key: str, rule: Callable[[_Part], _Part | None]) -> None:
    """Every part at `key` becomes what the rule makes of it; None: it goes."""

    def made(part: _Part) -> _Part | None:
        if part["type"] != "Sequence":
            return rule(part)
        inner = (made(one) for one in part[SEQUENCES[key]])
        return {**part, SEQUENCES[key]: [one for one in inner if one is not None]}

    told[key] = made(told[key]) if told[key] else told[key]


def _lettered(part: _Part, config: Mapping[str, Any]) -> _Part:
    if part["type"] != "BertNormalizer":
        return part
    return part | {ours: _flag(config, theirs, unless) for theirs, (ours, unless) in _OF_BERT.items()}


def _with_bytes(part: _Part, blank: bool) -> _Part:
    return {**part, "add_prefix_space": blank} if part["type"] == "ByteLevel" else part


def _without_blank(part: _Part) -> _Part | None:
    """Of a SentencePiece vocabulary: no blank goes before a text, and none is taken from the text of ids."""
    match part:
        case {"type": "Prepend"} | {"type": "Strip", "content": " "}:
            return None
        case {"type": "Metaspace"}:
            return {**part, "prepend_scheme": "never"}
        case _:
            return part
