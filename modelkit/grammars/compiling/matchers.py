"""What llguidance makes of a form: a matcher of its own, or the sentence in which the form is refused.

Schemas and grammars may come from anyone. The library opens no file and no connection, its work is bounded by
LIMITS when a grammar is compiled and again at every token, and the size of the text was bounded when it was
read (`forms`).
"""

import json
import re
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from modelkit.errors import RequestError
from modelkit.grammars.compiling.grammar import as_bits
from modelkit.grammars.compiling.refusals import CONDITIONS, COSTLY, NO_TEXT, refused
from modelkit.grammars.compiling.vocabulary import names_tokens, with_ids
from modelkit.grammars.forms import Form
from modelkit.grammars.notations import ascii_digits
from modelkit.grammars.notations.gbnf import as_lark, is_gbnf
from modelkit.grammars.rules.rules import JSON_BLANKS, Marks
from modelkit.grammars.thread_switching import short_switch_interval
from modelkit.python_faults import number_fault
from runtime.records import dataclass

if TYPE_CHECKING:
    import llguidance

    from modelkit.grammars.rules.rules import Outcome

# Bytes and milliseconds are in proportion: a lexer state takes 1 to 2 kB, a thousand fuel about 0.07 ms.
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 400_000,
    "step_max_items": 50_000,
    "max_items_in_row": 10_000,  # an object takes four for each of its properties
    "max_lexer_states": 100_000,
    "max_grammar_size": 500_000,
}
_MOST_PLACES = 3_000
"""Items in a row of a grammar of one's own, but for those of its choices (`_rows`). What a row takes grows
with the square of them, on the thread of all answers: 10,000 take half a second.
"""
_ROOT = re.compile("rule (?:start|a_root) ")
_MOST_CHOICES = 5_000
LONGEST_FORCED = 20_000  # bytes: they are looked through at every token, 20 ms for 100,000


@dataclass(frozen=True, slots=True)
class Start:
    """Of all answers of a form."""

    matcher: "llguidance.LLMatcher"
    """May be in error."""
    again: "Callable[[], llguidance.LLMatcher]"
    """The same anew, without another look at the form."""


def check(form: Form) -> None:
    """Before there is a model to compile it for. Raises RequestError for a form that none takes; one that
    names tokens is only looked at when it is compiled.
    """
    import llguidance

    from modelkit.grammars.rewriting.unenforced import without_unenforced

    if form.kind != "lark" or not names_tokens(form.text):
        start_of(llguidance.LLTokenizer("byte"), without_unenforced(form)[0], {})


def start_of(native: "llguidance.LLTokenizer", form: Form, marks: Marks) -> Start:
    start = made_of(native, form, marks)
    if start.matcher.is_error():
        raise refused(form, start.matcher.get_error())
    return start


def made_of(native: "llguidance.LLTokenizer", form: Form, marks: Marks) -> Start:
    """May be in error. So are patterns with many repeats, each by itself, where they cost too much: within an
    object that would end an answer that has come to them. Raises RequestError.
    """
    from modelkit.grammars.schemas.loosening import counted

    definition = definition_of(form, marks, native.eos_tokens)
    start = begun(native, definition, _rows(form))
    if start.matcher.is_error():
        return start
    _refuse_forced(form, start.matcher)
    if form.kind == "lark":
        _refuse_never(native, form, definition)
    if form.kind != "schema":
        return start
    for pattern in counted(form.text):
        alone = Form("", "schema", json.dumps({"type": "string", "pattern": pattern}))
        tried = started(native, definition_of(alone, {}))
        if tried.is_error() and COSTLY in tried.get_error():
            return Start(tried, start.again)
        _refuse_forced(form, tried)
    return start


def _refuse_forced(form: Form, matcher: "llguidance.LLMatcher") -> None:
    if not matcher.is_error() and (forced := len(matcher.compute_ff_bytes())) > LONGEST_FORCED:
        raise refused(
            form,
            f"it requires {forced:,} bytes in a row without a choice among them; at most "
            f"{LONGEST_FORCED:,} are taken",
        )


def _refuse_never(native: "llguidance.LLTokenizer", form: Form, definition: str) -> None:
    """Where an answer may come to a terminal that no text fits."""
    from modelkit.grammars.notations.empty_terminals import empty_terminals
    from modelkit.grammars.notations.endless_rules import endless_rule

    def takes(lark: str) -> bool:
        matcher = started(native, json.dumps({"grammars": [{"lark_grammar": lark}]}))
        return not matcher.is_error() or NO_TEXT not in matcher.get_error()

    text = json.loads(definition)["grammars"][0]["lark_grammar"] if definition[:1] == "{" else definition
    never = empty_terminals(text, takes)
    if never and (name := endless_rule(text, never)) is not None:
        which = name if name in never else min(never)
        raise refused(form, f"no text fits the terminal {which}, and an answer may come to it behind others")


