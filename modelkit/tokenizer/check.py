"""What a tokenizer.json may hold before the `tokenizers` library sees it.

The library trusts its file: a 1 MB replacement text, ten nested ones, a template that repeats an id, padding
to 2^31 or a short character map each end the process in a way no `except` can catch, and an id of 2^32-1 is
accepted. So everything that can multiply, index or allocate is bounded here, in Python.

Invariants of a checked file: every component is of a known type; texts that normalization inserts cannot
make a text more than GROWTH times longer; ids are unique and dense; no text is cut or padded. That every
merge joins two known pieces into a known one is what the library looks for by itself.
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Any

from modelkit.errors import TokenizerError
from modelkit.tokenizer.components import (
    AFFIXES,
    KINDS,
    MOST_COMPONENTS,
    MOST_DEPTH,
    SEQUENCES,
)
from modelkit.tokenizer.vocabulary import check_vocabulary
from runtime.quoting import quoted

LIMIT_BYTES = 64 * 1024 * 1024
GROWTH = 64
INSERTED_BYTES = 64
PATTERN_BYTES = 4096
CHARSMAP_BYTES = 1024 * 1024
TEMPLATE_PIECES = 32
TEMPLATE_IDS = 16
MOST_TEMPLATE_TOKENS = 64

_TOP_LEVEL = ("version", "added_tokens", *KINDS, "model")


def check_document(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The parts of a parsed tokenizer.json that are used, with `truncation` and `padding` off.

    A prompt is never cut or padded here, so what the file says about that has no meaning. `name` is the file
    to blame. Raises TokenizerError at the first part that breaks a bound.
    """
    checked: dict[str, Any] = {key: document.get(key) for key in _TOP_LEVEL}
    checked["version"] = "1.0"
    checked["truncation"] = checked["padding"] = None
    checked["added_tokens"] = checked["added_tokens"] or []
    try:
        checked["model"], ids = check_vocabulary(checked["model"], checked["added_tokens"])
        for key, types in KINDS.items():
            components = list(_components(key, checked[key], types))
            for component in components:
                _check_component(component, len(ids))
            if key in ("normalizer", "decoder"):
                _check_growth(key, components)
    except ValueError as error:
        raise refused(name, error) from error
    return checked


def refused(name: str, fault: object) -> TokenizerError:
    """For a file that breaks a bound; fault: a sentence's end."""
    return TokenizerError(
        f"{name} is refused: {fault}", hint="Fetch the file again; if it is whole, report it to its maker."
    )


