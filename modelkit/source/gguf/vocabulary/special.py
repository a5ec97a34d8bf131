"""Which tokens of a GGUF vocabulary have a part to play: begin, end, unknown, padding, all that end a text.

Files name one end (`eos`), at times an end of turn (`eot`) and of message (`eom`), and those that Ollama made
list all of them; models write others as well, and one that is missed lets an answer run on. So tokens count
by their names, too, as in llama.cpp (llama-vocab.cpp; MIT, The ggml authors).
"""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import MalformedFile
from modelkit.source.gguf.vocabulary.pieces import (
    CONTROL,
    JOINED,
    KEY,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    WORDS,
    Vocabulary,
)
from runtime.quoting import quoted
from runtime.records import dataclass

_ROLES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "pad": "padding_token_id",
    "sep": "seperator_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
}

_END_ROLES = ("eos", "eot", "eom")
ALL_ENDS = "eos_token_ids"
"""The key of a list of ends, which Ollama writes and reads."""
_NONE = (2**32 - 1, -1)
"""How some writers say that there is no such token."""
_BY_WORD_ALONE = frozenset({"bos", *_END_ROLES})
"""Roles that make any token special. Some files name `!`, id 0, for padding; it stays an exclamation mark."""

# What llama.cpp takes where the file names none; files of SentencePiece models often leave them out.
_USUAL = {
    JOINED: {"bos": 1, "eos": 2, "unk": 0},
    WORDS: {"cls": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    UNIGRAM: {"eos": 1, "unk": 2, "pad": 0},
}

_ENDS = frozenset(
    {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
        "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~[",
    }
)  # fmt: skip
_PLAIN_WORDS = frozenset({"</s>", "<eos>", "[EOS]"})
"""Names that are ordinary text in some vocabularies: these count as ends only where the file marks them."""

# Parts of an answer in the formats that have these names; in them `<|end|>` closes a part, not the answer.
_CHANNELS = (("<|return|>", "<|call|>"), ("<|calls|>", "<|flush|>"), ("<|call|>", "<|flush|>"))
_ALWAYS_SHOWN = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})


# Phi-3's tokens take the blanks behind them; llama.cpp knows it by these words in a model's name, too.
_RIGHT_STRIPPED = ("phi-3", "phi3")
_NOT_STRIPPED = frozenset({"<unk>", "<s>", "<|endoftext|>"})


@dataclass(frozen=True, slots=True)
class Special:
    """Ids."""

    roles: Mapping[str, int]
    """Of bos, eos, unk, pad, sep, cls, mask, eot, eom: those that there are."""
    ends: tuple[int, ...]
    """All that end a text, in order."""
    hidden: frozenset[int]
    """Those that stand for no text."""
    whole: frozenset[int]
    """Those that stand for text and are found in it before anything else."""
    stripping: frozenset[int]
    """Of these two, those that take the blanks behind them."""
    notes: tuple[str, ...]


def read_special(metadata: Mapping[str, Any], vocabulary: Vocabulary, label: str) -> Special:
    """Raises MalformedFile for an id that is not a token's."""
    roles, notes = _roles(metadata, vocabulary, label)
    kept = {vocabulary.ids[name] for name in _kept_names(vocabulary) if name in vocabulary.ids}
    listed = _listed_ends(metadata, vocabulary, label)
    ends = {roles[role] for role in _END_ROLES if role in roles} | listed | (_named_ends(vocabulary) - kept)
    hidden = ({*vocabulary.of_type(CONTROL, UNKNOWN), *roles.values()} - kept) | ends
    whole = ({*vocabulary.of_type(USER_DEFINED)} | kept) - hidden
    stripping = frozenset(hidden | whole if _strips(metadata, vocabulary) else ())
    stripping = frozenset(one for one in stripping if vocabulary.pieces[one] not in _NOT_STRIPPED)
    return Special(roles, tuple(sorted(ends)), frozenset(hidden), frozenset(whole), stripping, tuple(notes))


def _strips(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> bool:
    name = str(metadata.get("general.name", "")).lower()
    own = metadata.get("general.architecture") == "phi3" and vocabulary.kind == JOINED
    return own or any(one in name for one in _RIGHT_STRIPPED)


def _kept_names(vocabulary: Vocabulary) -> set[str]:
    """Tokens that belong to an answer's text, as whoever reads its parts needs to see them."""
    parts = any(all(name in vocabulary.ids for name in names) for names in _CHANNELS)
    return {*_ALWAYS_SHOWN, "<|end|>"} if parts else {*_ALWAYS_SHOWN}


def _roles(
    metadata: Mapping[str, Any], vocabulary: Vocabulary, label: str
) -> tuple[dict[str, int], list[str]]:
    roles: dict[str, int] = {}
    notes: list[str] = []
    usual = _USUAL.get(vocabulary.kind, {})
    special_types = {*vocabulary.of_type(CONTROL, UNKNOWN)}
    for role, key in _ROLES.items():
        value = metadata.get(KEY + key)
        if value is None:
            one = usual.get(role)
            if one is not None and one in special_types:
                roles[role] = one
            continue
        one = _id(value, key, vocabulary, label)
        if one is None:
            continue
        if role in _BY_WORD_ALONE or vocabulary.types[one] != NORMAL:
            roles[role] = one
        else:
            piece = quoted(vocabulary.pieces[one])
            notes.append(f"{label} names the ordinary token {piece} as {role}; it stays ordinary")
    return roles, notes


def _listed_ends(metadata: Mapping[str, Any], vocabulary: Vocabulary, label: str) -> set[int]:
    listed = metadata.get(KEY + ALL_ENDS, ())
    if not isinstance(listed, tuple | list):
        raise MalformedFile(f"{label}: `{KEY}{ALL_ENDS}` is not a list of ids")
    found = (_id(value, ALL_ENDS, vocabulary, label) for value in listed)
    return {one for one in found if one is not None}


def _id(value: object, key: str, vocabulary: Vocabulary, label: str) -> int | None:
    """None: the file says that there is no such token."""
    if type(value) is not int:
        raise MalformedFile(f"{label}: `{KEY}{key}` is {quoted(value)}; an id was expected")
    if value in _NONE:
        return None
    if not 0 <= value < len(vocabulary.pieces):
        raise MalformedFile(
            f"{label}: `{KEY}{key}` is {value:,}; the vocabulary has ids below {len(vocabulary.pieces):,}"
        )
    return value


def _named_ends(vocabulary: Vocabulary) -> set[int]:
    found = {vocabulary.ids[name]: name for name in _ENDS if name in vocabulary.ids}
    return {
        one for one, name in found.items() if name not in _PLAIN_WORDS or vocabulary.types[one] == CONTROL
    }
