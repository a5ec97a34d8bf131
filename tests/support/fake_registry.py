"""A registry on loopback that keeps the distribution specification, until a test says otherwise.

    with FakeRegistry() as registry:
        registry.put_package("amy/story", "latest", files)
        registry.rules.append(rule)     # rule(request) -> True where it has answered itself

Blobs, manifests and uploads are plain dictionaries. Every request is in `log`.
"""

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.on_thread import OnThread

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class Call:
    """One request, as a rule sees it."""

    handler: "Handler"
    method: str
    path: str
    query: dict[str, list[str]]
    body: bytes | None = None
    """Read when it is asked for."""

    def header(self, name: str) -> str | None:
        return self.handler.headers.get(name)

    def read(self) -> bytes:
        if self.body is None:
            self.body = self.handler.rfile.read(int(self.header("content-length") or 0))
        return self.body

    def answer(self, status: int, body: bytes = b"", *, length: int | None = None, **headers: str) -> bool:
        """Send an answer; header names with `_` for `-`."""
        if self.body is None and self.header("content-length") not in (None, "0"):
            self.handler.close_connection = True  # what was not read would be taken for the next request
        self.handler.send_response_only(status)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        if length is None or length >= 0:
            self.handler.send_header("Content-Length", str(len(body) if length is None else length))
        self.handler.end_headers()
        if self.method != "HEAD":
            self.handler.wfile.write(body)
        return True


Rule = Callable[[Call], bool | None]


@dataclass
class Auth:
    """Who may come in."""

    kind: str
    """basic or bearer."""
    user: str = "amy"
    password: str = "s3cret"
    realm: str | None = None
    """None: this registry's own /token."""
    uses: int | None = None
    """How many requests a token is good for; None: all."""
    tokens: dict[str, int] = field(default_factory=dict)
    scopes: list[list[str]] = field(default_factory=list)
    """Those of each token asked for."""
    anonymous: bool = False
    """Are there tokens for everybody?"""
    error: str = ""
    """What is said to be wrong with a token that is refused."""


class FakeRegistry(OnThread):
    """A server in a thread; a context manager."""

    def __init__(self, auth: Auth | None = None) -> None:
        self.auth = auth
        self.blobs: dict[str, bytes] = {}
        self.places: set[tuple[str, str]] = set()
        """Which repository has which blob."""
        self.manifests: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.uploads: dict[str, bytearray] = {}
        self.rules: list[Rule] = []
        self.log: list[tuple[str, str, dict[str, str]]] = []
        self.relative = False
        """Are Locations relative?"""
        self.least_chunk: int | None = None
        self.referrers: dict[str, list[dict[str, Any]]] | None = None
        """None: the question is not known here."""
        self.busy: list[str] = []
        """Requests that are being answered."""
        self.page = 1000
        """Tags of one page."""
        server = Server(("127.0.0.1", 0), Handler)
        server.registry = self
        super().__init__(server)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def settle(self) -> None:
        """Wait until what a dead client had sent has come."""
        while self.busy:
            time.sleep(0.01)

    # Filling it

    def put_blob(self, repository: str, data: bytes) -> dict[str, Any]:
        self.blobs[digest_of(data)] = data
        self.places.add((repository, digest_of(data)))
        return {"digest": digest_of(data), "size": len(data)}

    def put_manifest(
        self, repository: str, tag: str, value: dict[str, Any], media_type: str = MANIFEST_TYPE
    ) -> str:
        raw = json.dumps(value).encode()
        self.manifests[repository, tag] = self.manifests[repository, digest_of(raw)] = (raw, media_type)
        return digest_of(raw)

    def count(self, method: str, part: str) -> int:
        """How many requests of a method had `part` in their path."""
        return sum(1 for one, path, _ in self.log if one == method and part in path)


