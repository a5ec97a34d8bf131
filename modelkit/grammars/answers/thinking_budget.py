"""Thinking that ends after so many tokens: from there on only the mark that closes it may come.

Under any grammar, or none: the mask is the grammar's until the budget is spent, then one token of the closing
mark after the other. So a batch's other rows see nothing of it, drafts that go on thinking are refused where
they stand, and the mark itself is drafted for nothing. A call that has ended the thinking is left alone, and
so is text in which an opening mark is spelt: thinking begins where whoever reads the answer sees it begin
(`modelkit.output.text_splitter`). Behind a budget that is spent it does not begin again
(`reopened_thinking`), as far as headers or added tokens begin it: it would only be closed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import MarkedCall, Style
from modelkit.grammars.answers.reopened_thinking import Reopening, by_header, by_marks
from modelkit.grammars.rules.rules import Marks, Rules
from modelkit.tokenizer import Tokenizer
from runtime.records import dataclass
from runtime.sampling.constraint import WORD, Constraint, ConstraintFault, Matcher, allows, without

_TAIL = 256  # bytes of the text that are kept to find marks in, at least

Phase = Literal["outside", "inside", "closing"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What thinking may take, and how it is told."""

    tokens: int
    """Between its marks, all that an answer thinks taken together."""
    opens: tuple[bytes, ...]
    """Marks that begin it."""
    closes: tuple[bytes, ...]
    """Marks that end it."""
    behind: tuple[bytes, ...]
    """Marks behind which it may begin again. Else it begins only where nothing of an answer stands before
    it.
    """
    lead: bytes
    """Blanks in front of the closing mark, left out where the text ends with them already."""
    lead_ids: tuple[int, ...]
    close_ids: tuple[int, ...]
    """The closing mark."""
    opened: bool
    """The prompt has begun it."""
    start: bytes
    """Begins the next header, where there are any."""
    headers: Reopening
    """Ids that would begin it anew, by what is written of a header."""
    marks: Mapping[bytes, Reopening]
    """And by what is written of each mark that begins it."""


def budget_of(
    style: Style, opening: Opening, tokens: int, tokenizer: Tokenizer, marks: Marks, calls: Collection[str]
) -> Budget | None:
    """None for an answer that does not think, or whose closing mark this vocabulary cannot write. calls: the
    tools that the answer may call.
    """
    header = style.header
    if header and header.thinking:
        begins, close = (header.thinking + header.message,), header.ends[0] + header.start
        ends = (header.ends[0],)
        close += "" if calls else header.text + header.message
    elif style.think:
        begins, ends, close = style.think.opens, style.think.closes, style.think.close
    else:
        return None
    if opening.place not in ("start", "thinking"):
        return None
    core = close.lstrip()
    ids = _written(core, tokenizer, marks)
    lead = close[: len(close) - len(core)]
    if not ids:
        return None
    return Budget(
        tokens,
        tuple(mark.strip().encode() for mark in begins if mark.strip()),
        tuple(mark.strip().encode() for mark in ends if mark.strip()),
        _behind(style, ends, tokenizer, marks, calls=bool(calls)),
        lead.encode(),
        _written(lead, tokenizer, marks),
        ids,
        opening.place == "thinking",
        header.start.encode() if header else b"",
        by_header(header, calls, tokenizer) if header and header.start and calls else {},
        by_marks(style, style.think, marks, tokenizer) if style.think and not header else {},
    )


def _behind(
    style: Style, ends: Sequence[str], tokenizer: Tokenizer, marks: Marks, *, calls: bool
) -> tuple[bytes, ...]:
    """The ends of calls, what opens the answer's text, and of the marks that end thinking those that are no
    text anywhere.
    """
    found = [*(style.text.opens if style.text else ())]
    found += [mark for mark in ends if _loud(mark) or marks.get(mark.strip()) in tokenizer.special_ids]
    if calls:
        ends_of_calls = [mark for span in (style.section, style.call) if span for mark in span.closes]
        if isinstance(style.form, MarkedCall):
            ends_of_calls.append(style.form.close)
        found += [mark for mark in ends_of_calls if mark.strip()] or ["}", "]", ")"]
    return tuple(mark.strip().encode() for mark in found if mark.strip())


def _loud(mark: str) -> bool:
    """Has it a bar in it, as nobody writes in prose?"""
    return "|" in mark or "\uff5c" in mark


def _written(text: str, tokenizer: Tokenizer, marks: Marks) -> tuple[int, ...]:
    """The ids of exactly this text; () where there are none."""
    ids = list[int]()
    for piece in Rules(marks).pieces(text):
        ids += [piece] if isinstance(piece, int) else tokenizer.encode(piece, add_special=False)
    exact = b"".join(tokenizer.bytes_of(one) for one in ids) == text.encode()
    return tuple(ids) if exact else ()


class Noted(Constraint, Protocol):
    """A constraint that says what it does not enforce."""

    notes: tuple[str, ...]


