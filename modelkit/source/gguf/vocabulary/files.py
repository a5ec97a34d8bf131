"""Every tokenizer file of a model, made of its GGUF metadata."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from modelkit.errors import MalformedFile, SourceError
from modelkit.source.gguf.vocabulary.bpe import merged_document
from modelkit.source.gguf.vocabulary.companions import (
    as_bytes,
    chat_templates,
    generation_config,
    sampling_notes,
    special_texts,
)
from modelkit.source.gguf.vocabulary.pieces import (
    BYTES,
    JOINED,
    KEY,
    PLAIN,
    UNUSED,
    WORDS,
    Vocabulary,
    read_vocabulary,
)
from modelkit.source.gguf.vocabulary.sentencepiece import joined_document, truth, unigram_document
from modelkit.source.gguf.vocabulary.special import Special, read_special
from modelkit.source.gguf.vocabulary.splitting import splitting_of
from modelkit.source.gguf.vocabulary.words import word_document, word_pieces
from modelkit.source.strict_json import parse_json
from modelkit.source.vocabularies.document import added, frame
from runtime.quoting import shown
from runtime.records import dataclass

_MOST_SPARE = 65_536


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What `tokenizer_files` makes."""

    files: Mapping[str, bytes]
    """Name in the model's folder -> content. The same metadata gives the same bytes."""
    notes: tuple[str, ...]
    """Sentences for the user."""
    tokens: int
    """In the file's vocabulary; a model's embedding has as many rows, or more."""


@dataclass(frozen=True, slots=True)
class _Framing:
    """What a bare prompt gets before and after it."""

    begins: bool = False
    ends: bool = False
    separates: bool = False
    cleans: bool = False


def tokenizer_files(metadata: Mapping[str, Any], *, rows: int, label: str) -> TokenizerFiles:
    """The files of a model whose embedding has `rows` rows; `label` is how messages call the GGUF file.

    tokenizer.json, tokenizer_config.json, special_tokens_map.json, generation_config.json and, where there is
    one, chat_template.jinja. Raises MalformedFile for metadata that contradict themselves, UnsupportedSource
    for a kind of tokenizer or a way of cutting text that is not known.
    """
    vocabulary = read_vocabulary(metadata, label)
    count = len(vocabulary.pieces)
    if rows < count or rows - count > _MOST_SPARE:
        raise MalformedFile(f"{label} has {count:,} tokens, and an embedding of {rows:,} rows")
    special = read_special(metadata, vocabulary, label)
    document, framing, notes = _document(metadata, vocabulary, special, label)
    padding = _padding(vocabulary)
    own = _own_document(metadata, vocabulary, padding, label)
    if isinstance(own, dict):
        document = own
        notes = ["the tokenizer is the model's own tokenizer.json, which the file carries"]
    elif own is not None:
        notes.append(own)
    templates = chat_templates(metadata, label)
    if templates and "default" not in templates:
        named = ", ".join(map(shown, templates))
        notes.append(f"chat templates {named} are left out, as none of them is the default")
        templates = {}
    config = _config(vocabulary, special, framing, templates)
    made = {
        "tokenizer.json": as_bytes(document),
        "tokenizer_config.json": as_bytes(config, indent=2),
        "special_tokens_map.json": as_bytes(special_texts(special, vocabulary.pieces), indent=2),
        "generation_config.json": as_bytes(
            generation_config(metadata, special, [*padding, *range(count, rows)], label), indent=2
        ),
    }
    if list(templates) == ["default"]:
        made["chat_template.jinja"] = templates["default"].encode("utf-8")
    return TokenizerFiles(made, (*special.notes, *notes, *sampling_notes(metadata)), count)


def _document(
    metadata: Mapping[str, Any], vocabulary: Vocabulary, special: Special, label: str
) -> tuple[dict[str, Any], _Framing, list[str]]:
    """(tokenizer.json, what a bare prompt gets around it, notes)."""
    padding = set(_padding(vocabulary))
    without = {piece: one for piece, one in vocabulary.ids.items() if one not in padding}
    slim = replace(vocabulary, ids=without)
    notes: list[str] = []
    if vocabulary.kind in (BYTES, PLAIN):
        name = vocabulary.kind if vocabulary.kind == PLAIN else metadata.get(KEY + "pre")
        name, splitting, said = splitting_of(name, metadata.get("general.architecture"), label)
        parts, notes = merged_document(slim, splitting, label)
        notes = [*said, *notes]
        usual = _Framing(splitting.begins, separates=splitting.separates, cleans=splitting.cleans)
    elif vocabulary.kind == JOINED:
        parts, notes = joined_document(slim, metadata, label)
        usual = _Framing(begins=True)
    elif vocabulary.kind == WORDS:
        unknown = vocabulary.pieces[special.roles["unk"]] if "unk" in special.roles else "[UNK]"
        parts = word_document(slim, metadata, unknown, label)
        usual = _Framing(begins=True, separates=True, cleans=True)
    else:
        parts = unigram_document(vocabulary, metadata, label)
        usual = _Framing(ends=True)
    framing = _framing(metadata, usual, special, label, notes)
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(vocabulary, special),
        "normalizer": parts["normalizer"],
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": _post_processor(vocabulary, special, framing),
        "decoder": parts["decoder"],
        "model": parts["model"],
    }
    return document, framing, notes


