"""A package's tokenizer as GGUF metadata: what it is made of, and the roles of its special tokens."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from modelkit.pack.gguf.same_ids import Both, proved, read_back
from modelkit.pack.gguf.splitting_name import COMPOSED, recognised
from modelkit.source.gguf.vocabulary.export import kind_of, special_ids, state
from modelkit.source.gguf.vocabulary.pieces import BYTES, KEY, WORDS
from modelkit.source.gguf.vocabulary.special import ALL_ENDS
from modelkit.tokenizer.tokenizer import Tokenizer
from runtime.records import dataclass

if TYPE_CHECKING:
    pass


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
    ends = frozenset() if framed else ends  # of texts that are written
    stated = state(document, kind, rows, label)
    made, notes = {**stated.metadata}, [*stated.notes]
    if kind == BYTES:
        made[KEY + "pre"], said = recognised(document, label, tokenizer.cleans)
        notes += said
    made |= special_ids(_roles(tokenizer, ends) | (_frame_roles(tokenizer, document, kind) if framed else {}))
    made |= _added(tokenizer, kind, framed=framed)
    if drawn_never := [one for one in never if one in set(tokenizer.pieces.values())]:
        made[KEY + "suppress_tokens"] = tuple(drawn_never)
    again = read_back(made, rows, label)
    both = Both(tokenizer, again.tokenizer, COMPOSED in notes, framed or kind == WORDS)
    notes += proved(both, document, kind, label)
    if unnamed := sorted(ends - again.ends):
        made[KEY + ALL_ENDS] = tuple(sorted(ends))
        notes.append(f"llama.cpp reads three ends of a text, and none of {unnamed}; Ollama and modelkit do")
    made["tokenizer.huggingface.json"] = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return Vocabulary(made, tuple(notes))


def _added(tokenizer: Tokenizer, kind: str, *, framed: bool) -> dict[str, bool]:
    """Which tokens a text gets by itself. framed: as in `vocabulary_metadata`."""
    before, after = _frame(tokenizer)
    added = {
        KEY + "add_bos_token": before is not None and (framed or before == tokenizer.bos_id),
        KEY + "add_eos_token": after is not None and (framed or after == tokenizer.eos_id),
    }
    return {**added, KEY + "add_sep_token": after is not None} if kind == WORDS else added


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
