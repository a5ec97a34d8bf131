"""A package's tokenizer as GGUF metadata, and the proof that the same ids come back.

How a text is cut has a name in GGUF files. It is recognised by the expressions that tokenizer.json states,
and where those are spelled otherwise by what they do to texts that tell all known ways apart. Then the
metadata are read as a GGUF file's would be, and texts encoded with both: what differs is not written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from modelkit.errors import UnsupportedSource
from modelkit.source.gguf.vocabulary.bpe import byte_level, sequence, split
from modelkit.source.gguf.vocabulary.export import kind_of, special_ids, state
from modelkit.source.gguf.vocabulary.files import tokenizer_files
from modelkit.source.gguf.vocabulary.pieces import BYTES, KEY, WORDS
from modelkit.source.gguf.vocabulary.special import ALL_ENDS
from modelkit.source.gguf.vocabulary.splitting import SPLITTINGS
from modelkit.temporary import TemporaryFolder
from modelkit.tokenizer.load import load_tokenizer
from modelkit.tokenizer.tokenizer import Tokenizer
from runtime.quoting import quoted
from runtime.records import dataclass

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


_TOGETHER, _MOST_TEXTS = 32, 2000
"""Pieces in one text that tells how they are joined, and texts."""

_BLANKS = " {2,}"
"""What the kind of scored pieces has a key for."""

_COMPOSED = "this tokenizer composes characters (NFC), which llama.cpp does not"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All that a file says of its tokenizer."""

    metadata: Mapping[str, Any]
    notes: tuple[str, ...]


def vocabulary_metadata(
    tokenizer: Tokenizer,
    ends: frozenset[int],
    never: Sequence[int] = (),
    *,
    rows: int,
    plain: bool,
    framed: bool = False,
    label: str,
) -> Vocabulary:
    """ends: all ids that end a text. never: ids that are never drawn. rows: of the embedding. plain: is the
    model one whose merges over text llama.cpp reads as they are? framed: is what stands before and after a
    text read with it, as encoders do? Then it has to come back, too.

    Raises UnsupportedSource for a tokenizer that a GGUF file cannot hold.
    """
    document = json.loads(tokenizer.to_json())
    kind = kind_of(document, plain=plain, label=label)
    stated = state(document, kind, rows, label)
    made = dict(stated.metadata)
    notes = list(stated.notes)
    if kind == BYTES:
        name, said = recognised(document, label, tokenizer.cleans)
        made[KEY + "pre"] = name
        notes += said
    before, after = _frame(tokenizer)
    ends = frozenset() if framed else ends  # of texts that are written
    roles = _roles(tokenizer, ends)
    made |= special_ids(roles if not framed else {**roles, **_frame_roles(tokenizer, document, kind)})
    made |= {
        KEY + "add_bos_token": before is not None and (framed or before == tokenizer.bos_id),
        KEY + "add_eos_token": after is not None and (framed or after == tokenizer.eos_id),
    }
    if kind == WORDS:
        made[KEY + "add_sep_token"] = after is not None
    drawn_never = [one for one in never if one in set(tokenizer.pieces.values())]
    if drawn_never:
        made[KEY + "suppress_tokens"] = tuple(drawn_never)
    again, generation = _read_back(made, rows, label)
    composed = _COMPOSED in notes
    differing = partial(_differing, again, tokenizer, composed=composed, framed=framed or kind == WORDS)
    _prove(again, tokenizer, differing([*PROBES, *_replaced(document, label)]), kind, label)
    notes += _unlike(differing(_of_pieces(tokenizer, again)))
    unnamed = sorted(ends - again.eos_ids(generation))
    if unnamed:
        made[KEY + ALL_ENDS] = tuple(sorted(ends))
        notes.append(f"llama.cpp reads three ends of a text, and none of {unnamed}; Ollama and modelkit do")
    made["tokenizer.huggingface.json"] = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return Vocabulary(made, tuple(notes))


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
    return name, [_COMPOSED] if nfc and normal else []


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


