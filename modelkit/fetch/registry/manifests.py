"""Manifests, tags and referrers of a repository: the small documents of a registry.

A manifest counts by its own digest: where it was asked for by one it must have it, and what the header
Docker-Content-Digest says must be true. Its kind is what it says itself and what the answer says of it; where
the two disagree it is refused.
"""

import re
from collections.abc import Iterator
from typing import Any

from modelkit.errors import FetchError, StoreError
from modelkit.fetch.registry.client import NotThere, Registry, Request, pull_scope, push_scopes
from modelkit.fetch.registry.url import Url
from modelkit.store.canonical import JsonObject, parse_object
from modelkit.store.digest import Blob, Digest
from modelkit.store.index import INDEX_TYPE
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES, MANIFEST_TYPE, parse_descriptor
from runtime.quoting import quoted
from runtime.records import dataclass

DOCKER_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST_TYPE = "application/vnd.docker.distribution.manifest.list.v2+json"
INDEX_TYPES = (INDEX_TYPE, DOCKER_LIST_TYPE)
TYPES = (MANIFEST_TYPE, DOCKER_TYPE, *INDEX_TYPES)

_ACCEPT = ", ".join(TYPES)
_NEXT = re.compile(r'<([^<>]{1,4096})>\s*;\s*rel="?next"?')
_MOST_PAGES = 200
_MOST_TAGS = 20_000
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Document:
    """A manifest, or an index of some, as it came."""

    raw: bytes
    media_type: str
    value: JsonObject

    @property
    def blob(self) -> Blob:
        return Blob(Digest.of(self.raw), len(self.raw))


def get_manifest(
    registry: Registry, repository: str, reference: str, *, size_bytes: int | None = None
) -> Document:
    """The document that a tag or a digest stands for. size_bytes: what an index says that it has.

    Raises NotThere, FetchError.
    """
    request = Request(
        "GET",
        registry.at(repository, f"manifests/{reference}"),
        (pull_scope(repository),),
        headers=(("Accept", _ACCEPT),),
        what=f"{repository}{'@' if ':' in reference else ':'}{reference}",
    )
    with registry.call(request) as answer:
        raw = answer.read(MANIFEST_LIMIT_BYTES, "the manifest")
        said, promised = answer.header("content-type"), answer.header("docker-content-digest")
    digest = str(Digest.of(raw))
    if ":" in reference and digest != reference:
        raise FetchError(f"{registry.host} was asked for {reference} and sent {digest}")
    if promised is not None and promised.startswith("sha256:") and promised != digest:
        raise FetchError(f"{registry.host} says that it sends {quoted(promised)}, but sent {digest}")
    if size_bytes is not None and size_bytes != len(raw):
        raise FetchError(f"{digest} should have {size_bytes:,} bytes, but has {len(raw):,}")
    try:
        value = parse_object(raw, "the manifest", MANIFEST_LIMIT_BYTES)
    except StoreError as error:
        raise FetchError(f"what {registry.host} sent is not a manifest: {error.message}") from error
    return Document(raw, _media_type(registry.host, value, said), value)


def _media_type(host: str, value: JsonObject, said: str | None) -> str:
    """What the document is, where it and the answer's header agree."""
    header = (said or "").partition(";")[0].strip().lower()
    own: Any = value.get("mediaType")
    if own is None and header in TYPES:
        return header
    if not isinstance(own, str) or own not in TYPES:
        raise FetchError(f"what {host} sent is not a manifest but {quoted(own if own is not None else said)}")
    if header in TYPES and header != own:
        raise FetchError(f"{host} sends {own} as {header}; one of the two is wrong")
    return own


def has_manifest(registry: Registry, repository: str, digest: Digest) -> bool:
    """Does the registry have this very manifest under its digest?"""
    request = Request(
        "HEAD",
        registry.at(repository, f"manifests/{digest}"),
        (pull_scope(repository),),
        headers=(("Accept", _ACCEPT),),
        expected=(200, 404),
        what=f"{repository}@{digest.short}",
    )
    with registry.call(request) as answer:
        return answer.status == 200