def _rows(form: Form) -> int:
    """How many items there may be in a row: one for each choice, and one for each way to read a text."""
    if form.kind != "lark":
        return LIMITS["max_items_in_row"]
    return _MOST_PLACES + min(form.text.count("|"), _MOST_CHOICES)


def begun(native: "llguidance.LLTokenizer", definition: str, rows: int = LIMITS["max_items_in_row"]) -> Start:
    return Start(started(native, definition, rows), partial(started, native, definition, rows))


def started(
    native: "llguidance.LLTokenizer", definition: str, rows: int = LIMITS["max_items_in_row"]
) -> "llguidance.LLMatcher":
    """May be in error. rows: see `_rows`."""
    import llguidance

    bounds: dict[str, Any] = {**LIMITS, "max_items_in_row": rows}
    limits = llguidance.LLParserLimits(**bounds, verbose_errors=False)
    matcher = llguidance.LLMatcher(native, definition, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()  # warms what all copies share, and finds what only shows at the first token
    return matcher if matcher.is_error() else behind_a_token(native, matcher) or matcher


def outcome_of(native: "llguidance.LLTokenizer", body: str) -> "Outcome":
    """Of a terminal in Lark's syntax, tried by itself: none for one that costs too much to look through."""
    matcher = started(native, json.dumps({"grammars": [{"lark_grammar": f"start: T\nT: {body}\n"}]}))
    mask = b"" if matcher.is_error() else matcher.compute_bitmask()
    if matcher.is_error():
        return "never"
    others = int.from_bytes(mask, "little") & ~as_bits(native.eos_tokens)
    return "some" if others else "empty" if matcher.is_accepting() else "never"


def behind_a_token(
    native: "llguidance.LLTokenizer", start: "llguidance.LLMatcher"
) -> "llguidance.LLMatcher | None":
    """A matcher in error where the grammar cannot go on behind a brace, or another token that it takes: what
    is wrong with the properties of an object, or with repeats that cost too much, shows no sooner, and would
    end an answer that has begun.
    """
    tokens = native.tokenize_str("{")
    if start.validate_tokens(tokens) < len(tokens):
        mask = int.from_bytes(start.compute_bitmask(), "little") & ~as_bits(native.eos_tokens)
        tokens = [(mask & -mask).bit_length() - 1] if mask else []
    tried = start.deep_copy()
    tried.consume_tokens(tokens)
    if not tried.is_error():
        tried.compute_bitmask()
    return tried if tried.is_error() else None


def definition_of(form: Form, marks: Marks, ends: Collection[int] = ()) -> str:
    """marks: tokens that a grammar in Lark may name; ends: those that end an answer."""
    with short_switch_interval():
        return _definition_of(form, marks, ends)


def _definition_of(form: Form, marks: Marks, ends: Collection[int]) -> str:
    from llguidance import LLMatcher

    from modelkit.grammars.notations.limits import grammar_fault
    from modelkit.grammars.rewriting.pipeline import rewritten
    from modelkit.grammars.rules.llguidance_schema import escape_options, for_llguidance
    from modelkit.grammars.schemas.limits import schema_fault

    if form.kind == "regex":
        return LLMatcher.grammar_from_regex(ascii_digits.in_expression(form.text))
    try:
        if form.kind == "lark":
            gbnf = is_gbnf(form.text)
            lark = as_lark(form.text) if gbnf else form.text
            if (why := grammar_fault(lark)) is not None:
                raise refused(form, _ROOT.sub("rule root ", why) if gbnf else why)
            return LLMatcher.grammar_from_lark(with_ids(ascii_digits.in_grammar(lark), marks, ends))
        its = rewritten(form.text)
        for at, why in its.refused.items():
            raise refused(form, f"{why} (at {at})", CONDITIONS)
        root = json.loads(its.text)
        if isinstance(root, dict) and (why := schema_fault(root)) is not None:
            raise refused(form, why)
        written = for_llguidance(root)
        text = its.text if written is root else json.dumps(written)
        layout: Any = {"whitespace_pattern": JSON_BLANKS, **escape_options(written)}
        # Lenient would leave out what it cannot do, silently.
        return LLMatcher.grammar_from_json_schema(text, layout, {"lenient": False})
    except RequestError:
        raise
    except RecursionError as error:
        raise refused(form, "it is written too deep") from error
    except Exception as error:
        raise refused(form, number_fault(error) or str(error)) from error
