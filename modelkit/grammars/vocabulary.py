"""A vocabulary as the library takes it: a tokenizer.json of its own, and names of tokens in grammars.

Where a grammar leaves one way to go on, the library cuts the text of it into tokens as the tokenizer does,
and allows nothing else. A tokenizer finds an added token wherever its text stands (`<think>` in a JSON text),
but for the library such tokens are never text: it would refuse the one token that it allows. So here they go
by names that no text has.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_END = "<\0end>"
_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|/(?![/*])(?:\\.|[^/\\\n])+/|//[^\n]*|(<[^<>\s]+>)')


def names_tokens(grammar: str) -> bool:
    """Does a grammar in Lark's syntax or GBNF name an added token, which another model may not have?"""
    return any(found[1] for found in _PIECE.finditer(grammar))


def rewritten(text: str, *, end: int | None = None) -> str:
    """A tokenizer.json. end: the id of a token that is added where the vocabulary has none that ends a text:
    the library has to have one, and would take the token 0, which may be a text.
    """
    document = json.loads(text)
    document["decoder"] = _decoder(document.get("decoder"))
    _rename(document)
    if end is not None:
        _add_end(document, end)
    return json.dumps(document)


def _add_end(document: dict[str, Any], number: int) -> None:
    """In place. An id behind all others, also where ids below it are left out."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    entry = {"id": number, "content": _END, **flags, "special": True}
    document["added_tokens"] = [*(document.get("added_tokens") or []), entry]
    vocabulary = (document.get("model") or {}).get("vocab")
    if isinstance(vocabulary, dict):
        vocabulary[_END] = number


def _rename(document: dict[str, Any]) -> None:
    """In place. A token has its id by its name in the model's own vocabulary, and keeps its name where others
    are made with it.
    """
    added, model = document.get("added_tokens") or [], document.get("model") or {}
    names = {
        one["content"]: f"<\0{one['id']}>" for one in added if one.get("special") or _looks(one["content"])
    }
    for name in _merged(model.get("merges") or (), names):
        del names[name]
    for one in added:
        one["content"] = names.get(one["content"], one["content"])
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(piece, piece): number for piece, number in vocabulary.items()}
    elif isinstance(vocabulary, list):
        model["vocab"] = [[names.get(piece, piece), *rest] for piece, *rest in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]


def _merged(merges: Iterable[Any], names: Mapping[str, str]) -> set[str]:
    """The names that stand in merges, or come of one."""
    found = set[str]()
    for merge in merges:
        one, other = merge.split(" ") if isinstance(merge, str) else merge
        found.update(text for text in (one, other, one + other) if text in names)
    return found


def with_ids(lark: str, marks: Mapping[str, int]) -> str:
    """A grammar in Lark's syntax, with references to added tokens by their ids in place of their names."""

    def referred(found: re.Match[str]) -> str:
        return f"<[{marks[found[1]]}]>" if found[1] in marks else found[0]

    return _PIECE.sub(referred, lark)


def _looks(content: str) -> bool:
    """Like no text, to the library, whatever the file says."""
    return content.startswith("<") and content.endswith(">")


def _decoder(decoder: Any) -> Any:
    """One that the library knows: of Metaspace (T5) it only knows the parts."""
    if not decoder or decoder.get("type") != "Metaspace":
        return decoder
    space = {"type": "Replace", "pattern": {"String": decoder.get("replacement", "▁")}, "content": " "}
    return {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}]}
