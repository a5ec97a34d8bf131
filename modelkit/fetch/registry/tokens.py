"""What a registry wants to see before it answers: a name and password (Basic), or a token (Bearer).

A token is good for some scopes and some seconds; it comes from the realm that the registry's 401 names. The
registry's own name and password go to that realm only where it is the registry's: over https, on the same
host, on one that shares its domain, or on one that is known to belong to it. Any other realm is asked
without them. A realm over plain http is asked only where the registry itself is spoken to like that, and
only on the same host.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from modelkit.errors import FetchError
from modelkit.fetch.registry.challenge import Challenge
from modelkit.fetch.registry.credentials import Credentials
from modelkit.fetch.registry.url import Url, as_address, is_loopback
from modelkit.fetch.registry.wire import AGENT, Answer, Wire

_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_LIMIT_BYTES = 256 << 10
_LEAST_S, _MOST_S = 60, 3600
_MARGIN_S = 10.0
MOST_TOKENS = 3
"""For one call: a token can end, or be taken back, between two requests of several threads."""

# Registries whose tokens come from another domain of the same owner.
_BELONGS = {"nvcr.io": frozenset({"authn.nvidia.com"})}


class Denied(FetchError):
    """The registry does not allow it, at least not to whom it takes us for."""


def log_in(host: str) -> str:
    """What to do about it."""
    name = "docker.io" if host == "registry-1.docker.io" else host
    return f"Log in with `modelkit login {name}`, if you have an account there."


class Authorization:
    """The Authorization headers for one registry. For any thread."""

    def __init__(self, wire: Wire, own: Url, credentials: Callable[[], Credentials | None]) -> None:
        self._wire = wire
        self._own = own
        self._ask = credentials
        self._challenge: Challenge | None = None
        self._tokens: dict[tuple[str, ...], tuple[str, float]] = {}
        self._mutex = threading.Lock()
        self._found: tuple[Credentials | None] | None = None
        self.withheld: str | None = None
        """The host of a realm that was asked without the password, as it is not the registry's."""

    @property
    def was_asked(self) -> bool:
        return self._challenge is not None

    @property
    def credentials(self) -> Credentials | None:
        if self._found is None:
            self._found = (self._ask(),)
        return self._found[0]

    def header(self, scopes: Sequence[str]) -> str | None:
        """What to send for `scopes`, as far as is known yet."""
        with self._mutex:
            if self._challenge is None:
                return None
            if self._challenge.scheme == "basic":
                return self.credentials.basic if self.credentials else None
            token, until = self._tokens.get(tuple(scopes), ("", 0.0))
            if time.monotonic() >= until:
                token, until = self._fetched(self._challenge, scopes)
                self._tokens[tuple(scopes)] = (token, until)
            return f"Bearer {token}"

    def learn(self, challenges: Sequence[Challenge], scopes: Sequence[str], sent: str | None) -> bool:
        """Take note of a 401 for `sent`. Is there something else to send now?"""
        with self._mutex:
            token = self._tokens.get(tuple(scopes), ("", 0.0))[0]
            if sent == f"Bearer {token}":  # else another thread has a new one already
                del self._tokens[tuple(scopes)]
            by_scheme = {one.scheme: one for one in reversed(challenges)}
            self._challenge = by_scheme.get("bearer") or by_scheme.get("basic")
            if self._challenge is None:
                return False
            if sent and scopes and self._challenge.error == "insufficient_scope":
                return False  # a new token for the same would be good for no more
            if self._challenge.scheme == "basic":
                return self.credentials is not None and sent != self.credentials.basic
            return True

    def _fetched(self, challenge: Challenge, scopes: Sequence[str]) -> tuple[str, float]:
        realm = Url.parse(challenge.realm)
        known = self.credentials if self._check(realm) else None
        asked = [("service", challenge.service)] if challenge.service else []
        wanted = list(scopes) or challenge.scope.split()
        if known and known.identity_token:
            form = {
                **dict(asked),
                "grant_type": "refresh_token",
                "client_id": AGENT,
                "scope": " ".join(wanted),
                "refresh_token": known.identity_token,
            }
            body = urlencode(form).encode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._wire.send("POST", realm, headers, lambda: [body], len(body))
        else:
            query = urlencode([*asked, *(("scope", scope) for scope in wanted)], quote_via=quote)
            headers = {"Authorization": known.basic} if known else {}
            answer = self._wire.send("GET", realm.with_query(query) if query else realm, headers)
        with answer:
            return self._read(answer, realm, shown=known is not None)

    def _read(self, answer: Answer, realm: Url, *, shown: bool) -> tuple[str, float]:
        """shown: it was asked with a name and password."""
        if answer.status in (400, 401, 403):
            why = "with this name and password" if shown else "to somebody without a name"
            raise Denied(
                f"{realm.netloc} gives no token for {self._own.netloc} {why} (status {answer.status})",
                hint=log_in(self._own.netloc),
            )
        if answer.status != 200:
            raise FetchError(f"{realm.netloc} gives no token: status {answer.status}")
        raw = answer.read(_LIMIT_BYTES, "the token")
        try:
            value: Any = json.loads(raw)
        except (ValueError, RecursionError):
            value = None  # the text may hold a token, so nothing quotes it
        found = (value.get("token") or value.get("access_token")) if isinstance(value, dict) else None
        if not isinstance(found, str) or not _TOKEN.fullmatch(found):
            raise FetchError(f"{realm.netloc} answers with no token")
        said = value.get("expires_in")
        lasts_s = min(max(said, _LEAST_S), _MOST_S) if type(said) is int else _LEAST_S
        return found, time.monotonic() + lasts_s - _MARGIN_S

    def _check(self, realm: Url) -> bool:
        """May the realm see the password? Raises FetchError where it may not be asked at all."""
        plain_here = self._own.scheme == "http" and _same_machine(realm.host, self._own.host)
        if realm.scheme != "https" and not plain_here:
            raise FetchError(
                f"{self._own.host} has its tokens given by {realm.host} over plain http; that is refused"
            )
        if plain_here or belongs(realm.host, self._own.host):
            return True
        self.withheld = realm.host if self.credentials else None
        return False


def _same_machine(one: str, other: str) -> bool:
    return one == other or (is_loopback(one) and is_loopback(other))


def belongs(realm: str, own: str) -> bool:
    """Is the realm's host the registry's: the same, or of the same domain, or known for it?"""
    if realm == own or realm in _BELONGS.get(own, ()):
        return True
    if as_address(realm) or as_address(own):
        return False
    return _domain(realm) == _domain(own) != ""


def _domain(host: str) -> str:
    """The last two parts of a name; three where the last two are short, as in `example.co.uk`; "" for a name
    that has no owner of its own.
    """
    parts = host.rstrip(".").split(".")
    if len(parts) < 2:
        return ""
    short = len(parts[-1]) == 2 and len(parts[-2]) <= 3
    return ".".join(parts[-3:] if short and len(parts) > 2 else [] if short else parts[-2:])
