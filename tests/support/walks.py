"""Texts that a grammar allows: random walks over its masks, and the splitter's reading of them."""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.grammars.compiling.compiler import Grammars
from modelkit.output.events import Event
from modelkit.output.pieces import Piece, Pieces
from modelkit.output.splitter import splitter_for
from modelkit.tokenizer import Tokenizer, load_tokenizer
from runtime.sampling.constraint import Constraint, Matcher, allows

STOP = 256
_TOKEN = re.compile(r"<\|?[^<>\s\"={}]*[^<>\s\"={}/]\|?>|\[/?[A-Z_]+\]|]<]minimax\[>\[|｜DSML｜|<\|\"\|>")


@dataclass(frozen=True)
class Words:
    """A tokenizer of all bytes, the stop token, and a style's marks; or without the marks."""

    tokenizer: Tokenizer
    size: int
    grammars: Grammars
    letters: tuple[str, ...]
    """What each byte's token is, as text."""

    def text(self, ids: Iterable[int]) -> str:
        return "".join(piece.special or piece.text for piece in self.pieces(ids))

    def pieces(self, ids: Iterable[int]) -> list[Piece]:
        pieces = Pieces(self.tokenizer)
        return [piece for token in ids for piece in pieces.push(token)] + pieces.finish()


def words_of(style: Style | None, *, tokens: bool) -> Words:
    """tokens: the style's marks are added tokens, each second of them special."""
    return _words(tuple(marks_of(style)) if tokens and style else ())


@cache
def _words(marks: tuple[str, ...]) -> Words:
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Native

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    native = Native(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    native.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    native.decoder = decoders.ByteLevel()
    native.add_special_tokens(["<end>"])
    native.add_tokens(
        [AddedToken(mark, special=not number % 2, normalized=False) for number, mark in enumerate(marks)]
    )
    with TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer_config.json").write_text('{"eos_token": "<end>"}', encoding="utf-8")
        native.save(str(Path(folder) / "tokenizer.json"))
        tokenizer = load_tokenizer({"tokenizer.json": Path(folder) / "tokenizer.json"})
    size = 1 + STOP + len(marks)
    letters = tuple({"Ġ": " ", "Ċ": "\n"}.get(letter, letter) for letter in alphabet)
    return Words(tokenizer, size, Grammars(tokenizer, size, frozenset({STOP})), letters)


def marks_of(style: Style) -> list[str]:
    """What in a style's marks looks like tokens."""
    return list(dict.fromkeys(found for core in style.marks for found in _TOKEN.findall(core)))


def walk(words: Words, matcher: Matcher, rng: random.Random, most: int = 2500) -> tuple[list[int], bool]:
    """Ids that the grammar allows, and whether they are whole. Marks, and what closes something, come more
    often than chance has them, so that answers end. What is forced is checked against the masks.
    """
    ids: list[int] = []
    while not matcher.ended and len(ids) < most:
        run = matcher.forced(64) if rng.random() < 0.5 else ()
        mask = matcher.mask()
        if not run and allows(mask, STOP) and rng.random() < 0.12:
            return ids, True
        for token in run or [_choice(words, mask, rng)]:
            if token == STOP:
                return ids, True
            assert allows(matcher.mask(), token)
            matcher.advance(token)
            ids.append(token)
    return ids, matcher.ended


def _choice(words: Words, mask: bytes, rng: random.Random) -> int:
    able = [token for token in range(words.size) if allows(mask, token) and token != STOP]
    if not able:
        return STOP
    text = [token for token in able if token < STOP and words.letters[token].isascii()]
    closing = [token for token in text if words.letters[token] in '"]}>\n)<[0123']
    marks = [token for token in able if token > STOP]
    chance = rng.random()
    if marks and (chance < 0.4 or not text):
        return rng.choice(marks)
    return rng.choice(closing if closing and chance < 0.75 else text or able)


def takes(words: Words, grammar: Constraint, text: str) -> bool:
    """Is this, and nothing behind it, an answer?"""
    matcher = grammar.matcher()
    for token in words.tokenizer.encode(text, add_special=False):
        if matcher.ended or not allows(matcher.mask(), token):
            return False
        matcher.advance(token)
    return matcher.ended or allows(matcher.mask(), STOP)


def events_of(style: Style, opening: Opening, tools: object, pieces: Sequence[Piece]) -> list[Event]:
    splitter = splitter_for(style, opening, tools)
    return [event for piece in pieces for event in splitter.push(piece)] + splitter.finish()
