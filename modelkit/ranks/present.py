"""The ranks that this process is one of, or None. Apart, since most processes are none of several."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelkit.ranks.crew import Crew

_present: "Crew | None" = None


def present() -> "Crew | None":
    """The crew of this process; None where it works alone."""
    return _present


def be_of(crew: "Crew") -> "Crew":
    """From now on, for as long as this process lives."""
    global _present
    _present = crew
    return crew