def put_manifest(registry: Registry, repository: str, reference: str, raw: bytes, media_type: str) -> None:
    """Store a manifest under a tag. Everything that it names must be there. Raises FetchError."""
    request = Request(
        "PUT",
        registry.at(repository, f"manifests/{reference}"),
        push_scopes(repository),
        headers=(("Content-Type", media_type),),
        body=lambda: [raw],
        size_bytes=len(raw),
        expected=(200, 201, 202),
        what=f"the manifest of {repository}:{reference}",
    )
    with registry.call(request) as answer:
        found = answer.header("docker-content-digest")
    if found is not None and found != str(Digest.of(raw)):
        raise FetchError(
            f"{registry.host} has changed the manifest: it is {quoted(found)} there, not {Digest.of(raw)}"
        )


def tags(registry: Registry, repository: str) -> list[str]:
    """The tags of a repository, page after page. Raises FetchError."""
    found: list[str] = []
    for value in _pages(registry, repository, registry.at(repository, "tags/list?n=1000"), "the tags"):
        found += [one for one in _listed(value, "tags") if isinstance(one, str) and _TAG.fullmatch(one)]
        if len(found) > _MOST_TAGS:
            break
    return found[:_MOST_TAGS]


def referrers(registry: Registry, repository: str, digest: Digest) -> list[str]:
    """The kinds (artifact types) of what refers to a manifest: signatures, lists of parts.

    Where the registry does not know the question, the tag that older ones keep the answer under is asked.
    """
    url = registry.at(repository, f"referrers/{digest}")
    try:
        values = list(_pages(registry, repository, url, "the referrers"))
    except NotThere:
        try:
            values = [get_manifest(registry, repository, f"sha256-{digest.hex}").value]
        except FetchError:
            return []
    entries = [one for value in values for one in _listed(value, "manifests")]
    kinds = [one.get("artifactType") or one.get("mediaType") for one in entries if isinstance(one, dict)]
    return sorted({kind[:200] for kind in kinds if isinstance(kind, str) and kind.isprintable()})


def _listed(value: JsonObject, key: str) -> list[Any]:
    """What a stranger's answer lists under that name; nothing where that is not a list."""
    found: Any = value.get(key)
    return found if isinstance(found, list) else []


def _pages(registry: Registry, repository: str, url: Url, what: str) -> Iterator[JsonObject]:
    for _ in range(_MOST_PAGES):
        request = Request(
            "GET",
            url,
            (pull_scope(repository),),
            headers=(("Accept", _ACCEPT),),
            what=f"{what} of {repository}",
        )
        with registry.call(request) as answer:
            raw = answer.read(MANIFEST_LIMIT_BYTES, what)
            link = _NEXT.search(answer.header("link") or "")
        try:
            yield parse_object(raw, what, MANIFEST_LIMIT_BYTES)
        except StoreError as error:
            raise FetchError(f"{registry.host}: {error.message}") from error
        if link is None:
            return
        following = url.join(link[1])
        if following.origin != registry.url.origin:
            raise FetchError(
                f"{registry.host} has the next page of {what} on {following.host}; that is refused"
            )
        url = following


def model_of(registry: Registry, repository: str, document: Document) -> Document:
    """The one model in an index; a document that is none is returned as it is.

    Raises FetchError where an index has several, saying how to name one.
    """
    if document.media_type not in INDEX_TYPES:
        return document
    entries: Any = document.value.get("manifests")
    if not isinstance(entries, list) or len(entries) > 4096:
        raise FetchError("the index has no list of manifests")
    fitting = [one for one in entries if _may_be_model(one)]
    if len(fitting) > 1 and all(isinstance(one.get("platform"), dict) for one in fitting):
        raise FetchError(f"{repository} has one image for each platform: a container image, not a model")
    if len(fitting) != 1:
        choices = "".join(f"\n  {registry.host}/{repository}@{one.get('digest')}" for one in fitting[:20])
        raise FetchError(
            f"{repository} stands for {len(fitting)} packages; name the one that is meant"
            if fitting
            else f"the index at {repository} has no model",
            hint=f"By its digest:{choices}" if fitting else None,
        )
    try:
        blob = parse_descriptor(fitting[0])
    except StoreError as error:
        raise FetchError(error.message) from error
    found = get_manifest(registry, repository, str(blob.digest), size_bytes=blob.size_bytes)
    if found.media_type in INDEX_TYPES:
        raise FetchError("an index inside an index is not read")
    return found


def _may_be_model(entry: Any) -> bool:
    """A manifest, but none of those that build tools add about others."""
    if not isinstance(entry, dict) or entry.get("mediaType") not in (MANIFEST_TYPE, DOCKER_TYPE):
        return False
    notes: Any = entry.get("annotations")
    return not (isinstance(notes, dict) and "vnd.docker.reference.type" in notes)
