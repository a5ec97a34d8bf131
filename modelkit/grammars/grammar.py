"""Answers that follow a grammar: JSON, a JSON schema, a regular expression, or a grammar in Lark or GBNF.

`read_form` checks what the user asked for on its face; `Grammars` compiles it for one model's tokenizer, on
the thread that asks; what comes out is a Constraint, all that the floor below knows. The grammar works on
bytes, so any way to cut an allowed text into tokens is allowed; added tokens are not, but for those that
end a text and those that a whole answer's grammar names (`shaped`: thinking, calls of tools, a form).

Schemas and grammars may come from anyone. The library that runs them (llguidance) opens no file and no
connection, its work is bounded by LIMITS when a grammar is compiled and again at every token, and the size of
the text is bounded here.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modelkit.errors import RequestError
from modelkit.grammars.digits import Digits
from modelkit.grammars.forms import MOST_CHARACTERS, Form, read_form
from modelkit.grammars.gbnf import as_lark, is_gbnf
from modelkit.grammars.refusals import COSTLY, Refusals, first_line, one_line, refused
from modelkit.grammars.rules import JSON_BLANKS, Marks
from modelkit.grammars.vocabulary import Vocabulary, names_tokens, with_ids
from modelkit.schema import as_meant
from modelkit.tokenizer import Tokenizer
from modelkit.tokenizer.native import guarded
from runtime.sampling.constraint import WORD, ConstraintFault

if TYPE_CHECKING:
    import llguidance

    from modelkit.chat.styles.opening import Opening
    from modelkit.chat.styles.style import Style
    from modelkit.grammars.budget import Budgeted
    from modelkit.grammars.loosening import Loosenings
    from modelkit.grammars.rules import Outcome
    from modelkit.grammars.shape import Shape

    _Made = tuple[llguidance.LLMatcher, Sequence[str]]

MOST_COMPILED = 64
__all__ = ["MOST_CHARACTERS", "Form", "Grammar", "GrammarMatcher", "Grammars", "read_form"]

# Bytes and milliseconds are in proportion: a lexer state takes 1 to 2 kB, a thousand fuel about 0.07 ms.
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 400_000,
    "step_max_items": 50_000,
    "max_items_in_row": 10_000,  # an object takes four for each of its properties
    "max_lexer_states": 100_000,
    "max_grammar_size": 500_000,
}


def check(form: Form) -> None:
    """Before there is a model to compile it for. Raises RequestError for a form that none takes; one that
    names tokens is only looked at when it is compiled.
    """
    import llguidance

    from modelkit.grammars.unheld import without_unheld

    if form.kind != "lark" or not names_tokens(form.text):
        _matcher(llguidance.LLTokenizer("byte"), without_unheld(form)[0], {})


class Grammars:
    """Compiles forms for one model. Safe to use from several threads; the last MOST_COMPILED are kept."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, stop_ids: frozenset[int]) -> None:
        self._tokenizer, self._vocab_size, self._stop_ids = tokenizer, vocab_size, stop_ids
        self._native: llguidance.LLTokenizer | None = None
        self._compiled: OrderedDict[object, Grammar] = OrderedDict()
        self._digits: Digits | None = None
        self._loosenings: Loosenings | None = None
        self._refusals = Refusals(MOST_COMPILED)
        self._lock = threading.Lock()
        self._added: tuple[dict[str, int], frozenset[int]] | None = None

    def compile(self, form: Form) -> "Grammar":
        """What is taken and not held (`unheld`) leaves a sentence in the grammar's `notes`. Raises
        RequestError for a form that the library does not take, or not within the limits.
        """
        from modelkit.grammars.unheld import without_unheld

        numbers = form.kind == "schema"  # digits of a grammar of one's own are meant as they are written
        marks, _ = self._marks()

        def made(native: "llguidance.LLTokenizer") -> "_Made":
            known, notes = without_unheld(form)
            return _matcher(native, known, marks), notes

        return self._kept(form, made, numbers=numbers)

    def shaped(self, shape: "Shape") -> "Grammar":
        """For a whole answer: thinking, text, calls of tools and a form. Takes milliseconds, for schemas of
        agents with many tools a tenth of a second: not for the thread of an event loop. Schemas that cannot
        be enforced leave a sentence in the grammar's `notes`. Raises RequestError as `compile`, and for a
        strict tool's schema that cannot be enforced.
        """
        if shape.form is not None:
            self.compile(shape.form)  # what is wrong with it is said of it alone
            if not shape.tools and shape.style.think is None and shape.style.header is None:
                return self.compile(shape.form)
        numbers = shape.form is None or shape.form.kind == "schema"
        return self._kept(shape.key, lambda native: self._shaped(native, shape), numbers=numbers)

    def budgeted(
        self,
        inner: "Grammar | None",
        style: "Style | None",
        opening: "Opening",
        tokens: int,
        *,
        calls: Collection[str] = (),
    ) -> "Grammar | Budgeted | None":
        """`inner`, and thinking ends after so many tokens; `inner` itself where nothing is thought. calls:
        the tools that the answer may call.
        """
        from modelkit.grammars.budget import Budgeted, budget_of

        if style is None or tokens < 0:
            return inner
        budget = budget_of(style, opening, tokens, self._tokenizer, self._marks()[0], calls)
        return Budgeted(inner, budget, self._tokenizer, self._vocab_size) if budget else inner

    def can_budget(self, style: "Style | None") -> bool:
        """Is there a mark that ends thinking, which this vocabulary can write?"""
        from modelkit.chat.styles.opening import Opening
        from modelkit.grammars.budget import budget_of

        marks = self._marks()[0]
        return style is not None and bool(budget_of(style, Opening(), 0, self._tokenizer, marks, ()))

    def _kept(
        self, key: object, make: "Callable[[llguidance.LLTokenizer], _Made]", *, numbers: bool
    ) -> "Grammar":
        """numbers: digits in it are numbers, and bounded."""
        with self._lock:
            if key in self._compiled:
                self._compiled.move_to_end(key)
                return self._compiled[key]
            self._native = self._native or self._prepare()
            native = self._native
        self._refusals.say_again(key)
        never = b"" if self._stop_ids else _bits(native.eos_tokens, self._vocab_size)
        with self._refusals.remembered(key):
            matcher, notes = make(native)
        digits = self._digits_of(native) if numbers else None
        added = frozenset(self._marks()[0].values())
        grammar = Grammar(matcher, self._vocab_size, never, tuple(notes), digits, added)
        if never and grammar.matcher().ended:
            raise RequestError("the grammar allows nothing but an empty text, and this model cannot end one")
        with self._lock:
            self._compiled[key] = grammar
            while len(self._compiled) > MOST_COMPILED:
                self._compiled.popitem(last=False)
        return grammar

    def _shaped(self, native: "llguidance.LLTokenizer", shape: "Shape") -> "_Made":
        from modelkit.grammars.loosening import Loosenings
        from modelkit.grammars.unheld import without_unheld
        from modelkit.grammars.whole import definition, of_usable_tools, opened

        def why_not(schema: Mapping[str, Any]) -> str | None:
            return self._unusable(native, schema)

        if self._loosenings is None:  # two threads may make the same
            self._loosenings = Loosenings(why_not, MOST_COMPILED)
        shape, notes = of_usable_tools(shape, why_not, self._loosenings.of)
        marks, plain = self._marks()
        form = None
        if shape.form is not None:
            known_form, unheld = without_unheld(shape.form)
            form, notes = _definition(known_form, marks), [*notes, *unheld]

        known: dict[str, Outcome] = {}

        def outcome(body: str) -> "Outcome":
            if body not in known:
                known[body] = _outcome(native, body)
            return known[body]

        def tried(shape: "Shape", notes: list[str]) -> "_Made | str":
            made = definition(shape, form, marks, plain, self._stop_ids, outcome)
            if made is None:
                return "together with this model's way to write them they nest too deep"
            matcher = _started(native, made[0])
            return first_line(matcher.get_error()) if matcher.is_error() else (matcher, [*notes, *made[1]])

        made = tried(shape, notes)
        if isinstance(made, str) and shape.style.loose:  # who reads them looks at calls without marks, too
            made = tried(replace(shape, style=replace(shape.style, loose=False)), notes)
        if isinstance(made, str) and shape.tools:
            made = tried(*opened(shape, made))
        if isinstance(made, str):
            raise RequestError(f"no grammar for this answer: {made}")
        return made

    def _unusable(self, native: "llguidance.LLTokenizer", schema: Mapping[str, Any]) -> str | None:
        """Why no grammar can be made of this schema of a tool's, whatever other tools stand beside it."""
        form = Form("parameters", "schema", json.dumps(schema))
        try:
            self._refusals.say_again(form)
            with self._refusals.remembered(form):
                matcher = _made(native, form, {})
                if matcher.is_error():
                    raise RequestError(one_line(matcher.get_error()))
        except RequestError as error:
            return error.message
        return None

    def _marks(self) -> tuple[dict[str, int], frozenset[int]]:
        """Added tokens by their text, and the ids of those that are text."""
        if self._added is None:
            known = {one: token for one, token in self._tokenizer.added.items() if one < self._vocab_size}
            marks = {token.content: one for one, token in known.items() if token.content}
            plain = {one for one, token in known.items() if not token.special}
            self._added = marks, frozenset(plain - self._stop_ids)
        return self._added

    def _digits_of(self, native: "llguidance.LLTokenizer") -> Digits:
        if self._digits is None:  # two threads may find the same
            self._digits = Digits(native, self._tokenizer.bytes_of, _mask_bytes(self._vocab_size))
        return self._digits

    def _prepare(self) -> "llguidance.LLTokenizer":
        """The library's view of the vocabulary: a trie of all of it, so a large one takes a moment."""
        import llguidance

        end = None if self._stop_ids else self._tokenizer.vocab_size
        size = max(self._vocab_size, self._tokenizer.vocab_size + (end is not None))
        stops = sorted(self._stop_ids) if end is None else [end]
        vocabulary = llguidance.TokenizerWrapper(Vocabulary(self._tokenizer, size, stops[0]))
        return guarded(
            "reading its vocabulary for a grammar", lambda: llguidance.LLTokenizer(vocabulary, size, stops)
        )


