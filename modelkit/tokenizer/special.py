"""The special tokens: what tokenizer_config.json and its older companions say about them."""

from collections.abc import Iterator, Mapping
from typing import Any

from modelkit.errors import TokenizerError
from runtime.records import dataclass

MOST_TOKENS = 65_536
TOKEN_CHARS = 4096
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class Specials:
    """Texts of the special tokens; None for one that the model does not have."""

    bos: str | None = None
    eos: str | None = None
    unk: str | None = None
    pad: str | None = None
    others: tuple[str, ...] = ()
    """All special tokens that are none of these four."""

    def __iter__(self) -> Iterator[str]:
        named = (self.bos, self.eos, self.unk, self.pad, *self.others)
        return iter(dict.fromkeys(text for text in named if text is not None))


@dataclass(frozen=True, slots=True)
class DeclaredToken:
    """A token that a companion file adds or describes anew."""

    id: int
    content: str
    flags: Mapping[str, bool]
    """Those of `AddedToken`."""


def read_specials(config: Mapping[str, Any], special_map: Mapping[str, Any]) -> Specials:
    """tokenizer_config.json, and special_tokens_map.json for what that leaves out."""

    def text(role: str) -> str | None:
        return _text(config.get(role), role) or _text(special_map.get(role), role)

    lists = (
        source.get(field)
        for source in (config, special_map)
        for field in ("additional_special_tokens", "extra_special_tokens")
    )
    others = [token for value in lists for token in _texts(value)]
    others += [token for role in ("sep_token", "cls_token", "mask_token") if (token := text(role))]
    return Specials(text("bos_token"), text("eos_token"), text("unk_token"), text("pad_token"), tuple(others))


def declared_tokens(config: Mapping[str, Any], added: Mapping[str, Any]) -> list[DeclaredToken]:
    """`added_tokens_decoder` of tokenizer_config.json, else added_tokens.json, in the order of their ids."""
    table = config.get("added_tokens_decoder")
    if table is None:
        return sorted(
            (_declared(one, content, {}) for content, one in added.items()), key=lambda token: token.id
        )
    if not isinstance(table, dict) or len(table) > MOST_TOKENS:
        raise TokenizerError("tokenizer_config.json: added_tokens_decoder must map ids to tokens")
    tokens: list[DeclaredToken] = []
    for one, entry in table.items():
        if not isinstance(entry, dict) or not one.isascii() or not one.isdigit() or len(one) > 10:
            raise TokenizerError(f"tokenizer_config.json: added_tokens_decoder has a bad entry {one[:40]!r}")
        flags = {name: entry[name] is True for name in _FLAGS if name in entry}
        tokens.append(_declared(int(one), entry.get("content"), flags))
    return sorted(tokens, key=lambda token: token.id)


def _declared(one: object, content: object, flags: Mapping[str, bool]) -> DeclaredToken:
    if type(one) is not int or not isinstance(content, str) or not 0 < len(content) <= TOKEN_CHARS:
        raise TokenizerError(
            f"the added token {str(content)[:40]!r} has no text or no whole number as its id"
        )
    return DeclaredToken(one, content, flags)


def _text(value: object, role: str) -> str | None:
    """A token is written as its text, or as an object with the text as `content`."""
    content = value.get("content") if isinstance(value, dict) else value
    if content is None:
        return None
    if not isinstance(content, str) or len(content) > TOKEN_CHARS:
        raise TokenizerError(f"{role} must be a short text; it is {repr(content)[:40]}")
    return content or None


def _texts(value: object) -> Iterator[str]:
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for entry in entries:
        text = _text(entry, "a special token")
        if text is not None:
            yield text
