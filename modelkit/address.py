"""What a text means that somebody writes for a model: the one place that says so, and only by its letters.

    ./folder  ~/m.gguf  ../x           a path (`looks_like_path`)
    hf.co/org/name[:QUANT][@revision]  a model of the hub; hf://..., https://huggingface.co/... are the same
    hf.co/org/name/model.gguf          one file of it
    ollama.com/library/x[:tag]         a model of Ollama's registry; ollama.com/x is the same
    docker.io/ai/x[:tag]               a model of Docker's
    oci://host/repo[:tag][@digest]     a model of any other registry
    ollama:x[:tag]                     a model that Ollama has on this machine
    all else                           the name of a stored package; `org/name` may lie in another program's
                                       folder, too (modelkit.source.hub_cache)

Only an address with a host is ever fetched from the network. Nothing here looks at a disk or at the network,
and what is wrong with an address is said before anybody else sees it: a name or a password in it is refused
without being repeated.
"""

import re
from dataclasses import replace
from typing import Literal, NoReturn, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from modelkit.errors import InvalidName
from runtime.quoting import quoted
from runtime.records import dataclass

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SHORT_SCHEME = re.compile(r"(ollama|hf(?=:.*/)):", re.IGNORECASE | re.DOTALL)  # hf:q4 is a package
_HUB_HOSTS = frozenset({"hf.co", "huggingface.co", "www.huggingface.co", "www.hf.co"})
OLLAMA_HOSTS = frozenset({"ollama.com", "www.ollama.com", "registry.ollama.ai"})
_DOCKER_HOSTS = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})
_SCHEMES = frozenset({"hf", "http", "https", "oci", "docker", "ollama"})

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?"
_REPOSITORY = re.compile(rf"({_PART})/({_PART})")
_QUANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REVISION = re.compile(r"(?=.{1,250}$)[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_SHOWN = re.compile(r"/(?:tree|blob|resolve|raw|commits?)/((?:refs/(?:pr|convert)/)?[^/]+)(?:/(.+))?")
_MODEL_FILE = re.compile(r".+\.(?:gguf|safetensors)", re.IGNORECASE)
_NOT_MODELS = frozenset({"datasets", "spaces", "kernels", "collections", "papers", "docs", "models", "api"})

# OCI distribution specification, "Pulling manifests"; a host as in Docker's references.
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:]{2,45}\])(?::[0-9]{1,5})?"
)
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_OCI_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PATH_STARTS = ("./", "../", "/", "~")
_PATH_ENDS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
_MOST_CHARACTERS = 1000
_MOST_REPOSITORY = 255


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A model of the Hugging Face hub, or of the mirror that HF_ENDPOINT names."""

    repository: str
    """`owner/model`, in the letters that were written."""
    quant: str | None = None
    """Which of its GGUF files: `Q4_K_M`. None: it is no matter of GGUF, or there is nothing to choose."""
    revision: str | None = None
    """A branch, a tag or a commit; None: the main branch. There may be slashes in it."""
    file: str | None = None
    """One file of it, below the repository's folder."""

    def __str__(self) -> str:
        file = f"/{_escaped(self.file)}" if self.file else ""
        quant = f":{self.quant}" if self.quant else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"hf.co/{self.repository}{file}{quant}{revision}"

    @property
    def model(self) -> str:
        """The second part of the repository's name."""
        return self.repository.partition("/")[2]


Dialect = Literal["oci", "ollama"]


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """A model in a registry."""

    host: str
    """The one to connect to, perhaps with a port: `registry-1.docker.io` for what is typed `docker.io`."""
    repository: str
    """In lower case: `library/llama3.2`."""
    tag: str | None = None
    """None: `latest`, or what `digest` says."""
    digest: str | None = None
    """`sha256:...` of a manifest; it goes before the tag."""
    dialect: Dialect = "oci"
    """"ollama": Ollama's manifests and layers."""

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        if self.dialect == "ollama":
            return f"ollama.com/{self.repository}{tag}{digest}"
        if self.host == "registry-1.docker.io":
            return f"docker.io/{self.repository}{tag}{digest}"
        return f"oci://{self.host}/{self.repository}{tag}{digest}"

    @property
    def reference(self) -> str:
        """What a manifest is asked for by: the digest, else the tag, else `latest`."""
        return self.digest or self.tag or "latest"


@dataclass(frozen=True, slots=True)
class OllamaAddress:
    """A model that Ollama has stored on this machine."""

    repository: str
    """`library/llama3.2`, `amy/story`, or with a host: `hf.co/org/name`."""
    tag: str = "latest"

    def __str__(self) -> str:
        return f"ollama:{self.repository.removeprefix('library/')}:{self.tag}"


Address: TypeAlias = HubAddress | RegistryAddress | OllamaAddress


