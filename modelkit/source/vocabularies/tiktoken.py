"""Vocabularies of tiktoken: on every line a token's bytes in base64, and its rank, which is its id.

tiktoken joins the neighbours whose joined bytes have the lowest rank, however they came about. Merges say the
same: every cut of a token into two tokens is one, and they go by the rank of what they make. What a file does
not say - how a text is cut first, and the special tokens - stands in the code beside it: Qwen's
tokenization_qwen.py, Hunyuan's tokenization_hy.py, Kimi's tokenization_kimi.py, Llama 3's tokenizer.py,
GLM-4's tokenization_chatglm.py.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.vocabulary import patterns as cut
from modelkit.source.gguf.vocabulary.bpe import byte_level, sequence, split
from modelkit.source.gguf.vocabulary.pieces import MOST_MERGES, MOST_PIECES
from modelkit.source.gguf.vocabulary.sentencepiece import MOST_WORK
from modelkit.source.vocabularies.document import added, byte_pairs, document
from runtime.quoting import quoted
from runtime.records import dataclass

_TOKEN_BYTES = 1024
_EXTRAS = tuple(f"<|extra_{number}|>" for number in range(205))


@dataclass(frozen=True, slots=True)
class Family:
    """What the authors' code adds to a file."""

    patterns: tuple[str, ...]
    special: tuple[str, ...] = ()
    """Their ids follow those of the file."""
    declared: int = 0
    """So many have the names that tokenizer_config.json declares."""
    spare: str | None = None
    """The name of those that it leaves out."""
    nfc: bool = False
    renumbers: bool = False
    """A token that comes again is passed over, and ids count the others."""
    begins: bool = False
    """A bare prompt gets the begin-of-text token that tokenizer_config.json names."""
    first: tuple[str, ...] = ()
    """What a bare prompt gets whatever that file names."""


FAMILIES = {
    "qwen.tiktoken": Family(cut.QWEN2, ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *_EXTRAS), nfc=True),
    "hy.tiktoken": Family(
        cut.QWEN2,
        ("<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>", *_EXTRAS),
        nfc=True,
        renumbers=True,
    ),
    "tiktoken.model": Family(cut.KIMI, declared=256, spare="<|reserved_token_{}|>"),
}
"""By the name of the file."""
_GLM = (
    *("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"),
)
BY_TYPE = {
    "llama": Family(cut.LLAMA3, declared=256, begins=True),
    "chatglm": Family(cut.LLAMA3, _GLM, first=("[gMASK]", "<sop>")),
}
"""By the model_type, of files called tokenizer.model."""


def tiktoken_document(data: bytes, family: Family, config: Mapping[str, Any], label: str) -> dict[str, Any]:
    """A tokenizer.json. data: the file; config: tokenizer_config.json. Raises MalformedFile for a file that
    is not whole, UnsupportedSource where special tokens have no names.
    """
    ranks = _ranks(data, label, renumbers=family.renumbers)
    vocab = spelled(ranks)
    special = [*family.special, *_declared(family, len(ranks), config, label)]
    bos = config.get("bos_token")
    begin = (bos,) if family.begins and isinstance(bos, str) and bos in special else ()
    return document(
        normalizer={"type": "NFC"} if family.nfc else None,
        pre_tokenizer=sequence("pretokenizers", [*map(split, family.patterns), byte_level()]),
        model=byte_pairs(vocab, merges(vocab, label), whole_first=True),
        decoder=byte_level(),
        added_tokens=[added(len(vocab) + number, text, special=True) for number, text in enumerate(special)],
        first=family.first or begin,
    )


def is_tiktoken(data: bytes) -> bool:
    """Is a tokenizer.model such a file? SentencePiece's begin with a byte that no base64 has."""
    return len(data.split(b"\n", 1)[0].split()) == 2 and not data.startswith(b"\n")


def _ranks(data: bytes, label: str, *, renumbers: bool) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for line in filter(None, data.splitlines()):
        try:
            text, rank = line.split()
            token = base64.b64decode(text, validate=True)
            fits = 0 < len(token) <= _TOKEN_BYTES and (
                renumbers or (int(rank), token in found) == (len(found), False)
            )
        except (ValueError, binascii.Error):
            fits, token = False, b""
        if not fits or len(found) == MOST_PIECES:
            raise MalformedFile(
                f"{label} has a line {quoted(line)}; a new token of at most {_TOKEN_BYTES:,} bytes "
                f"in base64 and its rank, {len(found):,}, were expected"
            )
        found.setdefault(token, len(found))
    missing = next((byte for byte in range(256) if bytes([byte]) not in found), None)
    if missing is not None:
        raise MalformedFile(f"{label} has no token for the byte {missing:#04x}")
    return found


def spelled(ranks: Mapping[bytes, int]) -> dict[str, int]:
    """Tokens in letters that stand for bytes."""
    letters = [chr(code) for code in _letters()]
    return {"".join(map(letters.__getitem__, token)): rank for token, rank in ranks.items()}


def _letters() -> list[int]:
    """Of each byte, in the vocabularies of GPT-2's kind: printable ones of Latin-1 are themselves."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [byte if byte in printable else next(others) for byte in range(256)]


def _declared(family: Family, first: int, config: Mapping[str, Any], label: str) -> list[str]:
    """Names of the special tokens from the id `first` on."""
    known = config.get("added_tokens_decoder")
    named: list[str] = []
    for one in range(first, first + family.declared):
        entry = known.get(str(one)) if isinstance(known, Mapping) else None
        name = entry.get("content") if isinstance(entry, Mapping) else None
        if name is None and family.spare is not None:
            name = family.spare.format(one)
        if not isinstance(name, str) or not name:
            raise UnsupportedSource(
                f"{label} holds no special tokens, and tokenizer_config.json does not name that of id {one:,}"
            )
        named.append(name)
    return named


def merges(vocab: Mapping[str, int], label: str) -> list[tuple[str, str]]:
    """In the order of their ranks, which is that of `vocab`; of one token's, the longest beginning first, as
    runs are joined so. Raises MalformedFile where there are too many.
    """
    found: list[tuple[str, str]] = []
    if sum(len(token) ** 2 for token in vocab) > MOST_WORK:
        raise MalformedFile(f"{label} has tokens so long that there are too many ways to join them")
    for token in vocab:
        for at in range(len(token) - 1, 0, -1):
            left, right = token[:at], token[at:]
            if left in vocab and right in vocab:
                found.append((left, right))
        if len(found) > MOST_MERGES:
            raise MalformedFile(f"{label} has more than {MOST_MERGES:,} ways to join its tokens")
    return found
