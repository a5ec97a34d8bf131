"""Stop strings, found in text that comes in pieces."""

from collections.abc import Sequence

from modelkit.errors import RequestError

MOST_STOPS = 64
STOP_CHARS = 256


class StopStrings:
    """Cuts a text where the first stop string starts, whatever the pieces it comes in.

    What was emitted, `finish` included, is the text before the earliest start of any stop string; a tail that
    may yet become one is held back, and no more than that. `matched` is the stop string found, the shortest
    of several that start at one place. Raises RequestError for empty, too long or too many stop strings.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if len(stops) > MOST_STOPS:
            raise RequestError(f"{len(stops)} stop strings; at most {MOST_STOPS} are taken")
        for stop in stops:
            if not 0 < len(stop) <= STOP_CHARS:
                raise RequestError(
                    f"a stop string must have 1 to {STOP_CHARS:,} characters; one has {len(stop):,}"
                )
        self._stops = tuple(sorted(set(stops), key=len))
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str) -> tuple[str, bool]:
        """The text to emit now, and whether a stop string was found; after that, nothing more is emitted.

        One inside a longer one that may have begun before it is settled only when the longer one is.
        """
        if self.matched is not None or not self._stops:
            return ("", True) if self.matched else (piece, False)
        text = self._held + piece
        cut, found = self._first(text)
        hold = self._pending(text, cut)
        if found is None or hold < cut:
            self._held = text[hold:]
            return text[:hold], False
        self._held, self.matched = "", found
        return text[:cut], True

    def finish(self) -> tuple[str, bool]:
        """The tail that became no stop string, and whether one was found after all."""
        text, self._held = self._held, ""
        cut, found = self._first(text)
        self.matched = self.matched or found
        return text[:cut], self.matched is not None

    def _first(self, text: str) -> tuple[int, str | None]:
        """Where the earliest stop string starts in `text`, and which; its length and None without any."""
        starts = [(text.find(stop), stop) for stop in self._stops]
        return min(
            ((at, stop) for at, stop in starts if at >= 0),
            key=lambda pair: pair[0],
            default=(len(text), None),
        )

    def _pending(self, text: str, cut: int) -> int:
        """The first place before `cut` from which `text` ends as a stop string begins; else `cut`."""
        longest = len(self._stops[-1])
        for at in range(max(0, len(text) - longest + 1), cut):
            if any(stop.startswith(text[at:]) for stop in self._stops):
                return at
        return cut