class Grammar:
    """A compiled form: a Constraint of the floor below. never: bits of ids that no mask has.

    notes: sentences on what it does not enforce. digits: bounds the numbers in it. added: ids of tokens that
    are no text to the library.
    """

    def __init__(
        self,
        native: "llguidance.LLMatcher",
        vocab_size: int,
        never: bytes = b"",
        notes: tuple[str, ...] = (),
        digits: Digits | None = None,
        added: frozenset[int] = frozenset(),
    ) -> None:
        self.notes = notes
        self._native, self._bytes, self._never = native, _mask_bytes(vocab_size), never
        self._digits, self._added = digits, added

    def matcher(self) -> "GrammarMatcher":
        return GrammarMatcher(self._native, self._bytes, self._never, self._digits, self._added)


class GrammarMatcher:
    """Where one answer stands in its grammar: a Matcher of the floor below."""

    def __init__(
        self,
        start: "llguidance.LLMatcher",
        mask_bytes: int,
        never: bytes,
        digits: Digits | None,
        added: frozenset[int],
    ) -> None:
        self._start, self._native, self._digits = start, start.deep_copy(), digits
        self._bytes, self._never, self._added = mask_bytes, never, added
        self._taken: list[int] = []
        self._forced: list[int] | None = None  # None: not asked for at this place

    @property
    def ended(self) -> bool:
        if self._native.is_error():
            return False
        return self._native.is_stopped() or (bool(self._never) and self._whole())

    def _whole(self) -> bool:
        """Can only an end follow? Asked where the vocabulary has none, so that nobody could draw it."""
        return self._native.is_accepting() and not any(self._allowed())

    def _allowed(self) -> bytes:
        mask = self._native.compute_bitmask()[: self._bytes]
        if not self._never:
            return mask
        return bytes(allowed & ~no for allowed, no in zip(mask, self._never, strict=True))

    def mask(self) -> bytes:
        mask = self._allowed()
        if self._native.is_error() or not any(mask):
            raise ConstraintFault(f"the answer's grammar cannot go on: {self._reason()}")
        return self._digits.bounded(mask, self._taken) if self._digits else mask

    def advance(self, token: int) -> None:
        if not self._native.consume_token(token):
            raise ConstraintFault(f"the answer's grammar cannot go on behind token {token}: {self._reason()}")
        self._taken.append(token)
        self._forced = self._forced[1:] or None if self._forced else None

    def back(self, count: int) -> None:
        """A matcher that failed cannot go back, and one that goes back over an added token may refuse what
        it allows there: a new one is given the tokens up to that place.
        """
        if count == 0 and not self._native.is_error():
            return
        kept = len(self._taken) - count
        sound = not self._native.is_error() and self._added.isdisjoint(self._taken[kept:])
        del self._taken[kept:]
        self._forced = None
        if not sound or not self._native.rollback(count):
            self._native = self._start.deep_copy()
            self._native.consume_tokens(self._taken)

    def forced(self, limit: int) -> Sequence[int]:
        if self._forced is None:
            self._forced = [] if self._native.is_error() else self._native.compute_ff_tokens()
        return self._forced[:limit]

    def _reason(self) -> str:
        return one_line(self._native.get_error()) or "no token is left to choose from"


