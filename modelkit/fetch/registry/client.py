"""The calls of the OCI distribution specification (1.1), as methods of one registry.

A call carries what the registry wants to see, asks for it anew once when the answer is 401, follows at most
five redirects, without Authorization where they leave the registry, and is repeated after a failure of the
connection or an answer like 503. Whatever else comes is a FetchError in words.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from modelkit.durations import read_retry_after
from modelkit.errors import FetchError
from modelkit.fetch.registry.challenge import read_challenges
from modelkit.fetch.registry.credentials import Credentials
from modelkit.fetch.registry.tokens import MOST_TOKENS, Authorization, Denied, log_in
from modelkit.fetch.registry.url import Url, is_loopback
from modelkit.fetch.registry.wire import Answer, Body, Interrupted, Limits, Silent, Wire
from runtime.quoting import sentence
from runtime.records import dataclass

REDIRECTS = 5
ERROR_LIMIT_BYTES = 2 << 10
_REDIRECT = (301, 302, 303, 307, 308)
_SAME_METHOD = (307, 308)
LATER = (429, 500, 502, 503, 504)
"""Statuses that say nothing about the request: it may be sent again."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to send, as often as it takes."""

    method: str
    url: Url
    scopes: tuple[str, ...] = ()
    """What it must be allowed to do: `repository:NAME:pull`."""
    headers: tuple[tuple[str, str], ...] = ()
    body: Body | None = None
    size_bytes: int = 0
    """Of the body."""
    expected: tuple[int, ...] = (200,)
    """Statuses that are no error."""
    repeat: bool = True
    """May it be sent again after a failure? Not where it counts how often it came."""
    what: str = ""
    """What it is about, for messages."""
    moves_bytes: int = 0
    """What the registry may have to move, or hash, before it answers."""