def read_address(text: str) -> Address | None:
    """The address that `text` is; None where it can only be a path or a stored package's name.

    Raises InvalidName for what begins as an address and is none, or is one of a kind that is not fetched.
    """
    scheme = _SCHEME.match(text)
    if scheme:
        return _with_scheme(text, scheme[1].lower(), text[scheme.end() :])
    short = _SHORT_SCHEME.match(text)
    if short:
        return _with_short_scheme(text, short[1].lower(), text[short.end() :])
    host, slash, path = text.partition("/")
    return _at_known_host(text, host.lower(), path) if slash else None


def has_scheme(text: str) -> bool:
    """Does `text` say by its beginning where it is fetched from, whatever a package may be called?"""
    return bool(_SCHEME.match(text) or _SHORT_SCHEME.match(text))


def is_address(text: str) -> bool:
    """Is `text` meant as an address, be it a good one or not?"""
    try:
        return read_address(text) is not None
    except InvalidName:
        return True


def looks_like_path(text: str) -> bool:
    """Whether `text` can only be meant as a path, whatever is on disk. `library/model` can be a name."""
    if is_address(text):
        return False
    if text in (".", "..") or "\\" in text:
        return True
    return text.startswith(_PATH_STARTS) or text.lower().endswith(_PATH_ENDS)


def read_pullable(text: str) -> Address | None:
    """`read_address`, where a text stands for something that is to be fetched: `ghcr.io/amy/story` has a host
    then, as it has for Docker.
    """
    address = read_address(text)
    if address is None and (host := _has_host(text)):
        return _registry(text, host, text[len(host) + 1 :])
    return address


def _has_host(text: str) -> str | None:
    host, slash, _ = text.partition("/")
    named = "." in host.strip(".") or ":" in host or host == "localhost"
    return host if slash and named and _HOST.fullmatch(host) else None


def _with_scheme(text: str, scheme: str, rest: str) -> Address:
    if scheme not in _SCHEMES:
        _refuse(
            text, f"{scheme}:// is not fetched", "Get the model's files, and name their folder: ./my-model"
        )
    if scheme == "hf":
        return _hub(text, rest)
    if "@" in rest.partition("/")[0]:
        raise InvalidName(
            "the address has a user's name or a password in it",
            hint="Leave it out. The hub is given the token of `hf auth login` or HF_TOKEN, registries what\n"
            "`docker login` or `skopeo login` stored.",
        )
    if scheme in ("oci", "docker"):
        host, _, path = rest.partition("/")
        return _at_known_host(text, host.lower(), path) or _registry(text, host, path)
    if scheme == "ollama":
        return _local_ollama(text, rest)
    return _page(text)


def _with_short_scheme(text: str, scheme: str, rest: str) -> Address:
    return _local_ollama(text, rest) if scheme == "ollama" else _hub(text, rest.lstrip("/"))


def _page(text: str) -> Address:
    """The address of a page in a browser."""
    try:
        parts = urlsplit(text)
        port, host = parts.port, (parts.hostname or "").lower()
    except ValueError:
        _refuse(text, "it is not an address of the web")
    # A %2F is a slash within the name of a branch; those around it are between names.
    path = unquote(re.sub("%2F", "%252F", parts.path, flags=re.IGNORECASE)).strip("/")
    found = None if port else _at_known_host(text, host, path, page=True)
    if found is None:
        _refuse(text, "only pages of huggingface.co and ollama.com are known here", _OTHER_PAGES)
    return found


_OTHER_PAGES = (
    "A registry is named by oci://host/repository:tag. Of all else get the model's files, and name their\n"
    "folder: ./my-model"
)


def _at_known_host(text: str, host: str, path: str, *, page: bool = False) -> Address | None:
    if host in _HUB_HOSTS:
        return _hub(text, path, page=page)
    if host in OLLAMA_HOSTS:
        repository, colon, tag = path.partition(":")
        repository = repository.lower() if "/" in repository else f"library/{repository.lower()}"
        return replace(_registry(text, "registry.ollama.ai", repository + colon + tag), dialect="ollama")
    if host in _DOCKER_HOSTS:
        return _registry(text, "registry-1.docker.io", path if "/" in path else f"library/{path}")
    return None


def _hub(text: str, path: str, *, page: bool = False) -> HubAddress:
    """`owner/model`, then in any order a file, `:QUANT` and `@revision`; or what the browser shows behind it
    in the address of a page: `/tree/REVISION`, `/commit/REVISION`, `/blob/REVISION/FILE`. Elsewhere these are
    folders.
    """
    owner, _, rest = path.strip("/").partition("/")
    model = re.match(r"[^/:@]*", rest)
    assert model is not None
    repository = _REPOSITORY.fullmatch(f"{owner}/{model[0]}")
    if owner in _NOT_MODELS:
        _refuse(text, f"it is one of the hub's {owner}, no model")
    if repository is None or ".." in repository[0] or "--" in repository[0]:
        _refuse(text, "a model of the hub has an owner and a name", _HUB_EXAMPLE)
    address = HubAddress(f"{owner}/{model[0]}")
    tail = rest[model.end() :]
    shown = _SHOWN.fullmatch(tail)
    if page and shown:
        found = {"revision": shown[1], **({"file": shown[2]} if shown[2] else {})}
    else:
        found = _qualified(text, tail)
    return _checked(text, address, found)


