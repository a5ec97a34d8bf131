"""Where the server listens: an address and a port, or a path that only its owner can reach."""

import errno
import socket
import stat
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from secrets import token_hex

from modelkit.errors import ModelkitError
from modelkit.python_faults import os_reason, unread
from modelkit.server.access import LOOPBACK
from modelkit.store.layout import refuse_inside
from runtime.records import dataclass

_BACKLOG = 512


@dataclass(frozen=True, slots=True)
class Place:
    """What the user asked for."""

    host: str = "127.0.0.1"
    """An address or a name. "localhost" is both loopback addresses."""
    port: int = 11434
    """0: any that is free."""
    uds: Path | None = None
    """The path of a Unix socket instead."""
    certificate: str | None = None
    """The file of a TLS certificate; None for plain HTTP."""
    key: str | None = None
    """The file of its key; None where that is in the certificate's file."""
    password: str | None = field(default=None, repr=False)
    """Of that key."""

    @property
    def private(self) -> bool:
        """Only programs on this machine reach it."""
        return self.uds is not None or self.host in LOOPBACK or self.host.startswith("127.")


def listen(place: Place) -> list[socket.socket]:
    """Sockets that listen. Raises ModelkitError where they cannot."""
    if place.uds is not None:
        return [_listen_at_path(place.uds)]
    if place.host != "localhost":
        return [_listen_at_port(place.host, place.port)]
    first = _listen_at_port("127.0.0.1", place.port)
    try:
        return [first, _listen_at_port("::1", first.getsockname()[1])]
    except ModelkitError:  # a machine without it
        return [first]


def address_of(listener: socket.socket, place: Place) -> str:
    """What to type into a client."""
    if place.uds is not None:
        return f"unix:{place.uds}"
    host, port = listener.getsockname()[:2]
    scheme = "https" if place.certificate else "http"
    if host in ("0.0.0.0", "::"):  # noqa: S104 -- every address, and a client needs one
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _listen_at_port(host: str, port: int) -> socket.socket:
    listener: socket.socket | None = None
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, number)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:  # the second of what can be no name of a machine: a..b
        if listener is not None:
            listener.close()
        said = f"cannot listen on {host}:{port}: {unread(error)}"
        raise ModelkitError(said, hint=_what_to_do(error)) from error
    listener.setblocking(False)
    return listener


def _what_to_do(error: OSError | UnicodeError) -> str | None:
    if isinstance(error, socket.gaierror | UnicodeError) or error.errno == errno.EADDRNOTAVAIL:
        return (
            "--host takes an address of this machine: 127.0.0.1 for its own programs, 0.0.0.0 for everybody. "
            "The port goes to --port."
        )
    if error.errno == errno.EADDRINUSE:
        return "Another server may be there already: --port takes another number, 0 any that is free."
    if error.errno == errno.EACCES:
        return "Ports below 1024 are the administrator's: --port takes a higher number."
    return None


def _listen_at_path(path: Path) -> socket.socket:
    refuse_inside(path)
    # Under another name first: nobody reaches it before its mode is set.
    hidden = path.with_name(f".{path.name}.{token_hex(4)}")
    listener: socket.socket | None = None
    try:
        if path.exists():
            _remove_left_over(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(hidden))
        hidden.chmod(0o600)
        listener.listen(_BACKLOG)
        hidden.rename(path)
    except OSError as error:
        if listener is not None:
            listener.close()
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
        raise ModelkitError(f"cannot listen on {path}: {os_reason(error)}") from error
    listener.setblocking(False)
    return listener


def _remove_left_over(path: Path) -> None:
    """A socket that nobody listens on any more. What is not a socket is somebody's file, and stays."""
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise ModelkitError(f"cannot listen on {path}: a file is there", hint="Take another path.")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ModelkitError(f"another server listens on {path}", hint="Stop it, or take another path.")
