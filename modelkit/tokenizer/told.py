"""Parts of tokenizer.json as tokenizer_config.json has them, whose flags count more than the file beside it.

transformers hands the flags to the tokenizer's class, which makes the part of them, with a value of its own
for a flag that is left out. Its generic classes take tokenizer.json as it is.
"""

from collections.abc import Mapping
from typing import Any

_WHOLE = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of transformers that take all of tokenizer.json."""
_OF_BERT = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
"""Flags that BERT's classes make their normalizer of, its names for them, and what they are unless said."""


def as_told(document: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A checked tokenizer.json beside this tokenizer_config.json."""
    if config.get("tokenizer_class") in _WHOLE:
        return dict(document)
    return {**document, "normalizer": _lettered(document["normalizer"], config)}


def _lettered(normalizer: Any, config: Mapping[str, Any]) -> Any:
    if not normalizer or normalizer["type"] != "BertNormalizer":
        return normalizer
    told = {ours: _flag(config, theirs, unless) for theirs, (ours, unless) in _OF_BERT.items()}
    return {**normalizer, **told}


def _flag(config: Mapping[str, Any], name: str, unless: bool | None) -> bool | None:
    return config[name] if isinstance(config.get(name), bool) else unless
