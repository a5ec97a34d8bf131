"""Who may ask: pure decisions about the names in Host and Origin, and about the key.

A web page can make a browser send requests to this machine. Its own name stands in Origin, and where a
stranger's name was made to point here (DNS rebinding), that name stands in Host. So both are compared, as
they are written, with what was allowed; nothing is allowed by how it ends.
"""

import hmac
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from runtime.records import dataclass

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::([0-9]{1,5}))?", re.ASCII)
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]{0,30})://(.{1,300})", re.ASCII)
_PORTS = {"http": "80", "https": "443"}


def host_of(written: str) -> str | None:
    """The name in a Host header without its port, in lower case; None for what is not a name."""
    return _name_and_port(written)[0]


def _name_and_port(written: str) -> tuple[str | None, str | None]:
    """In lower case; None for what is not a name, and for a port that is not said."""
    found = _HOST.fullmatch(written.lower())
    if found is None or (found[3] is not None and int(found[3]) > 65535):
        return None, None
    return found[1] or found[2].removesuffix(".") or None, found[3]


def origin_of(written: str) -> str | None:
    """An origin in one spelling: scheme, name, and port unless it is the scheme's own. None for none."""
    found = _ORIGIN.fullmatch(written.lower())
    if found is None:
        return None
    scheme, place = found.groups()
    host, port = _name_and_port(place)
    if host is None:
        return None
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" + ("" if port in (None, _PORTS.get(scheme)) else f":{port}")


def _bare(local: str | None) -> str | None:
    """An address of this end as a client writes it: a socket for both families says `::ffff:192.168.1.7` for
    IPv4, and a link's own address has the link's name behind it.
    """
    plain = None if local is None else local.partition("%")[0]
    return plain.removeprefix("::ffff:") if plain and "." in plain else plain


@dataclass(frozen=True, slots=True)
class Access:
    """What the server was told to allow."""

    keys: tuple[str, ...] = ()
    """Any of them opens; () for no key at all."""
    hosts: frozenset[str] = frozenset()
    """Names, beside those of this machine itself, that clients may use for the server; "*" for any."""
    origins: frozenset[str] = frozenset()
    """Sites whose pages may ask, as `origin_of` spells them; "*" for any page, one without an address too."""

    read_only: bool = False
    """No client may change the store: pull, push, create, copy, delete."""

    def host_allowed(self, written: Iterable[str], local: str | None = None) -> bool:
        """Are these Host headers fine? One, with a name that was allowed; or none, as HTTP/1.0 has it and no
        browser does: health checks of proxies. local: the address of this end of the connection, which no
        stranger's name can be.
        """
        given = list(written)
        if len(given) != 1:
            return not given
        host = host_of(given[0])
        return host is not None and (
            host in LOOPBACK or host == _bare(local) or not self.hosts.isdisjoint({host, "*"})
        )

    def origin_allowed(self, written: Iterable[str], own: str | None) -> bool:
        """May pages of these Origin headers ask? own: the origin that the server itself has for this client,
        as `origin_of` spells it.
        """
        given = list(written)
        if len(given) != 1:
            return not given
        origin = origin_of(given[0])
        return "*" in self.origins or (origin is not None and (origin == own or origin in self.origins))

    def key_fits(self, given: str | None) -> bool:
        """Compared in a time that says nothing about the key."""
        if not self.keys:
            return True
        said = (given or "").encode("latin-1", "backslashreplace")  # the header's own bytes
        fits = [hmac.compare_digest(said, spelt) for key in self.keys for spelt in _spelt(key)]
        return any(fits)


def _spelt(key: str) -> Iterator[bytes]:
    """As clients send it: in UTF-8, or in Latin-1 as some do with all headers."""
    yield key.encode()
    with suppress(UnicodeEncodeError):
        yield key.encode("latin-1")