def _padding(vocabulary: Vocabulary) -> list[int]:
    """Rows that a converter filled up where the model has no token."""
    return [one for one in vocabulary.of_type(UNUSED) if vocabulary.pieces[one] == f"[PAD{one}]"]


def _framing(
    metadata: Mapping[str, Any], usual: _Framing, special: Special, label: str, notes: list[str]
) -> _Framing:
    begins = truth(metadata, "add_bos_token", label, usual=usual.begins)
    if PLAIN in (metadata.get(KEY + "model"), metadata.get(KEY + "pre")):
        begins = True  # the first converters wrote false, and the model is lost without it
    if begins and not {"bos", "cls"} & special.roles.keys():
        begins = False
        if KEY + "add_bos_token" in metadata:
            notes.append(f"{label} wants a begin-of-text token before a prompt, and names none")
    return _Framing(
        begins,
        truth(metadata, "add_eos_token", label, usual=usual.ends),
        truth(metadata, "add_sep_token", label, usual=usual.separates),
        usual.cleans,
    )


def _added(vocabulary: Vocabulary, special: Special) -> list[dict[str, Any]]:
    """The tokens that are found in a text before it is cut."""
    return [
        {
            **added(one, vocabulary.pieces[one], special=one in special.hidden),
            "rstrip": one in special.stripping,
        }
        for one in sorted(special.hidden | special.whole)
    ]


def _post_processor(vocabulary: Vocabulary, special: Special, framing: _Framing) -> dict[str, Any] | None:
    roles = special.roles
    first = roles.get("bos", roles.get("cls")) if framing.begins else None
    last = roles.get("sep", roles.get("eos")) if framing.separates else None
    if last is None and framing.ends:
        last = roles.get("eos")
    before, after = (None if one is None else vocabulary.pieces[one] for one in (first, last))
    return frame(before, after, vocabulary.ids)


def _config(
    vocabulary: Vocabulary, special: Special, framing: _Framing, templates: Mapping[str, str]
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special_texts(special, vocabulary.pieces),
        "add_bos_token": framing.begins,
        "add_eos_token": framing.ends,
        "clean_up_tokenization_spaces": framing.cleans,
    }
    if len(templates) > 1:
        config["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
    return config


def _own_document(
    metadata: Mapping[str, Any], vocabulary: Vocabulary, padding: Sequence[int], label: str
) -> dict[str, Any] | str | None:
    """The model's own tokenizer.json where the file carries one; a sentence where it is not usable."""
    text = metadata.get("tokenizer.huggingface.json")
    if text is None:
        return None
    if not isinstance(text, str):
        raise MalformedFile(f"{label}: `tokenizer.huggingface.json` is not text")
    try:
        document = parse_json(text.encode("utf-8"), f"{label}: tokenizer.huggingface.json")
    except SourceError as error:
        return f"{error.message}; the tokenizer is made from the vocabulary"
    if not isinstance(document, dict) or not _agrees(document, vocabulary, set(padding)):
        return (
            "the tokenizer.json that the file carries has other tokens than its vocabulary; "
            "the tokenizer is made from the vocabulary"
        )
    return document


def _agrees(document: Mapping[str, Any], vocabulary: Vocabulary, padding: set[int]) -> bool:
    """Every token of the file has the same id in the document, and no other has one."""
    try:
        vocab = document["model"]["vocab"]
        theirs = dict(vocab) if isinstance(vocab, dict) else {row[0]: one for one, row in enumerate(vocab)}
        theirs.update((token["content"], token["id"]) for token in document.get("added_tokens") or ())
        if not all(isinstance(piece, str) and type(one) is int for piece, one in theirs.items()):
            return False
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return False
    if vocabulary.kind == WORDS:
        made = word_pieces(vocabulary, "")
        return theirs == {piece: one for piece, one in made.items() if one not in padding}
    # A converter writes the blanks of user-defined pieces as blanks.
    plain = {one: piece.replace("\u2581", " ") for piece, one in theirs.items()}
    ours = {one: piece.replace("\u2581", " ") for one, piece in enumerate(vocabulary.pieces)}
    return plain == {one: piece for one, piece in ours.items() if one not in padding}
