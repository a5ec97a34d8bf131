"""The tokenizer.json of a source that brings its vocabulary in another file."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from modelkit.errors import SourceError, UnsupportedSource
from modelkit.source.companion_files import LIMIT_BYTES
from modelkit.source.inventory import Inventory
from modelkit.source.strict_json import read_json
from modelkit.source.tree import Files, open_regular
from modelkit.source.vocabularies import tekken
from modelkit.source.vocabularies.piece_ids import WITH_WORDS, Arrange, by_class, by_words
from modelkit.source.vocabularies.sentencepiece import agrees, sentencepiece_document
from modelkit.source.vocabularies.tiktoken import BY_TYPE, FAMILIES, is_tiktoken, tiktoken_document
from modelkit.source.vocabularies.words import merges_document, words_document
from modelkit.temporary import TemporaryFolder
from runtime.quoting import quoted
from runtime.records import dataclass

_MADE = "tokenizer.json"
_CONFIG, _MAP = "tokenizer_config.json", "special_tokens_map.json"
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_SENTENCEPIECE = ("tokenizer.model", "spiece.model", *WITH_WORDS)
_VOCAB, _MERGES, _WORDS = "vocab.json", "merges.txt", "vocab.txt"
_NAMES = (*FAMILIES, tekken.NAME, *_SENTENCEPIECE, _VOCAB, _WORDS)
"""The first that is there is taken."""
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
    folder = TemporaryFolder("tokenizer", "the files of a tokenizer")
    files = dict(inventory.files)
    with folder.writing():
        for file, content in ((_MADE, made.document), (_CONFIG, made.config)):
            if content:
                files[file] = folder.path / file
                text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
                files[file].write_text(text, encoding="utf-8")
    note = f"{_MADE} is made of {made.name}"
    if "chat_template" in made.completes and not {*_TEMPLATES} & {*inventory.files}:
        note += ", and the chat template is that of its version, as mistral_common writes it"
    if made.name in _SENTENCEPIECE and not agrees(made.document):
        note += (
            "; runs of one letter, and letters combined of several, may get other ids than in SentencePiece"
        )
    seen = {file: state for file, state in inventory.seen.items() if files[file] == inventory.files[file]}
    return replace(inventory, files=files, keep=folder, seen=seen), (note,)


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
    from modelkit.source.gguf.checkpoint import FACTS

    if FACTS in inventory.files:
        raise SourceError(
            f"{inventory.origin} has no vocabulary",
            hint="Take a GGUF file with `tokenizer.ggml.*` in its metadata, or the folder it was made from.",
        )
    raise SourceError(
        f"{inventory.origin} has no {_MADE}",
        hint="Copy it from the repository that the model came from.",
    )


@dataclass(frozen=True, slots=True)
class _Tokenizer:
    name: str
    """Of the file that it is made of."""
    document: dict[str, Any]
    """tokenizer.json"""
    config: dict[str, Any]
    """tokenizer_config.json, where the source's leaves out what that file says; {}: it does not."""
    completes: frozenset[str]
    """What the source's leaves out."""


def _made(inventory: Inventory) -> _Tokenizer | None:
    """None where there is a tokenizer.json, or no such file. Raises SourceError where none can be made."""
    files = inventory.files
    name = next((one for one in _NAMES if one in files), None)
    if _MADE in files or name is None:
        return None
    label = f"{inventory.origin}/{name}"
    config = read_json(files[_CONFIG], label=f"{inventory.origin}/{_CONFIG}") if _CONFIG in files else {}
    try:
        document, said = _document(name, files, inventory.config, config, label)
    except UnsupportedSource as error:
        hint = f"Convert it with transformers: {_CONVERT}."
        raise UnsupportedSource(f"{error.message}; tokenizer.json is needed", hint=hint) from error
    unsaid = _unsaid(config, said, inventory)
    return _Tokenizer(name, document, {**config, **unsaid} if unsaid else {}, frozenset(unsaid))


def _unsaid(config: Mapping[str, Any], said: Mapping[str, str], inventory: Inventory) -> dict[str, str]:
    """Of what the vocabulary's file says, such as what begins and ends texts: transformers' classes know that
    by themselves.
    """
    beside = _MAP in inventory.files and read_json(inventory.files[_MAP], label=f"{inventory.origin}/{_MAP}")
    return {key: value for key, value in said.items() if key not in {*config, *(beside or ())}}


def _document(
    name: str, files: Files, model: Mapping[str, Any], config: Mapping[str, Any], label: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """A tokenizer.json, and what the vocabulary's file says of special tokens and conversations, as a
    tokenizer_config.json does. model: config.json; config: the source's tokenizer_config.json.
    """
    if name == tekken.NAME:
        return tekken.tekken_document(read_json(files[name], limit=LIMIT_BYTES, label=label), label)
    if name in _SENTENCEPIECE and not is_tiktoken(data := _read(files[name], label)):
        return sentencepiece_document(data, config, label, _ids(name, files, config, label))
    return _of_others(name, files, model, config, label), {}


def _ids(name: str, files: Files, config: Mapping[str, Any], label: str) -> Arrange | None:
    """What a vocab.json says of a SentencePiece model's ids; None where its class or its file does."""
    if name not in WITH_WORDS:
        return None
    if _VOCAB in files:
        where = f"{label.rpartition('/')[0]}/{_VOCAB}"
        return by_words(read_json(files[_VOCAB], label=where), config, where, pair=name == WITH_WORDS[0])
    if by_class(config) is None:
        named = config.get("tokenizer_class")
        said = quoted(named) if named else "its class"
        raise UnsupportedSource(f"{label} has no {_VOCAB} beside it, and the ids of {said} are not known")
    return None


def _of_others(
    name: str, files: Files, model: Mapping[str, Any], config: Mapping[str, Any], label: str
) -> dict[str, Any]:
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
    family = BY_TYPE.get(str(model.get("model_type")))
    if family is None:
        raise UnsupportedSource(
            f"{label} is a vocabulary of tiktoken, and how texts are cut before it is known for Llama 3 and "
            "GLM-4 only"
        )
    return tiktoken_document(data, family, config, label)


def _read(path: Path, label: str) -> bytes:
    with open_regular(path, label) as file:
        return file.read(LIMIT_BYTES)
