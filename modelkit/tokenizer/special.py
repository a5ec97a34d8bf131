"""The special tokens: what tokenizer_config.json and its older companions say about them."""

from collections.abc import Iterator, Mapping
from typing import Any

from modelkit.errors import TokenizerError
from runtime.quoting import quoted
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

    files = {"tokenizer_config.json": config, "special_tokens_map.json": special_map}

    def text(role: str) -> str | None:
        found = (_text(said.get(role), f"{name}: {role}") for name, said in files.items())
        return next(filter(None, found), None)

    others = [
        token
        for name, said in files.items()
        for field in ("additional_special_tokens", "extra_special_tokens")
        for token in _texts(said.get(field), f"{name}: a token of {field}")
    ]
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
            raise TokenizerError(f"tokenizer_config.json: added_tokens_decoder has a bad entry {quoted(one)}")
        flags = {name: entry[name] is True for name in _FLAGS if name in entry}
        tokens.append(_declared(int(one), entry.get("content"), flags))
    return sorted(tokens, key=lambda token: token.id)


def _declared(one: object, content: object, flags: Mapping[str, bool]) -> DeclaredToken:
    if type(one) is not int or not isinstance(content, str) or not 0 < len(content) <= TOKEN_CHARS:
        raise TokenizerError(f"the added token {quoted(content)} has no text or no whole number as its id")
    return DeclaredToken(one, content, flags)


def _text(value: object, what: str) -> str | None:
    """A token is written as its text, or as an object with the text as `content`."""
    content = value.get("content") if isinstance(value, dict) else value
    if content is None:
        return None
    if not isinstance(content, str) or len(content) > TOKEN_CHARS:
        raise TokenizerError(f"{what} must be a short text; it is {quoted(content)}")
    return content or None


def _texts(value: object, what: str) -> Iterator[str]:
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for entry in entries:
        text = _text(entry, what)
        if text is not None:
            yield text