def _roles(tokenizer: Tokenizer, ends: frozenset[int]) -> dict[str, int | None]:
    """Three ends have roles. The tokenizer's own is the first; others come in the order of ids."""
    pieces, specials = tokenizer.pieces, tokenizer.specials
    eos = tokenizer.eos_id if tokenizer.eos_id is not None else min(ends, default=None)
    others = [*sorted(ends - {eos}), None, None]
    named = {role: pieces.get(getattr(specials, role) or "") for role in ("bos", "unk", "pad")}
    return {**named, "eos": eos, "eot": others[0], "eom": others[1]}


def _frame(tokenizer: Tokenizer) -> tuple[int | None, int | None]:
    """The tokens that a bare text gets before and behind it."""
    bare, framed = (tokenizer.encode("a", add_special=special) for special in (False, True))
    before = framed[0] if len(framed) > len(bare) and framed[: len(bare)] != bare else None
    more = len(framed) - len(bare) - (before is not None)
    return before, framed[-1] if more else None


def _frame_roles(tokenizer: Tokenizer, document: Mapping[str, Any], kind: str) -> dict[str, int | None]:
    """The frame's tokens in the roles that llama.cpp frames texts by. That of words asks for no flag: they
    are always framed, by the marks of class and separation.
    """
    before, after = _frame(tokenizer)
    roles = {role: one for role, one in (("bos", before), ("eos", after)) if one is not None}
    if kind != WORDS:
        return {**roles}
    unknown, mask = document["model"].get("unk_token"), tokenizer.pieces.get("[MASK]")
    return {**roles, "cls": before, "sep": after, "unk": tokenizer.pieces.get(unknown), "mask": mask}


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


def _read_back(metadata: Mapping[str, Any], rows: int, label: str) -> tuple[Tokenizer, Any]:
    """The tokenizer that a file with these metadata has, and its generation_config.json."""
    made = tokenizer_files(metadata, rows=rows, label=label)
    with TemporaryFolder("tokenizer", "the files of a tokenizer") as folder:
        paths = {name: folder.path / name for name in made.files}
        with folder.writing():
            for name, path in paths.items():
                path.write_bytes(made.files[name])
        return load_tokenizer(paths), json.loads(made.files["generation_config.json"])


def _differing(
    again: Tokenizer, tokenizer: Tokenizer, texts: Iterable[str], *, composed: bool, framed: bool
) -> list[str]:
    """The texts of which the two make other ids. composed: are texts given as NFC has them?"""
    given = (normalize("NFC", text) if composed else text for text in texts)
    ids = ((text, [one.encode(text, add_special=framed) for one in (again, tokenizer)]) for text in given)
    return [text for text, (one, other) in ids if one != other]


def _of_pieces(tokenizer: Tokenizer, again: Tokenizer) -> list[str]:
    """Texts with all pieces, of large vocabularies with an even share of them; and some with blanks outside.
    Without what is a special token in either.
    """
    ids = sorted(set(tokenizer.pieces.values()) - tokenizer.special_ids - again.special_ids)
    chunks = [ids[at : at + _TOGETHER] for at in range(0, len(ids), _TOGETHER)]
    some = chunks[:: -(-len(chunks) // _MOST_TEXTS) or 1]
    return [" a", "a ", "\na\n", *(tokenizer.decode(chunk) for chunk in some)]


def _unlike(texts: Sequence[str]) -> list[str]:
    """What is said of texts that are not cut as the package cuts them."""
    if not texts:
        return []
    shortest = min(texts, key=len)
    more = f", and of {len(texts) - 1} more of the texts that were tried" if len(texts) > 1 else ""
    return [f"as llama.cpp cuts texts, ids are others than here of {quoted(shortest)}{more}"]


def _prove(again: Tokenizer, tokenizer: Tokenizer, differing: Sequence[str], kind: str, label: str) -> None:
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
        other = next((p for p, one in tokenizer.pieces.items() if again.pieces.get(p) != one), None)
        if other is not None:
            raise UnsupportedSource(f"{label}: the token {quoted(other)} has no spelling in a GGUF file")
