"""A name and password for a registry: tried first, kept only where they are right."""

from pathlib import Path

from modelkit.address import RegistryAddress, read_pullable
from modelkit.errors import FetchError, InvalidName
from modelkit.fetch.registry.client import Registry
from modelkit.fetch.registry.credentials import Credentials, find, forget, keep
from modelkit.fetch.registry.tokens import Denied
from modelkit.fetch.registry.wire import Limits
from runtime.quoting import quoted
from runtime.records import dataclass


def host_of(text: str) -> str:
    """The host that somebody means who logs in to `ghcr.io`, `docker.io` or `oci://localhost:5000`.

    Raises InvalidName.
    """
    bare = text.removeprefix("oci://").removeprefix("https://").rstrip("/")
    try:
        address = None if not bare or "/" in bare else read_pullable(f"oci://{bare}/x/y")
    except InvalidName:
        if "@" in bare:  # a password may stand there, which is not said
            raise
        address = None  # it would quote an address that nobody wrote
    if address is None:
        raise InvalidName(f"{quoted(bare)} is not a host: HOST or HOST:PORT is expected")
    if not isinstance(address, RegistryAddress):
        raise InvalidName(f"{quoted(bare)} has no registry to log in to")
    return address.host


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """What `login` did."""

    file: Path
    """Where name and password are kept now."""
    checked: bool
    """Did the registry ask for them? One that lets everybody in cannot say whether they are right."""


def login(
    host: str,
    given: Credentials,
    files: list[Path],
    *,
    insecure: bool = False,
    limits: Limits | None = None,
) -> LoggedIn:
    """Ask the registry, then keep them. Raises FetchError, and Denied where they are wrong."""
    with Registry(host, insecure=insecure, credentials=lambda: given, limits=limits) as registry:
        let_in = _takes(registry)
        if registry.withheld:
            raise Denied(
                f"{host} wants the password sent to {registry.withheld}, not its own host; it was not"
            )
        if not let_in:
            raise Denied(f"{host} does not take this name and password")
        checked = registry.was_asked
    path = _file(files, host)
    keep(path, host, given)
    return LoggedIn(path, checked)


def _takes(registry: Registry) -> bool:
    """Does it let us in? A realm of tokens says so by giving none."""
    try:
        return registry.ping()
    except Denied:
        return False


def logout(host: str, files: list[Path]) -> list[Path]:
    """Forget what is kept for a registry in our own files, which are returned. Raises FetchError where
    another program keeps something for it, which stays in force.
    """
    changed = [path for path in _own(files) if forget(path, host)]
    if find(files, host) is not None:
        raise FetchError(
            f"Docker, or a program that keeps passwords for it, still has one for {host}",
            hint=f"Remove it with: docker logout {host}",
        )
    return changed


def _own(files: list[Path]) -> list[Path]:
    """Podman's files, which modelkit writes to; Docker's own it only reads."""
    return [path for path in files if path.name != "config.json"] if len(files) > 1 else files


def _file(files: list[Path], host: str) -> Path:
    """Where to keep it: where something is kept for the host already, since that would be found first; else
    the one that is there after a restart.
    """
    own = _own(files)
    return next((path for path in own if find([path], host) is not None), own[-1])
