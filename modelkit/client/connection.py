"""The way to a running server: where it is, what it is asked, and its errors as ours.

It is where MODELKIT_HOST says, else where the file says that a server writes when it starts.
"""

import json
import math
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit.durations import read_retry_after
from modelkit.errors import (
    Busy,
    DiskDenied,
    DiskFull,
    ModelClosed,
    ModelkitError,
    ModelNotFound,
    PromptTooLong,
    RequestError,
)
from modelkit.settings import Settings
from modelkit.settings.places import trusting
from modelkit.settings.serving import server_key, server_named
from runtime.quoting import quoted

if TYPE_CHECKING:
    import ssl

    import httpx2

CONNECT_S = 2.0
SILENCE_S = 120.0  # a server with an answer under way gives a sign of life every few seconds
_MOST_BYTES = 64 << 20
_MISNAMED = (62, 64)  # OpenSSL's numbers for another host name and another IP address
_TRUSTED = "SSL_CERT_FILE names a file with the certificates to trust."
_OTHER_NAME = "MODELKIT_HOST=https://HOST:PORT asks it by the name that is in the certificate."
_SECURED = "One that has a certificate is asked at MODELKIT_HOST=https://HOST:PORT."
_ADDRESS = re.compile(r"(https?)://[^/\s@?#]{1,300}|unix:(/.{1,200})")


class Unreachable(ModelkitError):
    """No server answers there."""


class Connection:
    """Close it, or use it as a context manager. Raises Unreachable where nobody answers, and what the server
    says in our own errors.
    """

    def __init__(self, address: str, key: str | None = None) -> None:
        import httpx2

        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise ModelkitError(f"{quoted(address)} is not an address of a server")
        self.address = address
        uds = found[2]
        authorization = {b"authorization": f"Bearer {key}".encode()} if key else {}
        try:
            base = httpx2.URL("http://localhost" if uds else address)
        except httpx2.InvalidURL as error:
            raise ModelkitError(f"{quoted(address)} is not an address of a server") from error
        with trusting():
            verify = httpx2.create_ssl_context() if found[1] == "https" else True  # SSL_CERT_FILE counts
        self._client = httpx2.Client(
            base_url=base,
            transport=httpx2.HTTPTransport(uds=uds) if uds else None,
            verify=verify,
            headers={b"x-modelkit-priority": b"interactive", **authorization},
            timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
            trust_env=False,
            follow_redirects=False,
        )

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, *, wait_s: float | None = SILENCE_S, **query: str) -> dict[str, Any]:
        """What the server says to that. wait_s: how long it may say nothing; None: for ever."""
        with self._asked("GET", path, wait_s, params=query) as response:
            return _object(_read(response))

    def post(self, path: str, body: Mapping[str, Any], *, wait_s: float | None = SILENCE_S) -> dict[str, Any]:
        """As `get`."""
        with self._asked("POST", path, wait_s, json=body) as response:
            return _object(_read(response))

    @contextmanager
    def lines(self, path: str, body: Mapping[str, Any]) -> "Generator[Generator[dict[str, Any]]]":
        """The JSON objects of an answer, one a line, as they come. Leaving the block leaves the server."""
        with self._asked("POST", path, SILENCE_S, json=body) as response:
            yield self._each(response)

    def _each(self, response: "httpx2.Response") -> Generator[dict[str, Any]]:
        held: list[bytes] = []
        with self._worded():
            for data in response.iter_bytes():
                *whole, last = data.split(b"\n")
                for line in whole:
                    text, held = b"".join([*held, line]), []
                    if text.strip():
                        yield _object(text)
                held.append(last)
                if sum(map(len, held)) > _MOST_BYTES:
                    raise ModelkitError("the server sends a line without an end")
        if b"".join(held).strip():
            raise ModelkitError("the server ended the connection in the middle of a line")

    @contextmanager
    def _asked(
        self, method: str, path: str, wait_s: float | None, **content: Any
    ) -> "Generator[httpx2.Response]":
        import httpx2

        timeout = httpx2.Timeout(wait_s, connect=CONNECT_S)
        with self._worded(), self._client.stream(method, path, timeout=timeout, **content) as response:
            if response.status_code != 200:
                raise error_of(_body_of(response), response.status_code, response.headers.get("retry-after"))
            yield response

    @contextmanager
    def _worded(self) -> Generator[None]:
        import httpx2

        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if (wrong := _mistrust(error)) is not None:
                why = wrong.verify_message
                raise Unreachable(
                    f"the certificate of {self.address} is not trusted: {why}",
                    hint=_OTHER_NAME if wrong.verify_code in _MISNAMED else _TRUSTED,
                ) from error
            raise Unreachable(
                f"no server answers at {self.address}", hint="`modelkit serve` starts one."
            ) from error
        except httpx2.TransportError as error:
            unheard = self.address.startswith("http:") and "without sending a response" in str(error)
            raise ModelkitError(
                f"the server at {self.address} has stopped answering: {error}",
                hint=_SECURED if unheard else None,
            ) from error