class Budgeted:
    """A Constraint of the floor below. inner: the answer's own, None for none."""

    def __init__(self, inner: Noted | None, budget: Budget, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._inner, self._budget, self._tokenizer = inner, budget, tokenizer
        self._bytes = -(-vocab_size // WORD) * WORD // 8
        self._anything = b"\xff" * self._bytes
        self.notes: tuple[str, ...] = () if inner is None else inner.notes

    def matcher(self) -> "BudgetedMatcher":
        inner = None if self._inner is None else self._inner.matcher()
        return BudgetedMatcher(inner, self._budget, self._tokenizer, self._anything)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer stands."""

    phase: Phase
    spent: int = 0
    tail: bytes = b""
    """The end of what was written since the phase began."""
    due: tuple[int, ...] = ()
    """What is left of the closing mark."""
    thought: bool = False
    """Has thinking ended?"""


class BudgetedMatcher:
    """A Matcher of the floor below."""

    def __init__(self, inner: Matcher | None, budget: Budget, tokenizer: Tokenizer, anything: bytes) -> None:
        self._inner, self._budget, self._tokenizer, self._anything = inner, budget, tokenizer, anything
        self._places = [self._checked(_Place("inside" if budget.opened else "outside"))]

    @property
    def ended(self) -> bool:
        return self._inner is not None and self._inner.ended

    def mask(self) -> bytes:
        mask = self._anything if self._inner is None else self._inner.mask()
        at = self._places[-1]
        # A grammar that is not in thinking any more, for a call has ended it, does not know the mark.
        if not at.due or not allows(mask, at.due[0]):
            return _without(mask, self._beginning(at))
        only = bytearray(len(mask))
        only[at.due[0] >> 3] = 1 << (at.due[0] & 7)
        return bytes(only)

    def advance(self, token: int) -> None:
        if self._inner is not None:
            self._inner.advance(token)
        self._places.append(self._checked(self._next(self._places[-1], token)))

    def back(self, count: int) -> None:
        if self._inner is not None:
            self._inner.back(count)
        del self._places[len(self._places) - count :]

    def forced(self, limit: int) -> Sequence[int]:
        due = self._places[-1].due
        if self._inner is None:
            return due[:limit]
        try:
            closes = bool(due) and allows(self._inner.mask(), due[0])
        except ConstraintFault:  # told by the next `mask`
            return ()
        return due[:limit] if closes else self._inner.forced(limit)

    def _next(self, at: _Place, token: int) -> _Place:
        if at.phase == "closing" and token == at.due[0]:
            left = at.due[1:]
            return replace(at, due=left) if left else _Place("outside", at.spent, thought=True)
        if at.phase == "closing" and not _unfinished(at.tail):  # the grammar had something else to say
            return _Place("outside", at.spent, thought=True)
        tail = (at.tail + self._tokenizer.bytes_of(token))[-2 * _TAIL :]
        inside = at.phase != "outside"
        if any(mark in tail for mark in self._budget.closes) if inside else self._begins(tail, token):
            return _Place("outside" if inside else "inside", at.spent, thought=at.thought or inside)
        return _Place("inside" if inside else "outside", at.spent + inside, tail, thought=at.thought)

    def _beginning(self, at: _Place) -> tuple[int, ...]:
        """Ids that would begin to think again, with nothing left to spend."""
        budget = self._budget
        if not at.thought or at.phase != "outside" or at.spent < budget.tokens:
            return ()
        if budget.headers:
            return budget.headers.get(at.tail.rpartition(budget.start)[2], ())
        return tuple(
            one
            for mark, again in budget.marks.items()
            for written, ids in again.items()
            if at.tail.endswith(written)
            for one in ids
            if self._begins(at.tail.removesuffix(written) + mark, one)
        )

    def _begins(self, tail: bytes, token: int) -> bool:
        """Does thinking begin at a mark in this text, which ends in this token? Marks that are special tokens
        or have a bar in them are not text anywhere.
        """
        special = self._tokenizer.bytes_of(token) if token in self._tokenizer.special_ids else b""
        for mark in self._budget.opens:
            place = tail.rfind(mark)
            if place >= 0 and (mark in special or _loud(mark.decode()) or self._fresh(tail[:place])):
                return True
        return False

    def _fresh(self, before: bytes) -> bool:
        """Has nothing of an answer been written in this text, or nothing behind marks that begin anew?"""
        while before := before.rstrip():
            if before.endswith(self._budget.behind):
                return True
            closed = next((mark for mark in self._budget.closes if before.endswith(mark)), None)
            if closed is None:
                return False
            before = before.removesuffix(closed)
        return True

    def _checked(self, at: _Place) -> _Place:
        """Closing, where the budget is spent."""
        budget = self._budget
        if at.phase != "inside" or at.spent < budget.tokens:
            return at
        lead = () if at.tail.endswith(budget.lead) else budget.lead_ids
        return replace(at, phase="closing", due=(*lead, *budget.close_ids))


def _without(mask: bytes, ids: Sequence[int]) -> bytes:
    """The mask without these, unless nothing would be left of it."""
    less = without(mask, ids)
    return less if any(less) else mask


def _unfinished(text: bytes) -> bool:
    """Does it end within a character? A grammar lets nothing else come before the character's end."""
    for count, byte in enumerate(reversed(text[-3:]), 1):
        if byte & 0xC0 != 0x80:
            return byte >= (0xC0, 0xE0, 0xF0)[count - 1]
    return False
