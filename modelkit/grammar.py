"""Answers that follow a grammar: JSON, a JSON schema, a regular expression, or a grammar in Lark or GBNF.

`read_form` checks what the user asked for on its face; `Grammars` compiles it for one model's tokenizer, on
the thread that asks; what comes out is a Constraint, all that the floor below knows. The grammar works on
bytes, so any way to cut an allowed text into tokens is allowed; special tokens are not, but for those that
end a text.

Schemas and grammars may come from anyone. The library that runs them (llguidance) opens no file and no
connection, its work is bounded by LIMITS when a grammar is compiled and again at every token, and the size of
the text is bounded here.
"""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from modelkit.arguments import refused
from modelkit.errors import RequestError
from modelkit.schema import close_objects
from modelkit.tokenizer import Tokenizer
from modelkit.tokenizer.native import guarded
from runtime.sampling.constraint import WORD, ConstraintFault

if TYPE_CHECKING:
    import llguidance

Kind = Literal["schema", "regex", "lark"]

MOST_CHARACTERS = {"schema": 1_000_000, "regex": 65_536, "lark": 262_144}
MOST_COMPILED = 16
ANY_OBJECT = '{"type": "object"}'
# A model may lay its JSON out over lines, but not put off going on: one space, or one line end and an indent.
_BLANKS = r"\x20|\x0A(\x20{0,20}|\x09{0,6})"
# Bytes and milliseconds are in proportion: a lexer state takes 1 to 2 kB, a thousand fuel about 0.07 ms.
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 100_000,
    "max_grammar_size": 500_000,
}
_REGEX_ERROR = re.compile(r"regex parse error:\n(?P<place>(?: .*\n)+)error: (?P<why>.*)")
_MOST_LINES, _LONGEST_LINE = 12, 200
_SUPPORTED = "What is supported: https://github.com/guidance-ai/llguidance/blob/main/docs/json_schema.md"


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer shall look like."""

    option: str
    """The name by which the user gave it."""
    kind: Kind
    text: str


def read_form(output: object = None, grammar: object = None, regex: object = None) -> Form | None:
    """The one of these that was given, None when none was. Raises RequestError.

    output: "json" for any JSON object, or a JSON schema, as a mapping or as text; users call it `format`.
    grammar: a text in Lark's syntax, or in GBNF, llama.cpp's. regex: a regular expression without
    look-around, which the whole answer matches.
    """
    forms = [
        *([_of_output(output)] if output is not None else []),
        *([_of_text("grammar", "lark", grammar)] if grammar is not None else []),
        *([_of_text("regex", "regex", regex)] if regex is not None else []),
    ]
    if len(forms) > 1:
        names = " and ".join(form.option for form in forms)
        raise RequestError(f"{names} were both given; an answer can follow one of them")
    return forms[0] if forms else None


def _of_output(wanted: object) -> Form:
    if isinstance(wanted, str):
        if wanted == "json":
            return Form("format", "schema", ANY_OBJECT)
        if not wanted.lstrip().startswith("{"):
            raise refused("format", wanted, '"json" or a JSON schema')
        return _of_text("format", "schema", wanted)
    if not isinstance(wanted, Mapping):
        raise refused("format", wanted, '"json" or a JSON schema')
    try:
        text = json.dumps(wanted, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"format is no JSON schema: {str(error)[:200]}") from error
    return _of_text("format", "schema", text)


def _of_text(option: str, kind: Kind, text: object) -> Form:
    if not isinstance(text, str):
        raise refused(option, text, "a text")
    if len(text) > MOST_CHARACTERS[kind]:
        most = MOST_CHARACTERS[kind]
        raise RequestError(f"{option} has {len(text):,} characters; at most {most:,} are taken")
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise RequestError(f"{option} has a NUL or half a surrogate pair in it")
    return Form(option, kind, text)


class Grammars:
    """Compiles forms for one model. Safe to use from several threads; the last MOST_COMPILED are kept."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, stop_ids: frozenset[int]) -> None:
        self._tokenizer, self._vocab_size, self._stop_ids = tokenizer, vocab_size, stop_ids
        self._native: llguidance.LLTokenizer | None = None
        self._compiled: OrderedDict[Form, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, form: Form) -> "Grammar":
        """Raises RequestError for a form that the library does not take, or not within the limits."""
        with self._lock:
            if form in self._compiled:
                self._compiled.move_to_end(form)
                return self._compiled[form]
            self._native = self._native or self._prepare()
            native = self._native
        never = b"" if self._stop_ids else _bits(native.eos_tokens, self._vocab_size)
        grammar = Grammar(_matcher(native, form), self._vocab_size, never)
        with self._lock:
            self._compiled[form] = grammar
            while len(self._compiled) > MOST_COMPILED:
                self._compiled.popitem(last=False)
        return grammar

    def _prepare(self) -> "llguidance.LLTokenizer":
        """The library's view of the vocabulary: a trie of all of it, so a large one takes a moment."""
        import llguidance

        size = max(self._vocab_size, self._tokenizer.vocab_size)
        stops = sorted(self._stop_ids) or None
        text = _spaces_spelled_out(self._tokenizer.to_json())
        return guarded(
            "reading its vocabulary for a grammar", lambda: llguidance.LLTokenizer(text, size, stops)
        )


def _spaces_spelled_out(text: str) -> str:
    """A tokenizer.json whose decoder the library knows: of Metaspace (T5) it only knows the parts."""
    document = json.loads(text)
    decoder = document.get("decoder") or {}
    if decoder.get("type") != "Metaspace":
        return text
    space = {"type": "Replace", "pattern": {"String": decoder.get("replacement", "▁")}, "content": " "}
    document["decoder"] = {
        "type": "Sequence",
        "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}],
    }
    return json.dumps(document)