_HUB_EXAMPLE = "Examples: hf.co/org/name, hf.co/org/name:Q4_K_M, hf.co/org/name@revision"


def _qualified(text: str, tail: str) -> dict[str, str]:
    """The file, the quant and the revision behind a repository's name. What follows a slash in a revision is
    part of it, too, unless it is a file that can be a model: then the revision has no slash. An @ or a colon
    in a file's name is written as %40 or %3A.
    """
    mark = r"@(?P<revision>[^:@]+)|:(?P<quant>[^/:@]+)|/(?P<file>[^:@]+)"
    found: dict[str, str] = {}
    place = 0
    while place < len(tail):
        one = re.compile(mark).match(tail, place)
        kind = one.lastgroup if one else None
        if one is None or kind is None or kind in found:
            _refuse(text, f"{quoted(tail[place:])} is not understood", _HUB_EXAMPLE)
        found[kind], place = one[kind], one.end()
        if kind == "revision":
            named = re.fullmatch(r"((?:refs/(?:pr|convert)/)?[^/]+)/(.+)", one[kind])
            if named and "file" not in found and _MODEL_FILE.fullmatch(named[2]):
                found["revision"], found["file"] = named.groups()
    if "file" in found:
        found["file"] = _ESCAPED.sub(lambda one: unquote(one[0]), found["file"])
    return found


_ESCAPED = re.compile("%(?:40|3A|25)", re.IGNORECASE)


def _escaped(file: str) -> str:
    """What `_qualified` reads as this file."""
    return re.sub("[@:]|%(?=40|3A|25)", lambda one: quote(one[0]), file, flags=re.IGNORECASE)


def _checked(text: str, address: HubAddress, found: dict[str, str]) -> HubAddress:
    if "revision" in found:
        found["revision"] = re.sub("%2F", "/", found["revision"], flags=re.IGNORECASE)
    if "quant" in found and not _QUANT.fullmatch(found["quant"]):
        _refuse(text, f"{quoted(found['quant'])} is not a name of a quant", _HUB_EXAMPLE)
    if "revision" in found and not (_REVISION.fullmatch(found["revision"]) and ".." not in found["revision"]):
        _refuse(text, f"{quoted(found['revision'])} is not a revision", _HUB_EXAMPLE)
    parts = found.get("file", "x").split("/")
    if any(part in ("", ".", "..") or not part.isprintable() or "\\" in part for part in parts):
        _refuse(text, f"{quoted(found['file'])} is not a file of a repository", _HUB_EXAMPLE)
    return replace(address, **found)


def _registry(text: str, host: str, path: str) -> RegistryAddress:
    path, at, digest = path.partition("@")
    repository, colon, tag = path.partition(":")
    if not _HOST.fullmatch(host):
        _refuse(text, f"{quoted(host)} is not a host", _OCI_EXAMPLE)
    if not _OCI_REPOSITORY.fullmatch(repository) or len(repository) > _MOST_REPOSITORY:
        _refuse(
            text,
            f"{quoted(repository)} is not a repository: lower-case letters, digits, `-`, `_`, `.`",
            _OCI_EXAMPLE,
        )
    if colon and not _TAG.fullmatch(tag):
        _refuse(text, f"{quoted(tag)} is not a tag", _OCI_EXAMPLE)
    if at and not _DIGEST.fullmatch(digest):
        _refuse(text, f"{quoted(digest)} is not a digest, which is sha256: and 64 digits", _OCI_EXAMPLE)
    return RegistryAddress(host.lower(), repository, tag or None, digest or None)


_OCI_EXAMPLE = (
    "Examples: oci://registry.example.org/models/story:q4, docker.io/ai/smollm2, ollama.com/library/x"
)


def _local_ollama(text: str, path: str) -> OllamaAddress:
    repository, colon, tag = path.partition(":")
    parts = repository.split("/")
    plain = all(re.fullmatch(_PART, part) and ".." not in part for part in parts)
    if not plain or len(parts) > 3 or (colon and not _TAG.fullmatch(tag)):
        _refuse(text, "it is not a name of Ollama's", "Examples: ollama:llama3.2, ollama:amy/story:q4")
    return OllamaAddress(repository if "/" in repository else f"library/{repository}", tag or "latest")


def _refuse(text: str, why: str, hint: str | None = None) -> NoReturn:
    # Whatever stands before an @ may be somebody's password.
    safe = re.sub(r"//[^/@]*@", "//...@", text[:_MOST_CHARACTERS])
    raise InvalidName(f"{quoted(safe)}: {why}", hint=hint)