def _components(key: str, value: object, types: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Every component below `value`, the sequences opened. Raises ValueError for an unknown one."""
    found = 0
    waiting: list[tuple[object, int]] = [(value, 0)] if value is not None else []
    while waiting:
        component, depth = waiting.pop()
        kind = component.get("type") if isinstance(component, dict) else None
        if not isinstance(component, dict) or not isinstance(kind, str) or kind not in types:
            raise ValueError(f"its {key} has a part of an unknown type, {quoted(kind)}")
        found += 1
        if found > MOST_COMPONENTS or depth > MOST_DEPTH:
            raise ValueError(f"its {key} has more than {MOST_COMPONENTS} parts or {MOST_DEPTH} levels")
        if kind == "Sequence":
            inner = component.get(SEQUENCES[key])
            if not isinstance(inner, list):
                raise ValueError(f"a Sequence of its {key} holds no list {SEQUENCES[key]!r}")
            waiting.extend((part, depth + 1) for part in inner)
        else:
            yield component


def _check_component(component: dict[str, Any], tokens: int) -> None:
    kind: str = component["type"]
    special: Callable[[dict[str, Any], int], None] | None = _SPECIAL.get(kind)
    if special is not None:
        special(component, tokens)
        return
    for field, value in component.items():
        if field == "pattern":
            _check_pattern(kind, value)
        elif isinstance(value, str):
            if field != "type" and len(value.encode()) > INSERTED_BYTES:
                raise ValueError(f"{kind}.{field} is longer than {INSERTED_BYTES:,} bytes")
        elif isinstance(value, int | None):
            if not 0 <= (value or 0) <= INSERTED_BYTES:
                raise ValueError(f"{kind}.{field} is {value}; at most {INSERTED_BYTES} makes sense")
        else:
            raise ValueError(f"{kind}.{field} is of an unknown shape")
    if kind == "Replace" and not {"pattern", "content"} <= component.keys():
        raise ValueError("Replace needs a pattern and a content")
    if kind == "FixedLength" and not component.get("length"):
        raise ValueError("FixedLength.length must be at least 1")
    if kind == "Strip" and component.get("stop"):
        raise ValueError("Strip.stop must be 0: the library panics where both ends meet")


def _check_pattern(kind: str, pattern: object) -> None:
    text = next(iter(pattern.values())) if isinstance(pattern, dict) and len(pattern) == 1 else pattern
    if not isinstance(text, str) or not text:
        raise ValueError(f"{kind}.pattern must hold a text")
    if isinstance(pattern, dict) and next(iter(pattern)) not in ("String", "Regex"):
        raise ValueError(f"{kind}.pattern must be a String or a Regex")
    if len(text.encode()) > PATTERN_BYTES:
        raise ValueError(f"{kind}.pattern is longer than {PATTERN_BYTES:,} bytes")


def _check_growth(key: str, components: list[dict[str, Any]]) -> None:
    """Replacements multiply: ten of `a` -> ten times `a` make ten thousand million characters of one."""
    growth = 1
    for component in components:
        if component["type"] == "Replace":
            inserted = len(str(component.get("content")).encode())
            literal = component["pattern"].get("String") if isinstance(component["pattern"], dict) else None
            # A regular expression may match between any two characters.
            growth *= -(-inserted // len(literal.encode())) or 1 if literal else 1 + inserted
    if growth > GROWTH:
        raise ValueError(f"its {key} can make a text {growth} times longer; at most {GROWTH} is taken")


def _check_charsmap(component: dict[str, Any], tokens: int) -> None:
    """A Precompiled character map: a trie's size in bytes (uint32, little endian), the trie, then texts."""
    text = component.get("precompiled_charsmap")
    if not isinstance(text, str) or len(text) > CHARSMAP_BYTES * 4 // 3 + 4:
        raise ValueError(
            f"Precompiled.precompiled_charsmap must be a text of at most {CHARSMAP_BYTES:,} bytes"
        )
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("Precompiled.precompiled_charsmap is not base64") from error
    trie_bytes = int.from_bytes(data[:4], "little")
    if len(data) < 8 or trie_bytes % 4 or not 4 <= trie_bytes <= len(data) - 4:
        raise ValueError("Precompiled.precompiled_charsmap is shorter than its own header says")


def _check_template(component: dict[str, Any], tokens: int) -> None:
    known = component.get("special_tokens")
    if not isinstance(known, dict) or len(known) > MOST_TEMPLATE_TOKENS:
        raise ValueError(
            f"TemplateProcessing.special_tokens must hold at most {MOST_TEMPLATE_TOKENS:,} tokens"
        )
    for entry in known.values():
        ids = entry.get("ids") if isinstance(entry, dict) else None
        names = entry.get("tokens") if isinstance(entry, dict) else None
        if not isinstance(ids, list) or not isinstance(names, list) or not 0 < len(ids) <= TEMPLATE_IDS:
            raise ValueError(f"a token of TemplateProcessing must have 1 to {TEMPLATE_IDS:,} ids")
        if len(ids) != len(names) or not all(type(one) is int and 0 <= one < 2 * tokens for one in ids):
            raise ValueError("a token of TemplateProcessing has an id outside the vocabulary")
    for field in ("single", "pair"):
        pieces = component.get(field)
        if not isinstance(pieces, list) or len(pieces) > TEMPLATE_PIECES:
            raise ValueError(f"TemplateProcessing.{field} must be a list of at most {TEMPLATE_PIECES} pieces")
        for piece in pieces:
            name, value = _only_entry(piece)
            if name == "SpecialToken" and str(value.get("id")) not in known:
                raise ValueError("TemplateProcessing uses a token that it does not define")


def _only_entry(piece: object) -> tuple[str, dict[str, Any]]:
    if isinstance(piece, dict) and len(piece) == 1:
        name, value = next(iter(piece.items()))
        if name in ("SpecialToken", "Sequence") and isinstance(value, dict):
            return name, value
    raise ValueError("a piece of TemplateProcessing is neither a SpecialToken nor a Sequence")


def _check_affixes(component: dict[str, Any], tokens: int) -> None:
    """`sep` and `cls` of BERT's and RoBERTa's post-processors: [text, id]."""
    for field in AFFIXES:
        pair = component.get(field)
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(f"{component['type']}.{field} must be a token and its id")
        if type(pair[1]) is not int or not 0 <= pair[1] < 2 * tokens:
            raise ValueError(f"{component['type']}.{field} has an id outside the vocabulary")


_SPECIAL: dict[str, Callable[[dict[str, Any], int], None]] = {
    "Precompiled": _check_charsmap,
    "TemplateProcessing": _check_template,
    "BertProcessing": _check_affixes,
    "RobertaProcessing": _check_affixes,
}
