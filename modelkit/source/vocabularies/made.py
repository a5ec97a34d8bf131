"""The tokenizer.json of a source that brings its vocabulary in another file."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from modelkit.errors import SourceError, UnsupportedSource
from modelkit.source.belongings import LIMIT_BYTES
from modelkit.source.inventory import Inventory
from modelkit.source.strict_json import read_json
from modelkit.source.tree import Files, open_regular
from modelkit.source.vocabularies.sentencepiece import agrees, sentencepiece_document
from modelkit.source.vocabularies.tiktoken import BY_TYPE, FAMILIES, is_tiktoken, tiktoken_document
from modelkit.source.vocabularies.words import merges_document, words_document
from modelkit.temporary import TemporaryFolder

_MADE = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_SENTENCEPIECE = ("tokenizer.model", "spiece.model")
_VOCAB, _MERGES, _WORDS = "vocab.json", "merges.txt", "vocab.txt"
_CONVERT = "`AutoTokenizer.from_pretrained(folder, use_fast=True).save_pretrained(folder)`"
_REFUSED = {
    "tokenizer.jsonl": "PLaMo's vocabulary, whose search takes the longest beginning of those as good",
    "rwkv_vocab_v20230424.txt": "RWKV's vocabulary, which is searched for the longest match",
}
"""Files that no tokenizer.json can say the same as."""


def with_tokenizer(inventory: Inventory) -> tuple[Inventory, tuple[str, ...]]:
    """The source with a tokenizer.json made of the vocabulary that it has, and a note about that; as it is
    where it has one, or none can be made.
    """
    try:
        made = _made(inventory)
    except SourceError:  # which `require_tokenizer` says, where one is needed
        made = None
    if made is None:
        return inventory, ()
    name, document = made
    folder = TemporaryFolder("tokenizer", "the files of a tokenizer")
    path = folder.path / _MADE
    with folder.writing():
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        path.write_text(text, encoding="utf-8")
    files = {**inventory.files, _MADE: path}
    note = f"{_MADE} is made of {name}"
    if name in _SENTENCEPIECE and not agrees(document):
        note += (
            "; runs of one letter, and letters combined of several, may get other ids than in SentencePiece"
        )
    return replace(inventory, files=files, keep=folder), (note,)


def require_tokenizer(inventory: Inventory) -> None:
    """Raise SourceError unless the source has a tokenizer.json (a draft may do without)."""
    if _MADE in inventory.files:
        return
    _made(inventory)
    for name, kind in _REFUSED.items():
        if name in inventory.files:
            raise UnsupportedSource(
                f"{inventory.origin} has no {_MADE}, and {name} is {kind}: no {_MADE} can say the same"
            )
    raise SourceError(
        f"{inventory.origin} has no {_MADE}",
        hint="Copy it from the repository that the model came from; where that has tekken.json, "
        f"write it with transformers: {_CONVERT}.",
    )


def _made(inventory: Inventory) -> tuple[str, dict[str, Any]] | None:
    """The file that it is made of, and a tokenizer.json; None where there is one, or no such file.

    Raises SourceError where none can be made.
    """
    files = inventory.files
    name = next((one for one in (*FAMILIES, *_SENTENCEPIECE, _VOCAB, _WORDS) if one in files), None)
    if _MADE in files or name is None:
        return None
    label = f"{inventory.origin}/{name}"
    config = read_json(files[_CONFIG], label=f"{inventory.origin}/{_CONFIG}") if _CONFIG in files else {}
    try:
        return name, _document(name, files, inventory.config, config, label)
    except UnsupportedSource as error:
        hint = f"Convert it with transformers: {_CONVERT}."
        raise UnsupportedSource(f"{error.message}; tokenizer.json is needed", hint=hint) from error


def _document(
    name: str, files: Files, model: Mapping[str, Any], config: Mapping[str, Any], label: str
) -> dict[str, Any]:
    """model: config.json; config: tokenizer_config.json."""
    data = _read(files[name], label)
    if name == _VOCAB:
        if _MERGES not in files:
            raise UnsupportedSource(f"{label} has no {_MERGES} beside it")
        return merges_document(
            read_json(files[name], label=label), _read(files[_MERGES], label), config, label
        )
    if name == _WORDS:
        return words_document(data, config, label)
    if name in FAMILIES:
        return tiktoken_document(data, FAMILIES[name], config, label)
    if not is_tiktoken(data):
        return sentencepiece_document(data, config, label)
    family = BY_TYPE.get(str(model.get("model_type")))
    if family is None:
        raise UnsupportedSource(
            f"{label} is a vocabulary of tiktoken, and how texts are cut before it is known for Llama 3 only"
        )
    return tiktoken_document(data, family, config, label)


def _read(path: Path, label: str) -> bytes:
    with open_regular(path, label) as file:
        return file.read(LIMIT_BYTES)
