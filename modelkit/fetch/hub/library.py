"""Questions to the hub, asked through huggingface_hub: the only file that imports it.

It knows the token (HF_TOKEN, `hf auth login`), proxies and the server's errors. What it raises leaves here as
a FetchError that says what to do; `Unreachable` where the network or the server is to blame, so that what is
cached may do instead. The token goes to the endpoint and nowhere else, and no text from here has it.
"""

import logging
import re
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlsplit

from modelkit.address import HubAddress
from modelkit.durations import read_retry_after
from modelkit.errors import FetchError
from modelkit.fetch.hub.listing import MAX_BYTES, Listing, parse, too_long
from modelkit.fetch.trust import unvouched
from modelkit.fetch.upstream import bare_endpoint
from modelkit.python_faults import of_system
from modelkit.settings.places import trusting
from runtime.quoting import sentence, shown

if TYPE_CHECKING:
    import httpx2

CONNECT_S = 10.0
READ_S = 20.0  # of silence; what came is kept, and asked for again
ANSWER_S = 60.0  # however steadily it comes: for a head, for an answer that is not a file, for a file's next
PACE_BYTES = 16 << 10  # an attempt that brings fewer has failed; eight share a line of 64 kbit/s
_ERROR_BYTES = 4 << 10
_OF_THE_BODY = ("content-length", "content-encoding", "transfer-encoding")
_LIMITED = re.compile(r"(?:^|;) *r=0 *;(?:.*;)? *t=(\d{1,6}) *(?:;|$)", re.ASCII)
_WEB = "https://huggingface.co"


