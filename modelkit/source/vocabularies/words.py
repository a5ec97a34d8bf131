"""Vocabularies of transformers' older classes: `vocab.json` beside `merges.txt`, and `vocab.txt` of words.

What the files do not say stands in the class that tokenizer_config.json names; of which flags count there,
whoever loads the document knows more.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.vocabulary import patterns as cut
from modelkit.source.gguf.vocabulary.bpe import byte_level, sequence, split
from modelkit.source.vocabularies.document import added, byte_pairs, document
from runtime.quoting import quoted, shown

_GPT2 = None, {**byte_level(), "use_regex": True}
_QWEN2 = {"type": "NFC"}, sequence("pretokenizers", [*map(split, cut.QWEN2), byte_level()])
_OF_BYTES = {"GPT2": _GPT2, "CodeGen": _GPT2, "Qwen2": _QWEN2}
"""(normalizer, pre_tokenizer) of each class."""
_OF_WORDS = ("Bert", "DistilBert")
_ROLES = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


def merges_document(
    vocab: Mapping[str, Any], merges: bytes, config: Mapping[str, Any], label: str
) -> dict[str, Any]:
    """A tokenizer.json. vocab, merges: the two files; config: tokenizer_config.json. Raises MalformedFile for
    merges of other tokens, UnsupportedSource for a class that is not known.
    """
    parts = _OF_BYTES.get(_class(config))
    if parts is None:
        raise _unknown(config, label)
    pairs = [tuple(line.split(" ")) for line in _lines(merges, label) if not line.startswith("#version")]
    wrong = next(
        (pair for pair in pairs if len(pair) != 2 or not {*pair, "".join(pair)} <= vocab.keys()), None
    )
    if wrong is not None:
        raise MalformedFile(f"{label} has no tokens for the merge {quoted(' '.join(wrong))} of merges.txt")
    return document(
        normalizer=parts[0],
        pre_tokenizer=parts[1],
        model=byte_pairs(vocab, pairs, whole_first=False),
        decoder=byte_level(),
        added_tokens=(),
    )


def words_document(data: bytes, config: Mapping[str, Any], label: str) -> dict[str, Any]:
    """The same of a `vocab.txt`, whose lines are the tokens in the order of their ids."""
    if _class(config) not in _OF_WORDS:
        raise _unknown(config, label)
    tokens = _lines(data, label)
    vocab = {token: one for one, token in enumerate(tokens)}
    named = {role: _text(config.get(role), usual) for role, usual in _ROLES.items()}
    if (
        len(vocab) < len(tokens)
        or not {named["unk_token"], named["cls_token"], named["sep_token"]} <= vocab.keys()
    ):
        raise MalformedFile(
            f"{label} has a token twice, or lacks one of {', '.join(map(shown, named.values()))}"
        )
    return document(
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        model={
            "type": "WordPiece",
            "unk_token": named["unk_token"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        added_tokens=[added(vocab[text], text, special=True) for text in named.values() if text in vocab],
        first=named["cls_token"],
        last=named["sep_token"],
    )


def _class(config: Mapping[str, Any]) -> str:
    return str(config.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")


def _unknown(config: Mapping[str, Any], label: str) -> UnsupportedSource:
    name, known = (
        config.get("tokenizer_class"),
        ", ".join(f"{one}Tokenizer" for one in (*_OF_BYTES, *_OF_WORDS)),
    )
    said = quoted(name) if name else "a class that tokenizer_config.json does not name"
    return UnsupportedSource(f"{label} is read by {said}; known are {known}")


def _lines(data: bytes, label: str) -> list[str]:
    try:
        return data.decode("utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise MalformedFile(f"{label} and what lies beside it are not UTF-8") from error


def _text(value: Any, usual: str) -> str:
    found = value.get("content") if isinstance(value, Mapping) else value
    return found if isinstance(found, str) else usual
