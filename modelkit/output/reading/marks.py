"""Where in a text that still grows the first of some marks stands."""

import re
from collections.abc import Iterable
from functools import lru_cache

from modelkit.output.reading.feed import BLANKS


class Marks:
    """Cores of marks (not empty), and the blanks that may lie in front of one of them."""

    def __init__(self, cores: Iterable[str], leads: Iterable[str] = ()) -> None:
        self.cores = tuple(sorted(set(cores), key=len, reverse=True))
        self._begun = frozenset(core[:end] for core in self.cores for end in range(1, len(core)))
        self._longest = max(map(len, self.cores), default=1)
        self._firsts = frozenset(core[0] for core in self.cores)
        # Literals alone: nothing here can be tried twice at one place.
        self._any = re.compile("|".join(map(re.escape, self.cores)) or r"(?!)")
        leads = tuple(leads)
        self._lead_blanks = "".join(sorted({blank for lead in leads for blank in lead}))
        self._most_lead = max(map(len, leads), default=0)
        loud = "".join(sorted({*self._firsts, *self._lead_blanks}))
        self.loud = re.compile(f"[{re.escape(loud)}]" if loud else r"(?!)")
        """Finds what a piece of plain text must not hold to be let out as it is."""

    def look(self, text: str, start: int) -> tuple[int, str | None]:
        """(where, mark) of the first one; (where, None): before it there is none and will be none."""
        found = self._any.search(text, start)
        end = found.start() if found else len(text)
        for place in range(max(start, len(text) - self._longest + 1), min(end + 1, len(text))):
            if text[place] in self._firsts and text[place:] in self._begun:
                return place, None
        return (end, found.group()) if found else (end, None)

    def complete(self, text: str, start: int) -> tuple[int, str | None]:
        """As `look`, where no more comes."""
        found = self._any.search(text, start)
        return (found.start(), found.group()) if found else (len(text), None)

    def before_lead(self, text: str, start: int, end: int) -> int:
        """Where the blanks begin that may belong to a mark at `end`."""
        least = max(start, end - self._most_lead)
        while end > least and text[end - 1] in self._lead_blanks:
            end -= 1
        return end


@lru_cache(maxsize=512)
def of_one(core: str) -> Marks:
    """For one mark, and none in front of it."""
    return Marks((core,))


def core(mark: str) -> str:
    """A mark without the blanks at its ends."""
    return mark.strip(BLANKS)


def lead(mark: str) -> str:
    return mark[: len(mark) - len(mark.lstrip(BLANKS))]


def trail(mark: str) -> str:
    return mark[len(mark.rstrip(BLANKS)) :]


def without_lead(text: str, lead: str) -> int:
    """The length of `text` without as much of `lead` as it ends with."""
    return next((len(text) - n for n in range(len(lead), 0, -1) if text.endswith(lead[-n:])), len(text))
