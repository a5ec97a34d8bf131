"""Addresses of a registry's things, strictly read: http or https, a plain host, no user, nothing hidden."""

import re
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Self
from urllib.parse import urljoin, urlsplit

from modelkit.errors import FetchError
from runtime.quoting import quoted
from runtime.records import dataclass

_PLAIN = re.compile(r"[\x21-\x7e]{1,8192}")
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9])?\.?|[0-9a-f:.]{2,45}")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Url:
    """Where to send a request."""

    scheme: str
    """http or https."""
    host: str
    """In lower case; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises FetchError for all but a plain address."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise _refused(text, "it is not an address") from error
        host = (parts.hostname or "").lower()
        if not _PLAIN.fullmatch(text) or not _HOST.fullmatch(host):
            raise _refused(text, "it is not an address")
        if parts.scheme not in _PORTS:
            raise _refused(text, "it is neither http nor https")
        if parts.username is not None or parts.password is not None:
            raise FetchError("an address with a user's name in it is refused")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, target)

    def join(self, location: str) -> "Url":
        """What a Location header means that came from here: absolute, or relative to this."""
        if not _PLAIN.fullmatch(location):
            raise _refused(location, "it is not an address")
        try:
            joined = urljoin(str(self), location)
        except ValueError as error:
            raise _refused(location, "it is not an address") from error
        return Url.parse(joined)

    def at(self, target: str) -> "Url":
        return replace(self, target=target)

    def with_query(self, query: str) -> "Url":
        """With one more part of a query, behind those that are there: they may be signed."""
        return replace(self, target=f"{self.target}{'&' if '?' in self.target else '?'}{query}")

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def netloc(self) -> str:
        """Host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.target}"


def as_address(host: str) -> IPv4Address | IPv6Address | None:
    """The number that a host is; None for a name. An IPv4 address inside an IPv6 one counts as itself."""
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_loopback(host: str) -> bool:
    """This machine itself, by its letters."""
    address = as_address(host)
    return address.is_loopback if address else host == "localhost"


def _refused(text: str, why: str) -> FetchError:
    # What stands before an @ may be a password; a query may be signed.
    safe = re.sub(r"//[^/@]*@", "//...@", text[:200]).partition("?")[0]
    return FetchError(f"the address {quoted(safe)} is refused: {why}")