class Registry:
    """One registry. For any thread; a context manager."""

    def __init__(
        self,
        host: str,
        *,
        insecure: bool = False,
        credentials: Callable[[], Credentials | None] = lambda: None,
        limits: Limits | None = None,
    ) -> None:
        """host: with a port, if need be. insecure: plain http is allowed. credentials: asked when needed."""
        self.host = host
        self.limits = limits or Limits()
        secure = Url.parse(f"https://{host}/")
        plain = Url.parse(f"http://{host}/")
        if is_loopback(secure.host):
            self._ways = [plain, secure]
        else:
            self._ways = [secure, plain] if insecure else [secure]
        self._wire = Wire(secure.host, self.limits)
        self._credentials = credentials
        self._begin(self._ways[0])

    def _begin(self, url: Url) -> None:
        self.url = url
        self._authorization = Authorization(self._wire, url, self._credentials)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wire.close()

    @property
    def withheld(self) -> str | None:
        """The host that wanted the password and was not given it."""
        return self._authorization.withheld

    @property
    def was_asked(self) -> bool:
        """Has the registry wanted to know who we are?"""
        return self._authorization.was_asked

    def abort(self, *, for_good: bool = True) -> None:
        """End what other threads are busy with; `for_good`: and let them begin nothing new."""
        self._wire.abort(for_good=for_good)

    def ping(self) -> bool:
        """Can it be reached? Raises FetchError where it cannot. Returns whether it lets us in by now.

        Where plain http is allowed, both ways are tried: https first, but on this machine last.
        """
        failed: dict[str, FetchError] = {}
        for url in self._ways:
            self._begin(url)
            try:
                return self._ping()
            except FetchError as error:
                failed[url.scheme] = error
                if isinstance(error, Silent) and url.scheme == "http":
                    break  # one that wants TLS says so, or hangs up
        raise _telling(failed)

    def _ping(self) -> bool:
        # 404: some registries answer for their repositories only.
        expected = (200, 401, 403, 404, *LATER)
        with self._authorized(Request("GET", self.url.at("/v2/"), expected=expected)) as answer:
            if answer.status not in expected:
                raise FetchError(
                    f"{self.host} is not a registry: it answers /v2/ with status {answer.status}",
                    hint="An address is oci://HOST/REPOSITORY:TAG.",
                )
            return answer.status == 200

    def at(self, repository: str, rest: str) -> Url:
        """The address of something in a repository."""
        return self.url.at(f"/v2/{repository}/{rest}")

    def call(self, request: Request) -> Answer:
        """The answer, whose status is one of those expected. To be used as a context manager."""
        attempt = 0
        while True:
            last = not request.repeat or attempt == self.limits.attempts - 1
            try:
                answer = self._authorized(request)
            except Interrupted:
                if last:
                    raise
                self.pause(attempt)
            else:
                if answer.status in request.expected:
                    return answer
                if answer.status not in LATER or last:
                    with answer:
                        raise self.refusal(answer, request.what or request.method)
                answer.drop()
                self.pause(attempt, answer)
            attempt += 1

    def pause(self, attempt: int, answer: Answer | None = None) -> None:
        """Wait before the next attempt: longer each time, or as long as the answer says."""
        wait_s = self.limits.pause_s * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311 - spreads the load
        said = read_retry_after(answer.header("retry-after")) if answer else None
        wait_s = max(wait_s, said or 0.0)
        self._wire.ended.wait(min(wait_s, self.limits.longest_pause_s))

    def _authorized(self, request: Request) -> Answer:
        """One attempt: with what the registry wants to see, and through redirects."""
        url, asked, hops = request.url, 0, 0
        while True:
            headers = dict(request.headers)
            own = url.origin == self.url.origin
            said = self._authorization.header(request.scopes) if own else None
            if said:
                headers["Authorization"] = said
            body, size_bytes, moves_bytes = request.body, request.size_bytes, request.moves_bytes
            answer = self._wire.send(request.method, url, headers, body, size_bytes, moves_bytes=moves_bytes)
            if answer.status == 401 and own and asked < MOST_TOKENS:
                asked, offered = asked + 1, read_challenges(answer.headers("www-authenticate"))
                if self._authorization.learn(offered, request.scopes, said):
                    answer.drop()
                    continue
            if not self._is_redirect(request, answer):
                return answer
            answer.drop()
            hops += 1
            url = self._next(url, answer.header("location"), hops)

    def _is_redirect(self, request: Request, answer: Answer) -> bool:
        kept = request.method in ("GET", "HEAD") or answer.status in _SAME_METHOD
        return answer.status in _REDIRECT and kept and answer.status not in request.expected

    def _next(self, url: Url, location: str | None, hops: int) -> Url:
        if hops > REDIRECTS:
            raise FetchError(f"{self.host} redirects more than {REDIRECTS} times")
        if location is None:
            raise FetchError(f"{self.host} redirects, but does not say where to")
        return self.allowed(url.join(location))

    def allowed(self, url: Url) -> Url:
        """`url`, where the registry may send us there. Raises FetchError for plain http elsewhere."""
        if url.scheme == "http" and self.url.scheme == "https":
            raise FetchError(f"{self.host} sends us to {url.host} over plain http; that is refused")
        return url

    def refusal(self, answer: Answer, what: str) -> FetchError:
        """The error that an answer stands for."""
        said = _error_text(answer.beginning(ERROR_LIMIT_BYTES))
        reason = f": {said}" if said else ""
        if answer.status in (401, 403):
            hint = log_in(self.host)
            if self._authorization.withheld:
                hint = (
                    f"It wants tokens of {self._authorization.withheld}, which is not its own host, so your"
                    " password was not sent there."
                )
            return Denied(f"{self.host} does not allow this ({what}){reason}", hint=hint)
        if answer.status == 404:
            return NotThere(f"{self.host} does not have {what}{reason}")
        if answer.status == 429:
            return FetchError(
                f"{self.host} has had too many requests ({what}){reason}", hint="Try again later."
            )
        return FetchError(f"{self.host} answers with status {answer.status} ({what}){reason}")


class NotThere(FetchError):
    """The registry does not have it."""


def _error_text(raw: bytes) -> str:
    """What the body of an error says, on one line without control characters."""
    try:
        value: Any = json.loads(raw)
        errors = value["errors"]
        text = "; ".join(f"{one.get('message') or one.get('code') or ''}" for one in errors[:3])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        text = raw.decode("utf-8", "replace")
        text = "" if "<" in text[:100] else text  # a page for browsers says nothing here
    return sentence(text)


def pull_scope(repository: str) -> str:
    return f"repository:{repository}:pull"


def push_scopes(repository: str, sources: Sequence[str] = ()) -> tuple[str, ...]:
    """To write into `repository`, and to read in others."""
    return (f"repository:{repository}:pull,push", *(pull_scope(one) for one in sources if one != repository))


def _telling(failed: Mapping[str, FetchError]) -> FetchError:
    """Of the failures by scheme the one that tells most: what the registry has said, else all of them."""
    for error in failed.values():
        if not isinstance(error, Interrupted):
            return error
    if len({error.message for error in failed.values()}) == 1:
        return next(iter(failed.values()))
    return Interrupted("; ".join(f"by {scheme}: {error.message}" for scheme, error in failed.items()))
