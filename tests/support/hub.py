"""A hub on loopback: the API and the files of a few repositories, with failures that a test asks for.

It answers as huggingface.co does: `/api/models/...` lists a commit, `/resolve/` gives a small file, and of a
large one (Git LFS) a redirect to another origin, which stands for the content network and must not see a
token.
"""

import gzip
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

STORY = "hf.co/Amy/Story"
"""The address of the repository that tests have."""
LARGE = (".safetensors", ".gguf", ".bin", "tokenizer.json")


@dataclass
class Repository:
    """One model at one commit."""

    files: dict[str, bytes]
    commit: str = "a" * 40
    gated: bool = False
    private: bool = False
    siblings: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Changes to what the list says of a file; of one that is not there, all that it says."""

    @classmethod
    def of(cls, folder: Path, **files: bytes) -> "Repository":
        return cls({path.name: path.read_bytes() for path in sorted(folder.iterdir())} | files)

    def listed(self) -> list[dict[str, Any]]:
        found = [self._sibling(name) for name in self.files]
        return found + [
            {"rfilename": name, **said} for name, said in self.siblings.items() if name not in self.files
        ]

    def _sibling(self, name: str) -> dict[str, Any]:
        data = self.files[name]
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        row: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": git}
        if name.endswith(LARGE):
            row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return row | self.siblings.get(name, {})


@dataclass
class Request:
    """What somebody asked."""

    method: str
    path: str
    headers: dict[str, str]
    host: str


@dataclass
class Hub:
    """What the server has, does, and was asked."""

    repositories: dict[str, Repository] = field(default_factory=dict[str, Repository])
    branches: dict[str, str] = field(default_factory=dict[str, str])
    """Other revisions of any repository, and the commits they stand for."""
    faults: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By file, or `api`: what goes wrong with one answer after the other."""
    requests: list[Request] = field(default_factory=list[Request])
    cdn: str = ""
    """Where large files are, where that is not the server's own address by another name."""
    port: int = 0
    endless_bytes: int = 64 << 20
    """What is sent of an answer that has no end."""
    sent_bytes: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)
    """Set when an answer hangs (the fault `stall`), or does not begin (`mute`)."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self, part: str) -> list[Request]:
        return [one for one in self.requests if part in one.path]

    def fault(self, name: str) -> str:
        waiting = self.faults.get(name, [])
        return waiting.pop(0) if waiting else ""


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """The server, until the block ends."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.hub.requests.append(Request("GET", self.path, headers, headers.get("host", "")))
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path)
        resolve = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if api:
            self._api(api[1], api[2])
        elif resolve:
            self._resolve(resolve[1], resolve[2], resolve[3])
        elif path.startswith("/cdn/"):
            self._content(*path.removeprefix("/cdn/").split("/", 2))
        else:
            self._answer(404, b"")

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 -- as the library names it

    def _api(self, name: str, revision: str | None) -> None:
        repository = self.hub.repositories.get(name)
        fault = self.hub.fault("api")
        if fault.isdecimal():
            self._answer(int(fault), b"down")
        elif fault[:3].isdecimal():
            self._busy(fault)
        elif fault == "cut":
            self._answer(200, b'{"id": "x', length=5000)
        elif fault == "nonsense":
            self._answer(200, b'{"siblings": 7}')
        elif fault == "parts":
            self._answer(200, b'{"siblings": [%s]}' % b",".join([b"{}"] * 1_000_002))
        elif fault == "packed":
            blanks = gzip.compress(b" " * self.hub.endless_bytes, 1)
            self._answer(200, blanks, {"Content-Encoding": "gzip"})
        elif fault.startswith("endless "):
            self._endless(int(fault.removeprefix("endless ")))
        elif fault == "drip head":
            self._drop_by_drop(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500)
        elif fault.startswith("drip "):
            self._drip(int(fault.removeprefix("drip ")))
        elif repository is None or repository.private:
            self._answer(401, b'{"error": "Invalid username or password."}', {"X-Error-Code": "RepoNotFound"})
        elif revision not in (None, "main", repository.commit, *self.hub.branches):
            self._answer(404, b'{"error": "Invalid rev id"}', {"X-Error-Code": "RevisionNotFound"})
        else:
            commit = self.hub.branches.get(revision or "main", repository.commit)
            body = {"id": name, "sha": commit, "gated": repository.gated, "siblings": repository.listed()}
            self._answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _drip(self, status: int, data: bytes = b" " * 3000, extra: dict[str, str] | None = None) -> None:
        """Some bytes now and some then, for longer than anybody should wait."""
        with suppress(OSError):
            self._answer(status, data[:1], extra, length=len(data))
            self._drop_by_drop(data[1:3000])

    def _drop_by_drop(self, data: bytes) -> None:
        self.close_connection = True
        with suppress(OSError):
            for place in range(len(data)):
                self.wfile.write(data[place : place + 1])
                self.wfile.flush()
                threading.Event().wait(0.02)

    def _busy(self, fault: str) -> None:
        """A status, and a header that says when to come back."""
        self._answer(int(fault[:3]), b"", dict([fault[4:].split(": ")]))

    def _resolve(self, name: str, commit: str, file: str) -> None:
        repository = self.hub.repositories[name]
        if repository.gated and "authorization" not in {one.lower() for one in self.headers}:
            body = b"Access to model is restricted."
            self._answer(401, body, {"X-Error-Code": "GatedRepo"})
        elif file not in repository.files:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        elif file.endswith(LARGE):
            self._answer(
                302,
                b"",
                {
                    "Location": f"{self.hub.cdn or f'http://localhost:{self.hub.port}'}/cdn/{name}/{quote(file)}"
                },
            )
        else:
            owner, model = name.split("/")
            self._content(owner, model, file)

    def _content(self, owner: str, model: str, file: str) -> None:
        data = self.hub.repositories[f"{owner}/{model}"].files[file]
        fault = self.hub.fault(file)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and asked[2] and not fault:
            first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
            said = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
            self._answer(206, data[first : last + 1], said)
            return
        start = int(asked[1]) if asked and fault != "ignore range" else 0
        extra = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        if fault.isdecimal():
            self._answer(int(fault), b"")
        elif fault == "mute":
            self.hub.stalled.set()
            threading.Event().wait(30)
            self.close_connection = True
        elif fault == "drip":
            self._drip(206 if start else 200, data[start:], extra)
        elif fault == "drip head":
            self._drop_by_drop(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500)
        elif fault == "endless 403":
            self._endless(403)
        elif fault[:3].isdecimal():
            self._busy(fault)
        elif fault == "wrong range":
            self._answer(206, data[start:], {"Content-Range": f"bytes 1-{len(data) - 1}/{len(data)}"})
        elif fault in ("cut", "stall"):
            self._answer(
                206 if start else 200, data[start : start + len(data) // 3], extra, len(data) - start
            )
            if fault == "stall":
                self.hub.stalled.set()
                threading.Event().wait(30)
        elif fault == "wrong bytes":
            self._answer(200, bytes(len(data)))
        elif fault == "longer":
            self._answer(200, data + b"more")
        elif fault == "pointer":
            self._answer(200, b"version https://git-lfs.github.com/spec/v1\n")
        elif fault == "elsewhere":
            self._answer(302, b"", {"Location": "ftp://127.0.0.1/x"})
        elif fault == "loop":
            self.hub.faults[file] = ["loop"]
            self._answer(302, b"", {"Location": self.path})
        else:
            self._answer(206 if start else 200, data[start:], extra)

    def _endless(self, status: int) -> None:
        """Goes on until nobody listens, or for as much as a test can bear."""
        self.send_response(status)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            while self.hub.sent_bytes < self.hub.endless_bytes:
                self.hub.sent_bytes += self.wfile.write(b"x" * (1 << 16))

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        try:
            self.wfile.write(body)
            self.wfile.flush()
        except OSError:
            self.close_connection = True
        if length is not None and length != len(body):
            self.close_connection = True


class Listener:
    """What a fetch tells."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.bars: list[tuple[str, int]] = []
        self.done_bytes = 0

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def begin(self, label: str, total_bytes: int) -> None:
        self.bars.append((label, total_bytes))
        self.done_bytes = 0

    def advance(self, done_bytes: int) -> None:
        self.done_bytes += done_bytes

    def finish(self) -> None:
        assert not self.bars[-1][0].startswith("fetch") or self.done_bytes <= self.bars[-1][1]
