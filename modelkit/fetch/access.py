"""How much of the network a command may use, and who hears of it."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NoReturn, Protocol

from modelkit.address import Address
from modelkit.errors import FetchError
from modelkit.progress import Progress, Silent
from runtime.records import dataclass

MOMENT_BYTES = 64 << 20
"""What is fetched as soon as its headers are."""

if TYPE_CHECKING:
    from modelkit.fetch.local import Local
    from modelkit.store.name import Name
    from modelkit.temporary import TemporaryFolder


class Listener(Progress, Protocol):
    """Who hears what is fetched."""

    def say(self, sentence: str) -> None:
        """A sentence, before anything large moves."""
        ...


class NoListener(Silent):
    """Nobody listens."""

    def say(self, sentence: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Access:
    """What a command may fetch."""

    offline: bool = False
    """Nothing at all: only what lies on this machine is used."""
    insecure: bool = False
    """A registry may be spoken to over plain http, though it is on another machine."""
    hollow: "TemporaryFolder | None" = None
    """A folder for weights of the hub without their numbers (`fetch.hollow`), where only a plan is wanted;
    None: all is fetched.
    """
    foresee: Callable[[], object] | None = None
    """Raises what would be refused anyway; asked before weights of more than a moment are fetched."""
    listener: Listener = field(default_factory=NoListener)
    here: "Mapping[Address, Local]" = field(default_factory=dict[Address, "Local"])
    """What was fetched for an address a moment ago, by whoever packages it now."""
    packages: "Mapping[Address, Name]" = field(default_factory=dict[Address, "Name"])
    """The packages in the store that addresses in registries stand for: they were pulled before."""

    def require(self, what: str) -> None:
        """Raise FetchError where `what` would have to be fetched and must not be."""
        if self.offline:
            refuse_offline(what)


def refuse_offline(what: str) -> NoReturn:
    raise FetchError(
        f"{what} is not on this machine, and --offline forbids fetching it",
        hint="Leave --offline out, or name something that is here: see `modelkit list`.",
    )