def whole_fetches(registry: FakeRegistry, blob: bytes) -> int:
    """How often all of a blob was asked for."""
    return sum(
        method == "GET" and digest_of(blob) in path and "Range" not in said
        for method, path, said in registry.log
    )


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    registry: FakeRegistry

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, *_: Any) -> None: ...

    def handle_any(self) -> None:
        registry = self.server.registry
        parts = urlsplit(self.path)
        registry.log.append((self.command, self.path, dict(self.headers.items())))
        registry.busy.append(self.path)
        try:
            self.act(registry, Call(self, self.command, parts.path, parse_qs(parts.query)))
        finally:
            registry.busy.remove(self.path)

    @staticmethod
    def act(registry: FakeRegistry, call: Call) -> None:
        if call.path == "/token":
            give_token(registry, call)
        elif not is_let_in(registry, call):
            refuse(registry, call)
        elif not any(rule(call) for rule in registry.rules):
            route(registry, call)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any


def is_let_in(registry: FakeRegistry, call: Call) -> bool:
    auth = registry.auth
    given = call.header("authorization") or ""
    if auth is None:
        return True
    if auth.kind == "basic":
        return given == "Basic " + base64.b64encode(f"{auth.user}:{auth.password}".encode()).decode()
    token = given.removeprefix("Bearer ")
    if token not in auth.tokens:
        return False
    auth.tokens[token] -= 1
    return auth.tokens[token] >= 0


def refuse(registry: FakeRegistry, call: Call) -> None:
    assert registry.auth is not None
    if registry.auth.kind == "basic":
        call.answer(401, b'{"errors":[{"message":"who are you"}]}', WWW_Authenticate='Basic realm="here"')
        return
    realm = registry.auth.realm or f"http://{registry.host}/token"
    wrong = f',error="{registry.auth.error}"' if call.header("authorization") and registry.auth.error else ""
    offer = f'Bearer realm="{realm}",service="fake",scope="repository:x:pull"{wrong}'
    call.answer(401, WWW_Authenticate=offer)


def give_token(registry: FakeRegistry, call: Call) -> None:
    auth = registry.auth
    assert auth is not None
    given = call.header("authorization") or ""
    right = "Basic " + base64.b64encode(f"{auth.user}:{auth.password}".encode()).decode()
    form = parse_qs(call.read().decode())
    refreshed = form.get("refresh_token") == [auth.password]
    if given != right and not auth.anonymous and not refreshed:
        call.answer(401, b"{}")
        return
    auth.scopes.append((form.get("scope") or [" ".join(call.query.get("scope", []))])[0].split())
    token = secrets.token_hex(8)
    auth.tokens[token] = 10**9 if auth.uses is None else auth.uses
    call.answer(200, json.dumps({"token": token, "expires_in": 300}).encode())


def route(registry: FakeRegistry, call: Call) -> None:
    if call.path == "/v2/":
        call.answer(200, b"{}")
        return
    for pattern, act in ROUTES:
        if found := re.fullmatch(pattern, call.path):
            act(registry, call, *found.groups())
            return
    call.answer(404)


def on_blob(registry: FakeRegistry, call: Call, repository: str, digest: str) -> None:
    if (repository, digest) not in registry.places:
        call.answer(404, b'{"errors":[{"code":"BLOB_UNKNOWN","message":"blob unknown"}]}')
        return
    data = registry.blobs[digest]
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", call.header("range") or "")
    if asked:
        start, stop = int(asked[1]), min(int(asked[2] or len(data) - 1) + 1, len(data))
        if start >= len(data):
            call.answer(416)
            return
        call.answer(206, data[start:stop], Content_Range=f"bytes {start}-{stop - 1}/{len(data)}")
        return
    call.answer(200, data, Docker_Content_Digest=digest)


def on_manifest(registry: FakeRegistry, call: Call, repository: str, reference: str) -> None:
    if call.method == "PUT":
        put_manifest(registry, call, repository, reference)
        return
    found = registry.manifests.get((repository, reference))
    if found is None:
        call.answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}')
        return
    raw, media_type = found
    call.answer(200, raw, Content_Type=media_type, Docker_Content_Digest=digest_of(raw))


