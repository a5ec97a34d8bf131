"""Forms and whole answers compiled for one model's tokenizer, on the thread that asks, and kept."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from modelkit.errors import RequestError
from modelkit.grammars.compiling.digit_limit import DigitLimit
from modelkit.grammars.compiling.grammar import Grammar, bits_of, mask_bytes
from modelkit.grammars.compiling.matchers import Start, made_of, start_of
from modelkit.grammars.compiling.refusals import Refusals, Verdicts, one_line
from modelkit.grammars.compiling.vocabulary import Vocabulary
from modelkit.grammars.forms import Form
from modelkit.grammars.rules.rules import LONGEST_KEPT
from modelkit.tokenizer import Tokenizer
from modelkit.tokenizer.native import guarded

if TYPE_CHECKING:
    import llguidance

    from modelkit.chat.styles.opening import Opening
    from modelkit.chat.styles.style import Style
    from modelkit.grammars.answers.shape import Shape
    from modelkit.grammars.answers.thinking_budget import Budgeted
    from modelkit.grammars.schemas.loosening import Loosenings

    _Made = tuple[Start, Sequence[str]]

MOST_COMPILED = 64
_MOST_JUDGED = 4_096  # schemas of tools: an agent has dozens, each with other company in another conversation


class Grammars:
    """Compiles forms for one model. Safe to use from several threads; the last MOST_COMPILED are kept."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, stop_ids: frozenset[int]) -> None:
        self._tokenizer, self._vocab_size, self._stop_ids = tokenizer, vocab_size, stop_ids
        self._native: llguidance.LLTokenizer | None = None
        self._compiled: OrderedDict[object, Grammar] = OrderedDict()
        self._digits: DigitLimit | None = None
        self._loosenings: Loosenings | None = None
        self._refusals = Refusals(MOST_COMPILED)
        self._verdicts = Verdicts(self._unusable, _MOST_JUDGED, self._taken)
        self._lock = threading.Lock()
        self._added: tuple[dict[str, int], frozenset[int]] | None = None

    def compile(self, form: Form) -> "Grammar":
        """What is taken and not held (`unenforced`) leaves a sentence in the grammar's `notes`. Raises
        RequestError for a form that the library does not take, or not within the limits.
        """
        from modelkit.grammars.rewriting.unenforced import without_unenforced

        numbers = form.kind == "schema"  # digits of a grammar of one's own are meant as they are written
        marks, _ = self._marks()

        def made(native: "llguidance.LLTokenizer") -> "_Made":
            known, notes = without_unenforced(form)
            return start_of(native, known, marks), notes

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
        from modelkit.grammars.answers.thinking_budget import Budgeted, budget_of

        if style is None or tokens < 0:
            return inner
        budget = budget_of(style, opening, tokens, self._tokenizer, self._marks()[0], calls)
        return Budgeted(inner, budget, self._tokenizer, self._vocab_size) if budget else inner

    def can_budget(self, style: "Style | None") -> bool:
        """Is there a mark that ends thinking, which this vocabulary can write?"""
        from modelkit.chat.styles.opening import Opening
        from modelkit.grammars.answers.thinking_budget import budget_of

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
        never = b"" if self._stop_ids else bits_of(native.eos_tokens, self._vocab_size)
        with self._refusals.remembered(key):
            start, notes = make(native)
        digits = self._digits_of(native) if numbers else None
        added = self._stop_ids.union(self._marks()[0].values())
        grammar = Grammar(start.matcher, self._vocab_size, never, tuple(notes), digits, added, start.again)
        if never and grammar.matcher().ended:
            raise RequestError("the grammar allows nothing but an empty text, and this model cannot end one")
        with self._lock:
            self._compiled[key] = grammar
            while len(self._compiled) > MOST_COMPILED:
                self._compiled.popitem(last=False)
        return grammar

    def _shaped(self, native: "llguidance.LLTokenizer", shape: "Shape") -> "_Made":
        from modelkit.grammars.answers.definition import with_any_arguments
        from modelkit.grammars.compiling.attempts import Attempts
        from modelkit.grammars.schemas.simple import is_simple

        attempts = Attempts(native, shape.form, *self._marks(), self._stop_ids)
        simple = {
            text
            for tool in shape.tools
            if len(text := json.dumps(tool.parameters)) <= LONGEST_KEPT and is_simple(tool.parameters)
        }
        made = attempts.made(*self._usable(shape, simple))
        if isinstance(made, str) and simple:
            shape, notes = self._usable(shape)
            made = attempts.made(shape, notes)
        if isinstance(made, str) and shape.tools:
            made = attempts.made(*with_any_arguments(shape, made))
        if isinstance(made, str):
            raise RequestError(f"no grammar for this answer: {made}")
        return made

    def _usable(self, shape: "Shape", simple: Collection[str] = ()) -> "tuple[Shape, list[str]]":
        """See `definition.of_usable_tools`. simple: schemas that are taken without a look at them."""
        from modelkit.grammars.answers.definition import of_usable_tools
        from modelkit.grammars.schemas.loosening import Loosenings

        if self._loosenings is None:  # two threads may make the same
            self._loosenings = Loosenings(lambda schema: self._verdicts.of(json.dumps(schema)), MOST_COMPILED)
        texts = [json.dumps(tool.parameters) for tool in shape.tools]
        self._verdicts.look_at([one for one in texts if one not in simple])

        def why_not(schema: Mapping[str, Any]) -> str | None:
            text = json.dumps(schema)
            return None if text in simple else self._verdicts.of(text)

        return of_usable_tools(shape, why_not, self._loosenings.of)

    def _unusable(self, schema: str) -> str | None:
        """Why no grammar can be made of this schema of a tool's, whatever other tools stand beside it."""
        assert self._native is not None
        try:
            matcher = made_of(self._native, Form("parameters", "schema", schema), {}).matcher
        except RequestError as error:
            return error.message
        return one_line(matcher.get_error()) if matcher.is_error() else None

    def _taken(self, schemas: Sequence[str]) -> list[str]:
        from modelkit.grammars.compiling.joint_trial import accepted_together

        assert self._native is not None
        return accepted_together(self._native, schemas)

    def _marks(self) -> tuple[dict[str, int], frozenset[int]]:
        """Added tokens by their text, and the ids of those that are text."""
        if self._added is None:
            known = {one: token for one, token in self._tokenizer.added.items() if one < self._vocab_size}
            marks = {token.content: one for one, token in known.items() if token.content}
            plain = {one for one, token in known.items() if not token.special}
            self._added = marks, frozenset(plain - self._stop_ids)
        return self._added

    def _digits_of(self, native: "llguidance.LLTokenizer") -> DigitLimit:
        if self._digits is None:  # two threads may find the same
            self._digits = DigitLimit(native, self._tokenizer.bytes_of, mask_bytes(self._vocab_size))
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
