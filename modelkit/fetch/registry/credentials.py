"""Names and passwords for registries, where Docker, Podman, skopeo and their relatives keep them.

Files (`settings.places.credential_files`) are asked in their order; the first that knows the place counts:

    auths        {"host/namespace": {"auth": base64 of user:password, "identitytoken": ...}}
    credHelpers  {"host": "name of a program"}, which goes before auths
    credsStore   "name of a program" for all the rest

The longest key that the place begins with counts. Only `keep` and `forget` write, only the first of these
files that is Podman's own, with access for nobody else. Nothing here puts a secret into a message.
"""

import base64
import binascii
import json
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from secrets import token_hex
from typing import Any

from modelkit.disk_faults import disk_fault
from modelkit.errors import FetchError, StoreError
from modelkit.fetch.registry.programs import ask
from modelkit.python_faults import os_reason
from modelkit.store.canonical import parse_object
from modelkit.store.disk import read_small, replace
from runtime.records import dataclass

_LIMIT_BYTES = 1 << 20
_HINT = "Names and passwords are kept there; REGISTRY_AUTH_FILE names another file."
_TOKEN_USER = "<token>"  # noqa: S105 - what Docker puts for the name where the secret is a token
_DOCKER_HUB = "registry-1.docker.io"
_DOCKER_SERVER = "https://index.docker.io/v1/"
_DOCKER_KEYS = ("docker.io", "index.docker.io", _DOCKER_HUB)


@dataclass(frozen=True, slots=True)
class Credentials:
    """For one registry."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """What Docker got in place of a password; empty for most."""

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def find(files: list[Path], host: str, repository: str = "") -> Credentials | None:
    """What the files, or the programs that they name, know for a repository.

    Raises FetchError for a file that is not JSON, and for a program that fails.
    """
    for path in files:
        config = read_file(path)
        found = _in_file(config, host, repository)
        if found is not None:
            return found
    return None


def read_file(path: Path) -> dict[str, Any]:
    """A file of credentials; {} where there is none."""
    try:
        # Through links: files like this one often lie elsewhere.
        raw = read_small(Path(os.path.realpath(path)), _LIMIT_BYTES)
        return parse_object(raw, str(path), _LIMIT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise FetchError(f"{path} cannot be read: {os_reason(error)}") from error
    except StoreError:
        # Without the cause and its text: that may quote the file.
        raise FetchError(f"{path} is not a valid JSON object", hint="Repair it, or log in again.") from None


def _in_file(config: Mapping[str, Any], host: str, repository: str) -> Credentials | None:
    hosts = _DOCKER_KEYS if host == _DOCKER_HUB else (host,)
    server = _DOCKER_SERVER if host == _DOCKER_HUB else host
    helpers, auths = _mapping(config, "credHelpers"), _mapping(config, "auths")
    for one in hosts:
        if isinstance(helpers.get(one), str):
            return _from_program(helpers[one], server)
    by_key = {_bare(key): entry for key, entry in auths.items() if isinstance(entry, dict)}
    for key in _keys(hosts, repository):
        found = _entry(by_key.get(key, {}))
        if found is not None:
            return found
    store = config.get("credsStore")
    return _from_program(store, server) if isinstance(store, str) and store else None


def _from_program(program: str, server: str) -> Credentials | None:
    said = ask(program, server)
    if said is None:
        return None
    user, secret = said
    return Credentials(identity_token=secret) if user == _TOKEN_USER else Credentials(user, secret)


def _keys(hosts: tuple[str, ...], repository: str) -> list[str]:
    """The keys that may stand for the place, the longest first."""
    parts = repository.split("/") if repository else []
    paths = ["/".join(["", *parts[:depth]]) for depth in range(len(parts), -1, -1)]
    return [host + path for path in paths for host in hosts]


def _bare(key: str) -> str:
    """A key without its scheme, and without what old ones have behind the host: `https://host/v1/`."""
    scheme, mark, rest = key.partition("://")
    place = rest if mark else scheme
    for end in ("/v1/", "/v2/", "/v1", "/v2", "/"):
        if place.endswith(end):
            return place.removesuffix(end)
    return place


def _entry(entry: Mapping[str, Any]) -> Credentials | None:
    token = entry.get("identitytoken")
    if isinstance(token, str) and token:
        return Credentials(identity_token=token)
    auth = entry.get("auth")
    if isinstance(auth, str) and auth:
        try:
            user, colon, password = base64.b64decode(auth, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        return Credentials(user, password.rstrip("\0")) if colon else None
    user, password = entry.get("username"), entry.get("password")
    return (
        Credentials(user, password) if isinstance(user, str) and isinstance(password, str) and user else None
    )


def _mapping(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def keep(path: Path, host: str, found: Credentials) -> None:
    """Write the name and password for `host` into the file, which only its owner may read then."""
    auth = base64.b64encode(f"{found.user}:{found.password}".encode()).decode()
    config = read_file(path)
    config["auths"] = {**_without(_mapping(config, "auths"), host), _written(host): {"auth": auth}}
    _write(path, config)


def forget(path: Path, host: str) -> bool:
    """Take what the file has for `host` out of it; False where it has nothing."""
    config = read_file(path)
    auths = _mapping(config, "auths")
    kept = _without(auths, host)
    if len(kept) == len(auths):
        return False
    _write(path, {**config, "auths": kept})
    return True


def _written(host: str) -> str:
    return "docker.io" if host == _DOCKER_HUB else host


def _without(auths: Mapping[str, Any], host: str) -> dict[str, Any]:
    hosts = _DOCKER_KEYS if host == _DOCKER_HUB else (host,)
    return {key: value for key, value in auths.items() if _bare(key) not in hosts}


def _write(path: Path, config: Mapping[str, Any]) -> None:
    real = Path(os.path.realpath(path))
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temp = real.parent / f".{real.name}.{token_hex(8)}"
        replace(real, json.dumps(config, indent="\t").encode() + b"\n", temp)  # made with 0600
    except OSError as error:
        raise disk_fault(error, path, _HINT) from error
