"""The proof that a tokenizer in a GGUF file makes the ids of the package's own.

Its metadata are read as a GGUF file's would be, and texts encoded with both: what differs is not written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from unicodedata import normalize

from modelkit.errors import UnsupportedSource
from modelkit.pack.gguf.splitting_name import PROBES
from modelkit.source.gguf.vocabulary.files import tokenizer_files
from modelkit.source.gguf.vocabulary.pieces import WORDS
from modelkit.temporary import TemporaryFolder
from modelkit.tokenizer.load import load_tokenizer
from modelkit.tokenizer.tokenizer import Tokenizer
from runtime.quoting import quoted
from runtime.records import dataclass

_TOGETHER, _MOST_TEXTS = 32, 2000
"""Pieces in one text that tells how they are joined, and texts."""

_BLANKS = " {2,}"
"""What the kind of scored pieces has a key for."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What a reader of the file has."""

    tokenizer: Tokenizer
    ends: frozenset[int]
    """All ids that end a text."""


def read_back(metadata: Mapping[str, Any], rows: int, label: str) -> ReadBack:
    """Of a file with these metadata. rows: of the embedding."""
    made = tokenizer_files(metadata, rows=rows, label=label)
    with TemporaryFolder("tokenizer", "the files of a tokenizer") as folder:
        paths = {name: folder.path / name for name in made.files}
        with folder.writing():
            for name, path in paths.items():
                path.write_bytes(made.files[name])
        tokenizer = load_tokenizer(paths)
    generation = json.loads(made.files["generation_config.json"])
    return ReadBack(tokenizer, tokenizer.eos_ids(generation))


@dataclass(frozen=True, slots=True)
class Both:
    """A package's tokenizer and the one that is read back, with what texts are given as."""

    own: Tokenizer
    again: Tokenizer
    composed: bool
    """As NFC has them."""
    framed: bool
    """With what stands before and behind."""

    def differing(self, texts: Iterable[str]) -> list[str]:
        """Those of which the two make other ids."""
        given = (normalize("NFC", text) if self.composed else text for text in texts)
        return [text for text in given if self._ids(self.own, text) != self._ids(self.again, text)]

    def _ids(self, tokenizer: Tokenizer, text: str) -> Sequence[int]:
        return tokenizer.encode(text, add_special=self.framed)


def proved(both: Both, document: Mapping[str, Any], kind: str, label: str) -> list[str]:
    """What is other, as notes. document: the own tokenizer's. Raises UnsupportedSource where more is other
    than a file may have.
    """
    _prove(both, both.differing([*PROBES, *_replaced(document, label)]), kind, label)
    return _unlike(both.differing(_of_pieces(both)))


def _replaced(document: Mapping[str, Any], label: str) -> list[str]:
    """Texts with all that is replaced before they are cut. Raises UnsupportedSource where that is told by an
    expression that no file has a key for.
    """
    found: list[str] = []
    for step in _steps(document.get("normalizer")):
        pattern = step.get("pattern") if step.get("type") == "Replace" else None
        if pattern and "String" in pattern:
            found.append(f"a{pattern['String']}b {pattern['String']}")
        elif pattern and pattern.get("Regex") != _BLANKS:
            raise UnsupportedSource(
                f"{label} replaces what matches {quoted(pattern.get('Regex'))} before it cuts text, "
                "which llama.cpp does not"
            )
    return found


def _steps(normalizer: Any) -> Iterator[Mapping[str, Any]]:
    """A normalizer's, in order."""
    if isinstance(normalizer, Mapping):
        for one in normalizer.get("normalizers") or ():
            yield from _steps(one)
        yield normalizer


def _of_pieces(both: Both) -> list[str]:
    """Texts with all pieces, of large vocabularies with an even share of them; and some with blanks outside.
    Without what is a special token in either.
    """
    special = both.own.special_ids | both.again.special_ids
    ids = sorted(set(both.own.pieces.values()) - special)
    chunks = [ids[at : at + _TOGETHER] for at in range(0, len(ids), _TOGETHER)]
    some = chunks[:: -(-len(chunks) // _MOST_TEXTS) or 1]
    return [" a", "a ", "\na\n", *(both.own.decode(chunk) for chunk in some)]


def _unlike(texts: Sequence[str]) -> list[str]:
    """What is said of texts that are not cut as the package cuts them."""
    if not texts:
        return []
    shortest = min(texts, key=len)
    more = f", and of {len(texts) - 1} more of the texts that were tried" if len(texts) > 1 else ""
    return [f"as llama.cpp cuts texts, ids are others than here of {quoted(shortest)}{more}"]


def _prove(both: Both, differing: Sequence[str], kind: str, label: str) -> None:
    """Raise UnsupportedSource unless the tokenizer read back is the same. differing: texts that it cuts
    otherwise, and has to cut alike.
    """
    if differing:
        raise UnsupportedSource(
            f"{label}: read back from a GGUF file, the tokenizer gives other ids for {quoted(differing[0])}",
            hint="Its way of treating text is not among those that llama.cpp knows.",
        )
    if kind == WORDS:
        # Few words of the texts above may be in a vocabulary, so the pieces are compared, too.
        other = next((p for p, one in both.own.pieces.items() if both.again.pieces.get(p) != one), None)
        if other is not None:
            raise UnsupportedSource(f"{label}: the token {quoted(other)} has no spelling in a GGUF file")