def put_manifest(registry: FakeRegistry, call: Call, repository: str, reference: str) -> None:
    raw = call.read()
    value = json.loads(raw)
    named = [value["config"]["digest"], *(one["digest"] for one in value["layers"])]
    if any((repository, digest) not in registry.places for digest in named):
        call.answer(400, b'{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown"}]}')
        return
    entry = (raw, call.header("content-type") or "")
    registry.manifests[repository, reference] = registry.manifests[repository, digest_of(raw)] = entry
    call.answer(201, Docker_Content_Digest=digest_of(raw))


def on_begin(registry: FakeRegistry, call: Call, repository: str) -> None:
    mounted = call.query.get("mount", [""])[0]
    if (call.query.get("from", [""])[0], mounted) in registry.places:
        registry.places.add((repository, mounted))
        call.answer(201, Docker_Content_Digest=mounted)
        return
    name = secrets.token_hex(8)
    registry.uploads[name] = bytearray()
    more = {} if registry.least_chunk is None else {"OCI_Chunk_Min_Length": str(registry.least_chunk)}
    call.answer(202, Location=location(registry, repository, name), Range="0-0", **more)


def location(registry: FakeRegistry, repository: str, name: str) -> str:
    path = f"/v2/{repository}/blobs/uploads/{name}?_state={secrets.token_hex(8)}"
    return path if registry.relative else f"http://{registry.host}{path}"


def on_upload(registry: FakeRegistry, call: Call, repository: str, name: str) -> None:
    if name not in registry.uploads or "_state" not in call.query:
        call.answer(404, b'{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN","message":"upload unknown"}]}')
        return
    data = registry.uploads[name]
    if call.method == "PATCH":
        start, stop = (int(one) for one in (call.header("content-range") or "").split("-"))
        if start != len(data):
            call.answer(416)
            return
        while len(data) <= stop:
            piece = call.handler.rfile.read1(min(1 << 16, stop + 1 - len(data)))
            if not piece:
                return
            data += piece
        call.body = b""
        call.answer(202, Location=location(registry, repository, name), Range=f"0-{len(data) - 1}")
    elif call.method == "PUT":
        data += call.read()
        digest = call.query["digest"][0]
        if digest_of(bytes(data)) != digest:
            call.answer(400, b'{"errors":[{"code":"DIGEST_INVALID","message":"digest invalid"}]}')
            return
        del registry.uploads[name]
        registry.put_blob(repository, bytes(data))
        call.answer(201, Docker_Content_Digest=digest)
    else:
        last = max(len(data) - 1, 0)
        call.answer(204, Location=location(registry, repository, name), Range=f"0-{last}")


def on_tags(registry: FakeRegistry, call: Call, repository: str) -> None:
    names = sorted(tag for place, tag in registry.manifests if place == repository and ":" not in tag)
    start = int(call.query.get("last", ["0"])[0])
    more = start + registry.page < len(names)
    link = {"Link": f'</v2/{repository}/tags/list?last={start + registry.page}>; rel="next"'} if more else {}
    body = {"name": repository, "tags": names[start : start + registry.page]}
    call.answer(200, json.dumps(body).encode(), **link)


def on_referrers(registry: FakeRegistry, call: Call, _repository: str, digest: str) -> None:
    if registry.referrers is None:
        call.answer(404)
        return
    body = {"schemaVersion": 2, "manifests": registry.referrers.get(digest, [])}
    call.answer(200, json.dumps(body).encode())


_NAME = r"/v2/([a-z0-9._/-]+?)"
ROUTES: list[tuple[str, Callable[..., None]]] = [
    (_NAME + r"/blobs/uploads/", on_begin),
    (_NAME + r"/blobs/uploads/([0-9a-f]+)", on_upload),
    (_NAME + r"/blobs/(sha256:[0-9a-f]{64})", on_blob),
    (_NAME + r"/manifests/([^/]+)", on_manifest),
    (_NAME + r"/tags/list", on_tags),
    (_NAME + r"/referrers/([^/]+)", on_referrers),
]


def dripping(call: Call, data: bytes, pause_s: float, piece_bytes: int = 1) -> None:
    """Send bytes one after the other, until the other side has had enough."""
    for place in range(0, len(data), piece_bytes):
        call.handler.wfile.write(data[place : place + piece_bytes])
        call.handler.wfile.flush()
        time.sleep(pause_s)