class Grammar:
    """A compiled form: a Constraint of the floor below. never: bits of ids that no mask has."""

    def __init__(self, native: "llguidance.LLMatcher", vocab_size: int, never: bytes = b"") -> None:
        self._native, self._bytes, self._never = native, -(-vocab_size // WORD) * WORD // 8, never

    def matcher(self) -> "GrammarMatcher":
        return GrammarMatcher(self._native, self._bytes, self._never)


class GrammarMatcher:
    """Where one answer stands in its grammar: a Matcher of the floor below."""

    def __init__(self, start: "llguidance.LLMatcher", mask_bytes: int, never: bytes) -> None:
        self._start, self._native = start, start.deep_copy()
        self._bytes, self._never = mask_bytes, never
        self._taken: list[int] = []
        self._forced: list[int] | None = None  # None: not asked for at this place

    @property
    def ended(self) -> bool:
        return self._native.is_stopped() and not self._native.is_error()

    def mask(self) -> bytes:
        mask = self._native.compute_bitmask()[: self._bytes]
        if self._never:
            mask = bytes(allowed & ~no for allowed, no in zip(mask, self._never, strict=True))
        if self._native.is_error() or not any(mask):
            raise ConstraintFault(f"the answer's grammar cannot go on: {self._reason()}")
        return mask

    def advance(self, token: int) -> None:
        if not self._native.consume_token(token):
            raise ConstraintFault(f"token {token} does not follow the answer's grammar: {self._reason()}")
        self._taken.append(token)
        self._forced = self._forced[1:] or None if self._forced else None

    def back(self, count: int) -> None:
        """A matcher that failed cannot go back: a new one is given the tokens up to that place."""
        if count == 0 and not self._native.is_error():
            return
        del self._taken[len(self._taken) - count :]
        self._forced = None
        if self._native.is_error() or not self._native.rollback(count):
            self._native = self._start.deep_copy()
            self._native.consume_tokens(self._taken)

    def forced(self, limit: int) -> Sequence[int]:
        if self._forced is None:
            self._forced = [] if self._native.is_error() else self._native.compute_ff_tokens()
        return self._forced[:limit]

    def _reason(self) -> str:
        return _one_line(self._native.get_error()) or "no token is left to choose from"


def _matcher(native: "llguidance.LLTokenizer", form: Form) -> "llguidance.LLMatcher":
    import llguidance

    limits = llguidance.LLParserLimits(**LIMITS, verbose_errors=False)
    matcher = llguidance.LLMatcher(native, _definition(form), log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()  # warms what all copies share, and finds what only shows at the first token
    if matcher.is_error():
        raise _refused(form, matcher.get_error())
    return matcher


def _definition(form: Form) -> str:
    from llguidance import LLMatcher
    from llguidance.gbnf_to_lark import any_to_lark

    if form.kind == "regex":
        return LLMatcher.grammar_from_regex(form.text)
    try:
        if form.kind == "lark":
            return LLMatcher.grammar_from_lark(any_to_lark(form.text))
        # Lenient would leave out what it cannot do, silently.
        return LLMatcher.grammar_from_json_schema(
            close_objects(form.text), {"whitespace_pattern": _BLANKS}, {"lenient": False}
        )
    except Exception as error:
        raise _refused(form, str(error)) from error


def _refused(form: Form, why: str) -> RequestError:
    what = {"schema": "is no usable JSON schema", "regex": "is no usable regular expression"}
    shown = _one_line(why) if form.kind == "schema" else _pointed(why)
    said = f"{form.option} {what.get(form.kind, 'is no usable grammar')}: {shown}"
    if form.kind != "schema":
        return RequestError(said)
    place = _place_of(why, form.text)
    return RequestError(f"{said} (at {place})" if place else said, hint=_SUPPORTED)


def _one_line(text: str) -> str:
    line = " ".join(text.replace("<non-verbose/>", "").split())
    return line if len(line) <= 300 else line[:297] + "..."


def _pointed(text: str) -> str:
    """The library's message, in lines where a caret under one points at a place. For a regular expression:
    what its own parser says.
    """
    own = _REGEX_ERROR.search(text)
    if own is not None:
        place = own["place"].rstrip()
        return f"{own['why']}\n{place}" if len(place) <= 2 * _LONGEST_LINE else own["why"]
    lines = text.replace("<non-verbose/>", "").strip("\n").splitlines()
    points = any(line.lstrip(" |").startswith("^") for line in lines)
    if not points or len(lines) > _MOST_LINES or max(map(len, lines)) > _LONGEST_LINE:
        return _one_line(text)
    return "\n".join(line.rstrip() for line in lines)


def _place_of(why: str, schema: str) -> str | None:
    """A JSON pointer to the first keyword that is not supported, if that is what is wrong."""
    _, found, keys = why.partition("Unimplemented keys: ")
    if not found:
        return None
    wanted, left = set[str](json.loads(keys)), [("#", json.loads(schema))]
    while left:
        place, value = left.pop()
        if isinstance(value, dict):
            hit = next((key for key in value if key in wanted), None)
            if hit is not None:
                return f"{place}/{hit}"
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        inner = [(f"{place}/{key}", one) for key, one in pairs if isinstance(one, dict | list)]
        left += reversed(inner)
    return None


def _bits(ids: list[int], size: int) -> bytes:
    """A mask of exactly these ids."""
    words = sum(1 << one for one in set(ids) if one < size)
    return words.to_bytes(-(-size // WORD) * WORD // 8, "little")
