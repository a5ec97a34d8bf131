"""An HTTP proxy on loopback, behind which names of a test lead to its own servers, over TLS.

    with TlsProxy({"registry.test": registry.port}) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.address)

CONNECT is answered, TLS is ended here with the certificate of `tests/data/tls/named.pem`, and what is inside
goes to the server, which speaks plain HTTP. `asked` has each CONNECT with its Proxy-Authorization.
"""

import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

from tests.support.on_thread import OnThread

TLS = Path(__file__).parents[1] / "data" / "tls"
AUTHORITY = TLS / "named.pem"


class TlsProxy(OnThread):
    """A context manager. ports: of the servers, by name; any other name is refused."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self.ports = ports
        self.asked: list[tuple[str, str | None]] = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(AUTHORITY, TLS / "named_key.pem")
        server = _Server(("127.0.0.1", 0), _Handler)
        server.proxy = self
        super().__init__(server)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Server(ThreadingTCPServer):
    daemon_threads = True
    proxy: TlsProxy


class _Handler(StreamRequestHandler):
    server: _Server
    rbufsize = 0  # what comes behind the request is the handshake's

    def handle(self) -> None:
        line = self.rfile.readline().decode()
        headers: dict[str, str] = {}
        while (header := self.rfile.readline().decode().strip()) != "":
            name, _, value = header.partition(": ")
            headers[name.lower()] = value
        method, target, _ = line.split(" ")
        self.server.proxy.asked.append((f"{method} {target}", headers.get("proxy-authorization")))
        port = self.server.proxy.ports.get(target.removesuffix(":443"))
        if method != "CONNECT" or port is None:
            self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with suppress(OSError):  # who does not trust us ends the handshake
            inner = self.server.proxy.context.wrap_socket(self.connection, server_side=True)
            with inner, socket.create_connection(("127.0.0.1", port)) as there:
                _pipe(inner, there)


def _pipe(one: ssl.SSLSocket, other: socket.socket) -> None:
    """Until one of them ends."""
    back = threading.Thread(target=_forward, args=(other, one), daemon=True)
    back.start()
    _forward(one, other)
    back.join()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