class Unreachable(FetchError):
    """The server cannot be reached or cannot answer; what is cached is as good as before. wait_s: how long it
    wants not to be asked.
    """

    def __init__(self, message: str, *, hint: str | None = None, wait_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.wait_s = wait_s


def ask_listing(address: HubAddress, endpoint: str) -> Listing:
    """What the repository has at the revision that is asked for. Raises FetchError, Unreachable."""
    require_secure(endpoint)
    url = f"{endpoint}/api/models/{address.repository}"
    if address.revision is not None:
        url += f"/revision/{quote(address.revision, safe='')}"
    with (
        asking(address, endpoint),
        answering(url, headers_for(endpoint), CONNECT_S, params={"blobs": True}) as response,
    ):
        raise_for_status(response)
        answer = _bounded(response)
    return parse(answer)


@contextmanager
def answering(url: str, headers: dict[str, str], timeout: Any, **how: Any) -> "Generator[httpx2.Response]":
    """The answer as soon as its head is there. A library that reads a head has no limit but for silence, so
    another thread waits for it, and is left to itself where that takes too long.
    """
    client, found = session(), Future["httpx2.Response"]()
    follow = how.pop("follow_redirects", True)
    request = client.build_request("GET", url, headers=headers, timeout=timeout, **how)

    def wait() -> None:
        try:
            found.set_result(client.send(request, stream=True, follow_redirects=follow))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            found.set_exception(error)

    Thread(target=wait, name="answer", daemon=True).start()
    try:
        response = found.result(ANSWER_S)
    except BaseException as error:
        found.add_done_callback(lambda late: late.exception() or late.result().close())
        if isinstance(error, TimeoutError):
            raise _too_late() from error
        raise
    try:
        yield response
    finally:
        response.close()


def _bounded(response: "httpx2.Response") -> bytes:
    """An answer, unpacked piece by piece. FetchError for one without end, Unreachable for a slow one."""
    answer = bytearray()
    for piece in _in_time(response.iter_bytes()):
        answer += piece
        if len(answer) > MAX_BYTES:
            raise too_long()
    return bytes(answer)


def _in_time(pieces: Iterator[bytes]) -> Iterator[bytes]:
    until_s = monotonic() + ANSWER_S
    for piece in pieces:
        yield piece
        if monotonic() > until_s:
            raise _too_late()


def _too_late() -> Unreachable:
    return Unreachable(f"the server's answer has not come within {ANSWER_S:g} s")


def in_pace(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The pieces of a file, for as long as they bring PACE_BYTES every ANSWER_S. Raises Unreachable."""
    until_s, came_bytes = monotonic() + ANSWER_S, 0
    for piece in pieces:
        yield piece
        came_bytes += len(piece)
        now_s = monotonic()
        if came_bytes >= PACE_BYTES:
            until_s, came_bytes = now_s + ANSWER_S, 0
        elif now_s > until_s:
            raise Unreachable(f"{name}: the server sent only {came_bytes:,} bytes within {ANSWER_S:g} s")


def raise_for_status(response: "httpx2.Response") -> None:
    """Raise huggingface_hub's error for an answer that is one; of its text, which may have no end, as much as
    is shown is read.
    """
    from huggingface_hub.utils import hf_raise_for_status

    hf_raise_for_status(_beginning(response) if response.status_code >= 400 else response)


def _beginning(response: "httpx2.Response") -> "httpx2.Response":
    """An error's answer with as much of its text as is shown: it may have no end."""
    import httpx2

    text = bytearray()
    for piece in _in_time(response.iter_raw()):
        text += piece
        if len(text) >= _ERROR_BYTES:
            break
    kept = [(k, v) for k, v in response.headers.items() if k not in _OF_THE_BODY]
    return httpx2.Response(
        response.status_code, headers=kept, content=bytes(text[:_ERROR_BYTES]), request=response.request
    )


def url_of(address: HubAddress, commit: str, name: str, endpoint: str) -> str:
    """Where a file of a repository is."""
    return f"{endpoint}/{address.repository}/resolve/{commit}/{quote(name)}"


def headers_for(endpoint: str) -> dict[str, str]:
    """What the hub wants to be told; the token is in it, where there is one."""
    from huggingface_hub.utils import build_hf_headers

    return build_hf_headers(token=None if may_have_token(endpoint) else False, library_name="modelkit")


def session() -> "httpx2.Client":
    """Raises FetchError for a proxy that cannot be used, without its address: a password may be in it."""
    import httpx2
    from huggingface_hub import get_session

    try:
        with trusting():
            return get_session()
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise FetchError(
            "the proxy that the environment names cannot be used: it is not an http:// or https:// address",
            hint="Set HTTPS_PROXY to one (ALL_PROXY is read too), or name the host in NO_PROXY.",
        ) from error


def may_have_token(endpoint: str) -> bool:
    """Whether a token may be sent there: only where nobody between can read it."""
    return urlsplit(endpoint).scheme == "https" or is_loopback(endpoint)


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def require_secure(endpoint: str) -> None:
    """Raise FetchError for a HF_ENDPOINT that is not an address of a server."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchError(
            f"HF_ENDPOINT is `{shown(bare_endpoint(endpoint))}`, which is not the address of a server",
            hint="Unset it, or set it to a mirror: https://hub.example.org",
        )


@contextmanager
def asking(address: HubAddress, endpoint: str, file: str | None = None) -> Generator[None]:
    """Whatever goes wrong in a question to the server, as a FetchError. file: which one it is about."""
    import httpx2
    from huggingface_hub import errors as hub

    try:
        with quiet():
            yield
    except hub.OfflineModeIsEnabled as error:
        raise Unreachable(f"{address} cannot be fetched: HF_HUB_OFFLINE is set") from error
    except hub.HfHubHTTPError as error:
        _explain(error, address, endpoint, file)
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, UnicodeError) as error:
        why = shown(of_system(error)) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in why:
            raise unvouched(urlsplit(endpoint).hostname or endpoint, why) from error
        raise Unreachable(
            f"{server(endpoint)} cannot be reached: {why}",
            hint="Is there a network, and does it need a proxy?",
        ) from error
    except (
        httpx2.TransportError,
        httpx2.DecodingError,
        httpx2.TooManyRedirects,
        httpx2.StreamError,
    ) as error:
        why = shown(of_system(error)) or type(error).__name__
        raise Unreachable(f"{server(endpoint)} does not answer as it should: {why}") from error
    except (httpx2.InvalidURL, hub.HFValidationError) as error:
        raise FetchError(f"{address} is not a model of a hub: {sentence(str(error))}") from error


def _explain(error: Any, address: HubAddress, endpoint: str, file: str | None) -> NoReturn:
    """An answer that is none, in our words."""
    from huggingface_hub import errors as hub
    from huggingface_hub import get_token

    status, where = error.response.status_code, f"{_WEB}/{address.repository}"
    known = may_have_token(endpoint) and get_token() is not None
    token = "of the token that is used here" if known else "whose token `hf auth login` or HF_TOKEN gives"
    if isinstance(error, hub.GatedRepoError):
        raise FetchError(
            f"{address} is only for accounts that have accepted its terms",
            hint=f"Accept them at {where} with the account {token}.",
        ) from error
    if isinstance(error, hub.RevisionNotFoundError):
        raise FetchError(
            f"{address}: {address.repository} has no revision {address.revision}",
            hint=f"Branches and commits are at {where}/commits/main",
        ) from error
    if isinstance(error, hub.RepositoryNotFoundError):
        raise FetchError(
            f"{address}: there is no such model on {server(endpoint)}, or it is private",
            hint=f"Is the name right? A private one needs the account {token}.",
        ) from error
    if status >= 500 or status in (408, 429):
        wait_s = _wait_s(error.response.headers)
        when = f"in {wait_s:.0f} s" if wait_s else "later"
        asked = f"asks to come back {when}" if status == 429 else f"answers with error {status}"
        about = f" for {file}" if file else ""
        raise Unreachable(f"{server(endpoint)} {asked}{about}", wait_s=wait_s) from error
    said = shown(error.server_message or "") if error.server_message else f"status {status}"
    if status == 404:  # of a server that has no word of the hub's for what it lacks
        raise FetchError(f"{address}: {server(endpoint)} does not have {file or 'it'} ({said})") from error
    about = f" {file}" if file else ""
    raise FetchError(f"{address}: {server(endpoint)} refuses{about} ({said})") from error


def _wait_s(headers: Any) -> float:
    """How long an answer says to wait: Retry-After, or the hub's own RateLimit (`"resolvers";r=0;t=55`)."""
    said = read_retry_after(headers.get("retry-after"))
    limited = _LIMITED.search(headers.get("ratelimit") or "")
    return said if said is not None else float(limited[1]) if limited else 0.0


def server(endpoint: str) -> str:
    """How messages call it."""
    return urlsplit(endpoint).hostname or "the hub"


@contextmanager
def quiet() -> Generator[None]:
    """Without huggingface_hub's own lines on standard error: ours say the same, once."""
    log = logging.getLogger("huggingface_hub")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
