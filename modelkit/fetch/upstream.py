"""Where a model's files came from, as a package remembers it.

A function of what was fetched and nothing else: no time, no path of this machine, no token, no name of a
user. The same files of the same commit give the same record, whether they came just now or lay in a cache.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from modelkit.address import HubAddress
from modelkit.store.digest import Blob, Digest
from runtime.records import dataclass

KINDS = ("hub", "ollama", "registry")

_MOST_CHARACTERS = 4096  # as many as a path of a file can have


@dataclass(frozen=True, slots=True)
class Upstream:
    """A place in the network, and what was taken from it."""

    kind: str
    """One of KINDS."""
    endpoint: str
    """The server, `https://huggingface.co`; without a user's name and password."""
    repository: str
    """`Qwen/Qwen3-8B`, in the letters that the server has for it."""
    requested: str | None = None
    """The tag that was asked for, where a registry has one. A branch of the hub is not recorded: `commit` is
    what counts, and a package that is made again from that is to be the same."""
    commit: str | None = None
    """What that stood for: a commit of the hub, or the digest of a registry's manifest."""
    quant: str | None = None
    """Which of several files of weights was taken: `Q4_K_M`."""
    file: str | None = None
    """The file that was asked for by its name."""
    licence: str | None = None
    """Its identifier: `apache-2.0`."""
    files: Mapping[str, Blob] = field(default_factory=dict[str, Blob])
    """What was taken, by name: sizes and digests."""

    @property
    def place(self) -> str:
        """What somebody would type to have it: without the commit."""
        return replace(self, commit=None).address

    @property
    def address(self) -> str:
        """What FROM says to get the same files again."""
        if self.kind == "hub":
            return str(HubAddress(self.repository, None if self.file else self.quant, self.commit, self.file))
        host = "ollama.com" if self.kind == "ollama" else f"oci://{urlsplit(self.endpoint).netloc}"
        asked = f":{self.requested}" if self.requested else ""
        return f"{host}/{self.repository}{asked}" + (f"@{self.commit}" if self.commit else "")

    def to_json(self) -> dict[str, Any]:
        value = {
            "kind": self.kind,
            "endpoint": self.endpoint,
            "repository": self.repository,
            "requested": self.requested,
            "commit": self.commit,
            "quant": self.quant,
            "file": self.file,
            "licence": self.licence,
            "files": {
                name: {"digest": str(blob.digest), "size": blob.size_bytes}
                for name, blob in sorted(self.files.items())
            },
        }
        return {key: item for key, item in value.items() if item not in (None, {})}


def read_upstream(value: object) -> Upstream:
    """From a package's modelkit.json. Raises ValueError, StoreError for what `to_json` does not make."""
    if not isinstance(value, dict) or value.get("kind") not in KINDS:
        raise ValueError("`upstream` is of no known kind")
    texts = {key: _text(value, key) for key in ("endpoint", "repository", *_OPTIONAL)}
    files: Any = value.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(one, dict) for one in files.values()):
        raise ValueError("`upstream.files` holds what is not an object")
    return Upstream(
        kind=value["kind"],
        endpoint=texts.pop("endpoint") or "",
        repository=texts.pop("repository") or "",
        files={str(name): _blob(one) for name, one in files.items()},
        **texts,
    )


_OPTIONAL = ("requested", "commit", "quant", "file", "licence")


def bare_endpoint(url: str) -> str:
    """A server's address without a user's name, password, query or a slash at its end."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    if found is None and key in _OPTIONAL:
        return None
    if not isinstance(found, str) or not 0 < len(found) <= _MOST_CHARACTERS or not found.isprintable():
        raise ValueError(f"`upstream.{key}` is not plain text")
    return found


def _blob(value: Mapping[str, Any]) -> Blob:
    size = value.get("size")
    if type(size) is not int or size < 0:
        raise ValueError("`upstream.files` gives something that is not a size")
    return Blob(Digest.parse(value.get("digest")), size)
