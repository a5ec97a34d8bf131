"""A package out of a registry. `name` stands for it when all of it is here and right; before, nothing has
changed but files that the next attempt goes on with.

    our own packages, and any ModelPack of plain files    stored as they are: the same digest
    archives, Docker's models                             their files, in a manifest of ours
    GGUF, Ollama's packages                               made into a package by `create`, as FROM does it
"""

from collections.abc import Mapping
from typing import Any

from modelkit.address import RegistryAddress
from modelkit.errors import FetchError, StoreError
from modelkit.fetch.access import Access
from modelkit.fetch.ollama import OllamaManifest
from modelkit.fetch.pull import Foresee, Judge, Make, Pulled
from modelkit.fetch.registry.client import NotThere, Registry
from modelkit.fetch.registry.early_check import judge_early
from modelkit.fetch.registry.gguf import GgufFiles, Making, pull_ollama
from modelkit.fetch.registry.kinds import RemotePackage, is_ollama, read_package
from modelkit.fetch.registry.manifests import Document, get_manifest, model_of, referrers, tags
from modelkit.fetch.registry.origin import keep_origin
from modelkit.fetch.registry.run_settings import settings_of
from modelkit.fetch.registry.source import Source, fetch, open_registry
from modelkit.fetch.registry.unpack import unpack
from modelkit.fetch.registry.wire import Limits
from modelkit.source.gguf.folder import is_gguf
from modelkit.store.artifact import Artifact, build_artifact, parse_config
from modelkit.store.canonical import JsonObject, parse_object
from modelkit.store.digest import Blob, Digest
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES, Manifest
from modelkit.store.name import Name
from modelkit.store.outline import FILE as OUTLINE
from modelkit.store.store import Store

_TAGS_SHOWN = 10


def pull(
    address: RegistryAddress,
    name: Name,
    store: Store,
    access: Access,
    make: Make,
    *,
    foresee: Foresee | None = None,
    judge: Judge | None = None,
    quantize: str | None = None,
    limits: Limits | None = None,
) -> Pulled:
    """Fetch a package. make: packages what is none yet; foresee: asked before its weights are fetched;
    judge: asked of what is one already, before its weights are fetched and before it gets its name; quantize:
    a word of QUANTIZE for it.

    Raises FetchError, StoreError, and what `create` raises.
    """
    access.require(str(address))
    with open_registry(address, insecure=access.insecure, limits=limits) as registry:
        registry.ping()
        document = model_of(registry, address.repository, _manifest(registry, address))
        source = Source(address, registry, document)
        making = Making(source, name, store, access, make, foresee, quantize)
        if address.dialect == "ollama" or is_ollama(document.value):
            return pull_ollama(making, OllamaManifest.parse(document.raw))
        return _pull_package(making, read_package(document.value), judge)


def _manifest(registry: Registry, address: RegistryAddress) -> Document:
    """Raises NotThere, naming what tags there are."""
    try:
        return get_manifest(registry, address.repository, address.reference)
    except NotThere as error:
        raise NotThere(error.message, hint=_choices(registry, address)) from error


def _choices(registry: Registry, address: RegistryAddress) -> str | None:
    try:
        found = tags(registry, address.repository)
    except FetchError:
        return None
    more = f" and {len(found) - _TAGS_SHOWN} more" if len(found) > _TAGS_SHOWN else ""
    return f"Its tags are {', '.join(found[:_TAGS_SHOWN])}{more}." if found else None


def _pull_package(making: Making, package: RemotePackage, judge: Judge | None) -> Pulled:
    source, name, store, quantize = making.source, making.name, making.store, making.quantize
    has_gguf = any(map(is_gguf, package.files))
    if quantize is not None and not (package.has_archives or has_gguf):
        raise _made_already(source, name)
    with store.begin() as new:
        if has_gguf and not package.has_archives:
            making.judge(GgufFiles({layer.path: layer.blob for layer in package.layers}), new)
        elif judge is not None and not has_gguf:
            judge_early(making, package, judge, new)
        fetch(source, package.blobs, store, new, making.access)
        config = store.blob_path(package.config.digest).read_bytes()
        files = unpack(package, new, store)
        weights = [path for path in files if is_gguf(path)]
        if weights:
            return making.package(GgufFiles(files, settings_of(config), notes=package.notes))
        if OUTLINE in files:  # of which machines here would fetch weights wherever somebody else says
            raise FetchError(
                f"{source.address} is the outline of another package, as `pull --outline` makes one here",
                hint="Pull the package itself, with --outline where no machine has room for it.",
            )
        own = _as_it_is(source.document.raw, config)
        artifact = own or build_artifact(files, **_facts(config))
        if "config.json" not in files:
            raise FetchError(f"{source.address} holds no config.json, so it cannot be run here")
        if quantize is not None:
            raise _made_already(source, name)
        notes = [*package.notes, *_unset(config), *_judged(making, files, judge)]
        digest = new.commit(name, artifact)
    if own is not None:
        keep_origin(store, digest, source.address)
    else:
        there = source.document.blob.digest
        notes.append(f"its files are stored in a manifest of modelkit's; there it is {there}")
    return Pulled(name, digest, artifact.size_bytes, (*notes, *_signatures(source)))


def _judged(making: Making, files: Mapping[str, Blob], judge: Judge | None) -> tuple[str, ...]:
    """Notes on a package that is here and may get its name. Raises what keeps it from running."""
    if judge is None:
        return ()
    paths = {path: making.store.blob_path(blob.digest) for path, blob in files.items()}
    return judge(paths, making.label, "here")


def _unset(config: bytes) -> list[str]:
    """Settings of a config whose files are stored as they are, with no place for these."""
    return [
        f"its config says {one.name} {one.value}, which is not kept; `-p {one.name}={one.value}` sets it"
        for one in settings_of(config).directives
    ]


def _made_already(source: Source, name: Name) -> FetchError:
    return FetchError(
        f"{source.address} is a package already, which a pull does not quantize",
        hint=f"Pull it without --quantize, and create another one with FROM {name} and --quantize.",
    )


def _as_it_is(raw: bytes, config: bytes) -> Artifact | None:
    """The two documents, where the store takes them unchanged."""
    try:
        parse_config(config, Manifest.parse(raw))
    except StoreError:
        return None
    return Artifact(raw, config)


def _facts(raw: bytes) -> dict[str, JsonObject]:
    """What a config of others says that one of ours can say, too."""
    try:
        value = parse_object(raw, "the package's config", MANIFEST_LIMIT_BYTES)
    except StoreError:
        return {}
    facts: dict[str, JsonObject] = {}
    for part in ("descriptor", "config"):
        given: Any = value.get(part)
        facts[part] = {}
        for key, one in given.items() if isinstance(given, dict) else ():
            try:
                build_artifact({"x": Blob(Digest.of(b""), 0)}, **{part: {key: one}})
            except StoreError:
                continue  # none of ModelPack's keys, such as `createdAt`, which would change the digest
            facts[part][key] = one
    return facts


def _signatures(source: Source) -> list[str]:
    """That there are signatures, which nobody here checks."""
    try:
        kinds = referrers(source.registry, source.address.repository, source.document.blob.digest)
    except FetchError:
        return []
    return (
        [f"others have attached to it: {', '.join(kinds[:5])}; signatures are not checked here"]
        if kinds
        else []
    )
