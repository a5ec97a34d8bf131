"""What belongs to a model besides its weights, and a note about every file that does not."""

import os
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from pathlib import Path

from modelkit.errors import MalformedFile
from modelkit.file_names import path_fault
from modelkit.source.shards import INDEX
from modelkit.source.sniff import HEAD_BYTES, describe, refuse_stand_in, weights_kind
from modelkit.source.tree import Files, is_own, is_safe_relative, open_regular
from runtime.quoting import shown

LIMIT_BYTES = 64_000_000

TEMPLATE = "chat_template.jinja"
TOKENIZER = "tokenizer.json"
_TEKKEN = "tekken.json"
_SPM = ("source.spm", "target.spm", "sentencepiece.bpe.model")
_KEPT = (
    "config.json",
    "generation_config.json",
    "gguf.json",
    "tokenizer*.json",
    "tokenizer.model",  # and other vocabularies that a tokenizer.json is made of, or not: `vocabularies`
    "spiece.model",
    *_SPM,
    "tiktoken.model",
    "qwen.tiktoken",
    "hy.tiktoken",
    _TEKKEN,
    "tokenizer.jsonl",
    "rwkv_vocab_v20230424.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    TEMPLATE,
    "chat_template.json",
    "modules.json",  # how sentence-transformers makes embeddings of what the model says
    "sentence_*_config.json",
    "config_sentence_transformers.json",
    "quality.json",  # how formats were chosen, and its picture
    "quality.svg",
    "*processor_config.json",
)
_OF_TEXTS = (
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    TEMPLATE,
    "chat_template.json",
)
_KEPT_DOCUMENTS = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "USE_POLICY*", "README*")

_REASONS = (
    ("consolidated*.safetensors", "the same weights in another layout"),
    ("adapter*", "a LoRA adapter"),
    ("*.safetensors", "not part of the model's set of weights"),
    ("*.index.json", "the index of other weights"),
    ("*.py", "code is never run"),
    ("modelkit.json", "the recipe of an exported package; FROM a folder takes no draft and no adapters"),
    (".*", "hidden"),
)


def divide(top: Files, weights: Sequence[str], origin: str) -> tuple[Files, tuple[str, ...]]:
    """(files to keep, notes). One note per reason, naming its files; weights and their index need neither.

    Raises MalformedFile when a kept file is an LFS pointer or a web page, is not JSON though it is called so,
    or is larger than 64 MB.
    """
    kept = {name: top[name] for name in kept_of(top)}
    for name, path in kept.items():
        _check(name, path, origin)
    left: dict[str, list[str]] = {}
    for name in top:
        if name not in kept and name not in weights and name != INDEX:
            left.setdefault(_reason(name), []).append(shown(name))
    return kept, tuple(f"not kept: {', '.join(names)} ({reason})" for reason, names in left.items())


def kept_of(names: Iterable[str]) -> list[str]:
    """Those that belong to a model whose weights are safetensors, in name order. Of a tokenizer.json and
    other vocabularies, which are as large as adapters and say the same, it alone.
    """
    found = _apart(filter(is_kept, names))
    return [name for name in found if name not in (_TEKKEN, *_SPM) or TOKENIZER not in found]


def documents_of(names: Iterable[str]) -> list[str]:
    """Licences, descriptions and the like, in name order."""
    return _apart(filter(is_document, names))


def of_texts(names: Iterable[str]) -> list[str]:
    """Those that say how texts become tokens and conversations texts, in name order."""
    return sorted(set(names) & set(_OF_TEXTS))


def documents_in(top: Files, origin: str) -> Files:
    """Those of a folder. Raises as `divide` does."""
    found = {name: top[name] for name in documents_of(top)}
    for name, path in found.items():
        _check(name, path, origin)
    return found


def _apart(names: Iterable[str]) -> list[str]:
    """Without those that differ from another by capitals alone, which some disks would lay over each other.
    The first stays; of a document and something else, the other.
    """
    found: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (is_document(name), name)):
        found.setdefault(name.casefold(), name)
    return sorted(found.values())


def is_kept(name: str) -> bool:
    """Does a file of this name belong to a model whose weights are safetensors?"""
    if not _is_safe(name):
        return False
    if "/" in name:
        return is_own(name)
    return is_document(name) or any(_like(name, pattern) for pattern in _KEPT)


def _like(name: str, pattern: str) -> bool:
    """pattern: a name, or one with `*` in it once for anything. (`fnmatch` compiles each at every start.)"""
    before, star, behind = pattern.partition("*")
    if not star:
        return name == pattern
    return len(name) >= len(before) + len(behind) and name.startswith(before) and name.endswith(behind)


def is_document(name: str) -> bool:
    """Is it a licence, a description or the like?"""
    named = any(_like(name.upper(), pattern) for pattern in _KEPT_DOCUMENTS)
    return named and _is_safe(name) and weights_kind(name) is None


def _is_safe(name: str) -> bool:
    return is_safe_relative(name) and path_fault(name) is None


def _check(name: str, path: Path, origin: str) -> None:
    label = f"{origin}/{name}"
    with open_regular(path, label) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD_BYTES)
    refuse_stand_in(head, label)
    if size > LIMIT_BYTES:
        raise MalformedFile(f"{label} has {size:,} bytes; at most {LIMIT_BYTES:,} are kept of such a file")
    if name.endswith(".json") and head.startswith(BOM_UTF8):
        raise MalformedFile(
            f"{label} is not valid JSON: it begins with a byte order mark; save it as UTF-8 without one"
        )
    if name.endswith(".json") and not head.lstrip().startswith((b"{", b"[")):
        raise MalformedFile(f"{label} is not JSON; it starts with `{describe(head)}`")


def _reason(name: str) -> str:
    if not _is_safe(name):
        return "not a safe file name"
    if name in (_TEKKEN, *_SPM):
        return f"{TOKENIZER} says the same"
    if is_kept(name):
        return "the name of another but for capitals"
    other = weights_kind(name)
    if other is not None:
        return f"{other[0]}, never read"
    return next((reason for pattern, reason in _REASONS if _like(name, pattern)), "not used")
