"""What has come of an answer and is not yet read: characters, and which of them are special tokens.

Whoever reads waits with `yield from`: nothing comes until `push` or `end`, and the generator is resumed.
"""

from collections import deque
from collections.abc import Generator
from typing import TypeVar

from runtime.engine.request import TokenLogprob

T = TypeVar("T")
Waiting = Generator[None, None, T]

BLANKS = " \t\r\n"
MOST_BLANKS = 256  # between two marks: a model that writes blanks without end is not waited for
LONGEST_HEAD = 65_536  # characters that are kept until it is clear that they are a call's
LONGEST_CALL = 1_000_000  # the same, where it is clear at the call's end


_Token = tuple[int, int, int, TokenLogprob | None]
"""(where its text begins among all characters, where it ends, id, log-probability where these are told)."""
_Taken = tuple[str, tuple[int, ...], tuple[TokenLogprob, ...]]


class Cut(Exception):
    """The answer ends in the middle."""


class Broken(Exception):
    """What should be arguments is none. lost: what of it is taken already and was not told."""

    def __init__(self, lost: str = "") -> None:
        super().__init__(lost)
        self.lost = lost


class NoCall(Exception):
    """What began like a call is none."""


class Feed:
    """One answer's characters."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        """Everything before it is read. Moves only by `take`."""
        self.ended = False
        self.cut = False
        """Ended, where the model had not: it would have gone on."""
        self.kept: list[str] | None = None
        """Where it is a list, what is read is written down there, to be given back."""
        self._kept_length, self._most_kept = 0, LONGEST_HEAD
        self._kept_tokens: list[_Token] = []
        self._kept_special: list[tuple[int, int]] = []
        self._last: list[_Token] = []  # of what was taken last
        self._last_special: list[tuple[int, int]] = []
        self._base = 0  # of all characters that ever came, how many lie before `text`
        self._ids: deque[tuple[int, int, int]] = deque()
        self._logprobs: deque[TokenLogprob] = deque()
        self._special: deque[tuple[int, int]] = deque()

    @property
    def empty(self) -> bool:
        return self.at == len(self.text) and not self._ids

    def push(self, text: str, ids: tuple[int, ...], logprobs: tuple[TokenLogprob, ...]) -> None:
        end = self._compact()
        self._ids.extend((end, end + len(text), token) for token in ids)
        self._logprobs.extend(logprobs)
        self.text += text

    def push_special(self, text: str) -> None:
        end = self._compact()
        self._special.append((end, end + len(text)))
        self.text += text

    def _compact(self) -> int:
        """Forget what is read; where the next character stands."""
        if self.at:
            self._base += self.at
            self.text, self.at = self.text[self.at :], 0
        return self._base + len(self.text)

    def take(self, count: int) -> str:
        """The next characters, as they are. The tokens that end in them are markup: nobody hears of them,
        unless the characters are given back.
        """
        taken = self.text[self.at : self.at + count]
        self._last = self._tokens_before(self._base + self.at + count, whole=True)
        self._last_special = self._advance(count)
        if self.kept is not None:
            self.kept.append(taken)
            self._kept_tokens += self._last
            self._kept_special += self._last_special
            self._kept_length += count
            if self._kept_length > self._most_kept:
                raise NoCall
        return taken

    def keep(self, first: str) -> None:
        """Write down what is read from now on, behind `first`, which was taken last."""
        self.kept, self._kept_length, self._most_kept = [first], 0, LONGEST_HEAD
        begin = self._base + self.at - len(first)
        self._kept_tokens = [one for one in self._last if one[0] >= begin]
        self._kept_special = [one for one in self._last_special if one[0] >= begin]

    def put_back(self) -> int:
        """What is written down stands here again, with its tokens, and no more is written down. How many
        characters came first, with `keep`: 0 where a call was told of them, and nothing comes back.
        """
        if self.kept is None:
            return 0
        first, text = len(self.kept[0]), "".join(self.kept)
        self._base += self.at - len(text)
        self.text, self.at, self.kept = text + self.text[self.at :], 0, None
        self._ids.extendleft((begin, end, token) for begin, end, token, _ in reversed(self._kept_tokens))
        self._logprobs.extendleft(one for *_, one in reversed(self._kept_tokens) if one is not None)
        self._special.extendleft(reversed(self._kept_special))
        return first

    def kept_from(self, place: int = 0) -> str:
        """What is written down, from there on."""
        return "".join(self.kept or ())[place:]

    def keep_on(self) -> None:
        """What is written down is a whole call."""
        self._most_kept = LONGEST_CALL

    def take_text(self, count: int) -> _Taken:
        """The next characters without special tokens, and the tokens that begin in them, or in the markup in
        front and end in them.
        """
        begin, end = self._base + self.at, self._base + self.at + count
        text = self.text[self.at : self.at + count]
        for start, stop in reversed(self._special):
            if start < end and stop > begin:
                text = text[: max(start - begin, 0)] + text[stop - begin :]
        tokens = self._tokens_before(end)
        self._advance(count)
        return text, *_apart(tokens)

    def rest(self) -> tuple[tuple[int, ...], tuple[TokenLogprob, ...]]:
        """Tokens without text, at the end."""
        return _apart(self._tokens_before(self._base + len(self.text) + 1))

    def _tokens_before(self, end: int, *, whole: bool = False) -> list[_Token]:
        """Those that begin there; whole: and end there."""
        tokens: list[_Token] = []
        while self._ids and self._ids[0][0] < end and not (whole and self._ids[0][1] > end):
            logprob = self._logprobs.popleft() if self._logprobs else None
            tokens.append((*self._ids.popleft(), logprob))
        return tokens

    def _advance(self, count: int) -> list[tuple[int, int]]:
        """The special tokens that are read with it."""
        self.at += count
        place, read = self._base + self.at, list[tuple[int, int]]()
        while self._special and self._special[0][1] <= place:
            read.append(self._special.popleft())
        return read

    def special(self, offset: int) -> bool:
        """Is the character at `at + offset` one of a special token?"""
        place = self._base + self.at + offset
        return any(start <= place < stop for start, stop in self._special)

    def char(self, offset: int = 0) -> Waiting[str]:
        """The character at `at + offset`; "" where the answer ends before it."""
        while self.at + offset >= len(self.text):
            if self.ended:
                return ""
            yield
        return self.text[self.at + offset]

    def blanks(self, offset: int = 0) -> Waiting[int]:
        """How far the blanks from `at + offset` go, as an offset. At most MOST_BLANKS are looked at."""
        last = offset + MOST_BLANKS
        while True:
            char = yield from self.char(offset)
            if not char or char not in BLANKS or offset == last:
                return offset
            offset += 1

    def skip_blanks(self) -> Waiting[str]:
        """Those that are there; the character behind them, or ""."""
        count = yield from self.blanks()
        if count:
            self.take(count)
        return (yield from self.char())

    def skip(self, blanks: str) -> Waiting[None]:
        """As many of exactly these as stand there."""
        for blank in blanks:
            if (yield from self.char()) != blank:
                return
            self.take(1)

    def starts(self, options: tuple[str, ...], offset: int = 0) -> Waiting[str | None]:
        """The longest of `options` that stands at `at + offset`. Waits while one of them may yet."""
        while True:
            text = self.text[self.at + offset : self.at + offset + 256]
            found = max((one for one in options if text.startswith(one)), key=len, default=None)
            least = len(found) if found else -1
            if self.ended or not any(
                len(one) > max(len(text), least) and one.startswith(text) for one in options
            ):
                return found
            yield

    def expect(self, options: tuple[str, ...]) -> Waiting[str | None]:
        """As `starts`, behind blanks, and taken with them; None takes nothing."""
        offset = yield from self.blanks()
        found = yield from self.starts(options, offset)
        if found is not None:
            self.take(offset + len(found))
        return found


def _apart(tokens: list[_Token]) -> tuple[tuple[int, ...], tuple[TokenLogprob, ...]]:
    """Their ids and log-probabilities."""
    return tuple(id for *_, id, _ in tokens), tuple(one for *_, one in tokens if one is not None)  # noqa: A001
