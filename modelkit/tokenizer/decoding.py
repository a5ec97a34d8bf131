"""The decoders of tokenizer.json as stages that work piece by piece.

A stage takes one piece at a time and returns the pieces it is sure of; `finish` returns the rest. The rules
are those of the `tokenizers` library, including its odd ones, since a stream must equal its `decode`.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from modelkit.errors import TokenizerError


class Stage(Protocol):
    def push(self, piece: str) -> Sequence[str]: ...
    def finish(self) -> Sequence[str]: ...


class Each:
    """A rule that looks at one piece alone."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        self._rule = rule

    def push(self, piece: str) -> Sequence[str]:
        return (self._rule(piece),)

    def finish(self) -> Sequence[str]:
        return ()


class First:
    """One rule for the first piece, another for the rest."""

    def __init__(self, first: Callable[[str], str], rest: Callable[[str], str]) -> None:
        self._rule = first
        self._rest = rest

    def push(self, piece: str) -> Sequence[str]:
        text = self._rule(piece)
        self._rule = self._rest
        return (text,)

    def finish(self) -> Sequence[str]:
        return ()


class StripStart:
    """Drops up to `count` times `content` from the start of the whole text."""

    def __init__(self, content: str, count: int) -> None:
        self._content = content
        self._left = count

    def push(self, piece: str) -> Sequence[str]:
        while self._left and piece:
            if piece[0] != self._content:
                self._left = 0
                break
            piece = piece[1:]
            self._left -= 1
        return (piece,)

    def finish(self) -> Sequence[str]:
        return ()


class ByteFallback:
    """`<0xE2>` is a byte. A run of them is one text if it is UTF-8, else one U+FFFD for each byte.

    So a run is held until a piece that is not a byte ends it: its last byte decides about its first.
    """

    BYTE = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")

    def __init__(self) -> None:
        self._run = bytearray()

    def push(self, piece: str) -> Sequence[str]:
        byte = self.BYTE.fullmatch(piece)
        if byte is None:
            return (*self.finish(), piece)
        self._run.append(int(byte[1], 16))
        return ()

    def finish(self) -> Sequence[str]:
        run, self._run = self._run, bytearray()
        if not run:
            return ()
        try:
            return (run.decode("utf-8"),)
        except UnicodeDecodeError:
            return ("\ufffd" * len(run),)


class ByteLevel:
    """Every character of a piece stands for a byte (GPT-2's table); bytes that are no UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, piece: str) -> Sequence[str]:
        try:
            data = codecs.charmap_encode(piece, "strict", _BYTES)[0]
        except UnicodeEncodeError:  # an added token may hold any character, and stands for itself
            data = piece.encode("utf-8")
        return (self._decoder.decode(data),)

    def push_each(self, pieces: Sequence[str]) -> list[str]:
        """As `push` of one after the other."""
        if not self._decoder.getstate()[0]:  # between two characters, as nearly always
            try:
                data = [codecs.charmap_encode(piece, "strict", _BYTES)[0] for piece in pieces]
                return [one.decode("utf-8") for one in data]
            except UnicodeError:  # an added token, or a character that its piece leaves unfinished
                pass
        return ["".join(self.push(piece)) for piece in pieces]

    def finish(self) -> Sequence[str]:
        return (self._decoder.decode(b"", final=True),)


def _byte_table() -> dict[int, int]:
    """GPT-2's: printable Latin-1 bytes are themselves, the other 68 are the characters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {byte: byte for byte in printable} | {0x100 + n: byte for n, byte in enumerate(others)}


_BYTES = _byte_table()


def stages_of(decoder: Mapping[str, Any] | None, *, continuing: bool) -> list[Stage]:
    """The stages of a checked `decoder`; with `continuing`, none treats the start of the text apart."""
    if decoder is None:
        return [_between(" ", continuing)]
    parts: Sequence[Mapping[str, Any]] = list(_flat(decoder))
    stages: list[Stage] = []
    fused = False
    for part in parts:
        stages.extend(_stage(part, fused, continuing))
        fused = fused or part["type"] in ("Fuse", "ByteLevel")
    return stages


def bytes_of(decoder: Mapping[str, Any] | None) -> Callable[[str], bytes]:
    """What says which bytes a vocabulary entry stands for within a text: whole characters or not."""
    kinds = [] if decoder is None else [part["type"] for part in _flat(decoder)]
    if "ByteLevel" in kinds:
        return _of_characters
    stages = stages_of(decoder, continuing=True)

    def of(piece: str) -> bytes:
        byte = ByteFallback.BYTE.fullmatch(piece) if "ByteFallback" in kinds else None
        if byte is not None:
            return bytes([int(byte[1], 16)])
        pieces: Iterable[str] = [piece]
        for stage in stages:
            pieces = [*(out for one in pieces for out in stage.push(one)), *stage.finish()]
        return "".join(pieces).encode("utf-8")

    return of


def _of_characters(piece: str) -> bytes:
    try:
        return codecs.charmap_encode(piece, "strict", _BYTES)[0]
    except UnicodeEncodeError:  # an added token
        return piece.encode("utf-8")


def _flat(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if decoder["type"] != "Sequence":
        yield decoder
        return
    for part in decoder["decoders"]:
        yield from _flat(part)


def _stage(part: Mapping[str, Any], fused: bool, continuing: bool) -> list[Stage]:
    """`fused`: the library has one single piece here, so what we push are fragments of it."""
    kind = part["type"]
    if kind == "Fuse":
        return []
    if kind == "ByteLevel" and not fused:
        return [ByteLevel()]
    if kind == "ByteFallback" and not fused:
        return [ByteFallback()]
    if kind == "Metaspace" and not fused:
        return [_metaspace(part, continuing)]
    if kind == "Strip":
        return _strip(part, fused, continuing)
    if kind == "Replace":
        old, new = part["pattern"].get("String"), part["content"]
        if isinstance(old, str) and (not fused or len(old) == 1):
            return [Each(lambda piece: piece.replace(old, new))]
    raise TokenizerError(f"text cannot be streamed through this tokenizer's {kind} decoder")


def _strip(part: Mapping[str, Any], fused: bool, continuing: bool) -> list[Stage]:
    content, count = part["content"], part["start"]
    if not fused:
        return [Each(lambda piece: StripStart(content, count).push(piece)[0])]
    return [] if continuing else [StripStart(content, count)]


def _metaspace(part: Mapping[str, Any], continuing: bool) -> Stage:
    mark = part["replacement"]
    if continuing or part.get("prepend_scheme", "always") == "never":
        return Each(lambda piece: piece.replace(mark, " "))
    return First(lambda piece: piece.replace(mark, ""), lambda piece: piece.replace(mark, " "))


def _between(separator: str, continuing: bool) -> Stage:
    """Without a decoder the library joins pieces with a space."""
    if continuing:
        return Each(lambda piece: separator + piece)
    return First(lambda piece: piece, lambda piece: separator + piece)
