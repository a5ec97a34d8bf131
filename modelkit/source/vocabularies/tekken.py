"""Mistral's tekken.json: ranks of bytes as tiktoken has them, and beside these how a text is cut first.

Special tokens stand in front: as many as the file says, of which it names some, and the others have names by
their number. Files up to version 7 name none, and have those of mistral_common.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from modelkit.errors import MalformedFile
from modelkit.source.gguf.vocabulary.bpe import byte_level, sequence, split
from modelkit.source.gguf.vocabulary.pieces import MOST_PIECES
from modelkit.source.vocabularies.document import added, byte_pairs, document
from modelkit.source.vocabularies.tekken_chat import VERSIONS, chat_template
from modelkit.source.vocabularies.tiktoken import merges, spelled
from runtime.quoting import quoted

NAME = "tekken.json"
_MOST_SPECIAL = 65_536
_UNNAMED_UP_TO = 7
_USUAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
_TURN, _THOUGHT = "[INST]", "[THINK]"
_ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def tekken_document(file: Mapping[str, Any], label: str) -> tuple[dict[str, Any], dict[str, str]]:
    """A tokenizer.json, and what a tokenizer_config.json says beside it: special tokens that have a role, and
    the chat template. file: what tekken.json says. Raises MalformedFile for one that is not whole.
    """
    config = file.get("config")
    config = cast("Mapping[str, Any]", config) if isinstance(config, Mapping) else {}
    count, size = (config.get(f"default_{name}") for name in ("num_special_tokens", "vocab_size"))
    if type(count) is not int or type(size) is not int or not 0 < count <= _MOST_SPECIAL:
        raise MalformedFile(f"{label} does not say how many tokens it has, and how many of them are special")
    pattern = config.get("pattern")
    if not isinstance(pattern, str):
        raise MalformedFile(f"{label} does not say how a text is cut (`pattern`)")
    special = _special(file.get("special_tokens"), config.get("version"), count, label)
    ranks = _ranks(file.get("vocab"), size - count, label)
    vocab = {piece: count + rank for piece, rank in spelled(ranks).items()}
    both = next((text for text in special if text in vocab), None)
    if both is not None:
        raise MalformedFile(f"{label} has {quoted(both)} twice, as a special token and as another")
    roles = {role: text for role, text in _ROLES.items() if text in special}
    made = document(
        normalizer=None,
        pre_tokenizer=sequence("pretokenizers", [split(pattern), byte_level()]),
        # With the special ones: added tokens that are no pieces get the ids behind these.
        model=byte_pairs(
            {text: one for one, text in enumerate(special)} | vocab, merges(vocab, label), whole_first=True
        ),
        decoder=byte_level(),
        added_tokens=[added(one, text, special=True) for one, text in enumerate(special)],
        first=roles.get("bos_token"),
    )
    if _number(config.get("version")) in VERSIONS and _TURN in special:
        roles["chat_template"] = chat_template(_number(config["version"]), thinks=_THOUGHT in special)
    return made, roles


def _ranks(entries: object, count: int, label: str) -> dict[bytes, int]:
    """The first so many; a file may have more, which its model has no rows for."""
    if not isinstance(entries, list) or not 256 <= count <= min(MOST_PIECES, len(cast("list[Any]", entries))):
        raise MalformedFile(f"{label} has no list of the {count:,} tokens that it speaks of (`vocab`)")
    found: dict[bytes, int] = {}
    for rank, entry in enumerate(cast("list[Any]", entries)[:count]):
        said = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        try:
            token = base64.b64decode(said.get("token_bytes", ""), validate=True)
        except (TypeError, ValueError, binascii.Error):
            token = b""
        wanted = said.get("rank") == rank and (rank >= 256 or token == bytes([rank]))
        if not token or not wanted or token in found:
            raise MalformedFile(
                f"{label} has an entry {quoted(entry)}; the rank {rank:,} and a new token's bytes "
                "in base64 were expected"
            )
        found[token] = rank
    return found


def _special(entries: object, version: object, count: int, label: str) -> list[str]:
    """In the order of their ids."""
    if entries is None:
        if _number(version) > _UNNAMED_UP_TO:
            raise MalformedFile(f"{label} names no special tokens, as files of version {_UNNAMED_UP_TO} do")
        named = list(_USUAL[:count])
    else:
        named = _named(entries, label)
    names = [*named, *(f"<SPECIAL_{one}>" for one in range(len(named), count))]
    if len(names) > count or len({*names}) < len(names):
        raise MalformedFile(f"{label} names {len(named):,} special tokens, some twice or more than {count:,}")
    return names


def _named(entries: object, label: str) -> list[str]:
    names: list[str] = []
    for rank, entry in enumerate(cast("Sequence[Any]", entries) if isinstance(entries, list) else [None]):
        said = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        name = said.get("token_str")
        if not isinstance(name, str) or not name or said.get("rank") != rank:
            raise MalformedFile(
                f"{label} has a special token {quoted(entry)}; the rank {rank:,} and a name were expected"
            )
        names.append(name)
    return names


def _number(version: object) -> int:
    """Of `v7`; 0 for none."""
    found = re.fullmatch(r"v([0-9]{1,4})", version) if isinstance(version, str) else None
    return int(found[1]) if found else 0