def find_server(settings: Settings) -> str | None:
    """The address of the server that there should be; None where nothing says that there is one."""
    return server_named() or announced(settings.home)


def announced(home: Path) -> str | None:
    """What a server that runs has written; None for none."""
    try:
        said = json.loads((home / "run" / "serve.json").read_bytes()[:4096])
    except (OSError, ValueError, RecursionError):
        return None
    address = said.get("url") if isinstance(said, dict) else None
    return address if isinstance(address, str) and _ADDRESS.fullmatch(address) else None


def connect(settings: Settings) -> Connection:
    """To the server that runs. Raises Unreachable where none does."""
    address = find_server(settings)
    if address is None:
        raise Unreachable(
            "no server runs here",
            hint="`modelkit serve` starts one; MODELKIT_HOST says where another one is.",
        )
    return Connection(address, server_key())


def error_of(said: Mapping[str, Any], status: int = 0, retry_after: str | None = None) -> ModelkitError:
    """What the server reports, as an error of ours. said: `error` and `kind`."""
    text = said.get("error")
    message, _, hint = (
        text if isinstance(text, str) and text else f"the server failed ({status})"
    ).partition("\n")
    hint = hint if text else "Is that a modelkit server? MODELKIT_HOST says which one is asked."
    kind = said.get("kind")
    if kind == "authentication":
        return ModelkitError(message, hint="MODELKIT_API_KEY has the key for the server.")
    if kind == "busy":
        after_s = read_retry_after(retry_after)
        whole_s = 1 if after_s is None else math.ceil(min(after_s, 3600))
        return Busy(message, waiting=0, retry_after_s=whole_s, hint=hint or None)
    if kind == "too_long":
        return PromptTooLong(message, prompt_tokens=0, context_tokens=0, hint=hint or None)
    kinds = {
        "model_not_found": ModelNotFound,
        "draining": ModelClosed,
        "gone": ModelClosed,
        "disk_full": DiskFull,
        "disk_denied": DiskDenied,
    }
    usual = RequestError if 400 <= status < 500 or kind == "invalid_request" else ModelkitError
    return kinds.get(str(kind), usual)(message, hint=hint or None)


def _mistrust(error: BaseException) -> "ssl.SSLCertVerificationError | None":
    """What is wrong with the server's certificate, if it is that."""
    import ssl

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _body_of(response: "httpx2.Response") -> dict[str, Any]:
    try:
        return _object(_read(response))
    except ModelkitError:
        return {}


def _read(response: "httpx2.Response") -> bytes:
    data = bytearray()
    for part in response.iter_bytes():
        data += part
        if len(data) > _MOST_BYTES:
            raise ModelkitError(f"the server sends more than {_MOST_BYTES:,} bytes")
    return bytes(data)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelkitError("the server's answer is not JSON; is it a modelkit server?") from error
    if not isinstance(value, dict):
        raise ModelkitError("the server's answer is not a JSON object; is it a modelkit server?")
    return value