def _matcher(native: "llguidance.LLTokenizer", form: Form, marks: Marks) -> "llguidance.LLMatcher":
    matcher = _made(native, form, marks)
    if matcher.is_error():
        raise refused(form, matcher.get_error())
    return matcher


def _made(native: "llguidance.LLTokenizer", form: Form, marks: Marks) -> "llguidance.LLMatcher":
    """May be in error. So are patterns with many repeats, each by itself, where they cost too much: within an
    object that would end an answer that has come to them.
    """
    from modelkit.grammars.loosening import counted

    matcher = _started(native, _definition(form, marks))
    if matcher.is_error() or form.kind != "schema":
        return matcher
    alone = (Form("", "schema", json.dumps({"type": "string", "pattern": one})) for one in counted(form.text))
    tried = (_started(native, _definition(one, {})) for one in alone)
    return next((one for one in tried if one.is_error() and COSTLY in one.get_error()), matcher)


def _started(native: "llguidance.LLTokenizer", definition: str) -> "llguidance.LLMatcher":
    """May be in error."""
    import llguidance

    limits = llguidance.LLParserLimits(**LIMITS, verbose_errors=False)
    matcher = llguidance.LLMatcher(native, definition, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()  # warms what all copies share, and finds what only shows at the first token
    return matcher if matcher.is_error() else _behind_a_token(native, matcher) or matcher


def _outcome(native: "llguidance.LLTokenizer", body: str) -> "Outcome":
    """Of a terminal in Lark's syntax, tried by itself: none for one that costs too much to look through."""
    matcher = _started(native, json.dumps({"grammars": [{"lark_grammar": f"start: T\nT: {body}\n"}]}))
    mask = b"" if matcher.is_error() else matcher.compute_bitmask()
    if matcher.is_error():
        return "never"
    others = int.from_bytes(mask, "little") & ~_ids(native.eos_tokens)
    return "some" if others else "empty" if matcher.is_accepting() else "never"


def _behind_a_token(
    native: "llguidance.LLTokenizer", start: "llguidance.LLMatcher"
) -> "llguidance.LLMatcher | None":
    """A matcher in error where the grammar cannot go on behind a brace, or another token that it takes: what
    is wrong with the properties of an object, or with repeats that cost too much, shows no sooner, and would
    end an answer that has begun.
    """
    tokens = native.tokenize_str("{")
    if start.validate_tokens(tokens) < len(tokens):
        mask = int.from_bytes(start.compute_bitmask(), "little") & ~_ids(native.eos_tokens)
        tokens = [(mask & -mask).bit_length() - 1] if mask else []
    tried = start.deep_copy()
    tried.consume_tokens(tokens)
    if not tried.is_error():
        tried.compute_bitmask()
    return tried if tried.is_error() else None


def _definition(form: Form, marks: Marks) -> str:
    """marks: tokens that a grammar in Lark may name."""
    from llguidance import LLMatcher

    from modelkit.grammars.listed import with_known_names
    from modelkit.grammars.sound import unsound, unsound_rules
    from modelkit.grammars.spelled import escapes, spelled

    if form.kind == "regex":
        return LLMatcher.grammar_from_regex(form.text)
    try:
        if form.kind == "lark":
            lark = as_lark(form.text) if is_gbnf(form.text) else form.text
            if (why := unsound_rules(lark)) is not None:
                raise refused(form, why)
            return LLMatcher.grammar_from_lark(with_ids(lark, marks))
        closed = with_known_names(as_meant(form.text))
        root = json.loads(closed)
        if isinstance(root, dict) and (why := unsound(root)) is not None:
            raise refused(form, why)
        written = spelled(root)
        text = closed if written is root else json.dumps(written)
        layout: Any = {"whitespace_pattern": JSON_BLANKS, **escapes(written)}
        # Lenient would leave out what it cannot do, silently.
        return LLMatcher.grammar_from_json_schema(text, layout, {"lenient": False})
    except RequestError:
        raise
    except RecursionError as error:
        raise refused(form, "it is written too deep") from error
    except Exception as error:
        raise refused(form, str(error)) from error


def _mask_bytes(size: int) -> int:
    return -(-size // WORD) * WORD // 8


def _bits(ids: Iterable[int], size: int) -> bytes:
    """A mask of exactly these ids, as far as one for `size` ids has a bit for them."""
    bytes_ = _mask_bytes(size)
    return _ids(one for one in ids if one < 8 * bytes_).to_bytes(bytes_, "little")


def _ids(ids: Iterable[int]) -> int:
    """The bits of a mask."""
    return sum(1 << one for one in set(ids))
