"""How a tokenizer cuts text, by the name that GGUF files have for that.

It is recognised by the expressions that tokenizer.json states, and where those are spelled otherwise by what
they do to texts that tell all known ways apart.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from modelkit.errors import UnsupportedSource
from modelkit.source.gguf.vocabulary.bpe import byte_level, sequence, split
from modelkit.source.gguf.vocabulary.splitting import SPLITTINGS

if TYPE_CHECKING:
    import tokenizers

# Every rule of the table cuts at least one of these in a way of its own.
PROBES = (
    "I'LL say it's 12345678 o'clock, WE'RE camelCase HTTPServer x1y22z333 don't\n\n\n  two  blanks\t\ttabs"
    " \r\n end",
    "d\u00e9j\u00e0 e\u0301te\u0301 \u4f60\u597d\u4e16\u754c12\u3002\u3053\u3093\u306b\u3061\u306f"
    " \ud55c\uad6d\uc5b4 \u0e20\u0e32\u0e29\u0e32 \U0001f600\U0001f3fd <sentinel:3> IMGIMGABZ a       b"
    " !foo #bar/baz //x\n12.5$ \u0661\u0662\u0663\u0664",
    'for (int i=0; i<10; i++) { a[i] += b.c("x"); }  // \u00bd \u2014 \u201cquoted\u201d'
    " \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0939\u093f\u0928\u094d\u0926\u0940"
    " ABC-def_GHI 1,234,567.89",
)

COMPOSED = "this tokenizer composes characters (NFC), which llama.cpp does not"


def recognised(document: Mapping[str, Any], label: str, cleans: bool | None = None) -> tuple[str, list[str]]:
    """(`tokenizer.ggml.pre`, notes). cleans: as in Tokenizer; of names that cut alike it tells the right one.
    Raises UnsupportedSource where no known way cuts texts like this one.
    """
    whole, nfc = bool(document["model"].get("ignore_merges")), "NFC" in str(document.get("normalizer"))
    stated = _stated_patterns(document["pre_tokenizer"])
    wanted = None
    found: list[tuple[bool, bool, bool, bool, str]] = []
    for name, row in SPLITTINGS.items():
        if row.raw:
            continue
        if row.patterns != stated:
            wanted = wanted if wanted is not None else _cuts(document["pre_tokenizer"])
            if wanted != _row_cuts(row.patterns):
                continue
        cleaned = cleans is not None and row.cleans != cleans
        found.append((row.whole_first != whole, row.patterns != stated, row.nfc != nfc, cleaned, name))
    if not found:
        raise UnsupportedSource(
            f"{label} cuts text in a way that llama.cpp has no name for, so its ids would be others there"
        )
    flag, _, normal, _, name = min(found, key=lambda row: row[:4])  # of equals the first
    if flag:
        first = "takes" if whole else "does not take"
        raise UnsupportedSource(
            f"{label} cuts text as `{name}` does and {first} whole words first; llama.cpp has no name for it"
        )
    return name, [COMPOSED] if nfc and normal else []


def _stated_patterns(pre_tokenizer: Any) -> tuple[str, ...] | None:
    """The expressions in order, where tokenizer.json says it with nothing else."""
    if not isinstance(pre_tokenizer, Mapping):
        return None
    steps = pre_tokenizer.get("pretokenizers") if pre_tokenizer.get("type") == "Sequence" else [pre_tokenizer]
    found: list[str] = []
    for step in steps or ():
        if step.get("type") == "ByteLevel" and not step.get("use_regex", True):
            continue
        pattern = step.get("pattern") or {}
        if step != split(str(pattern.get("Regex"))):
            return None
        found.append(pattern["Regex"])
    return tuple(found)


@cache
def _row_cuts(patterns: tuple[str, ...]) -> list[list[tuple[str, tuple[int, int]]]] | None:
    return _cuts(sequence("pretokenizers", [*(split(one) for one in patterns), byte_level()]))


def _cuts(pre_tokenizer: Any) -> list[list[tuple[str, tuple[int, int]]]] | None:
    cutter = _bare(pre_tokenizer).pre_tokenizer
    return None if cutter is None else [cutter.pre_tokenize_str(text) for text in PROBES]


def _bare(pre_tokenizer: Any) -> "tokenizers.Tokenizer":
    import tokenizers

    model = {"type": "BPE", "vocab": {}, "merges": []}
    document = {"version": "1.0", "added_tokens": [], "model": model, "pre_tokenizer": pre_tokenizer}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    return tokenizers.Tokenizer.from_str(json.dumps({**document, **empty}))
