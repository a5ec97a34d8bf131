"""What the layers of a manifest are, whoever wrote it: files, archives of files, or things left out.

Read are ModelPack artifacts (raw files and tar archives), Docker's own models, with what Docker Model Runner
writes into ModelPack's. Ollama's manifests have a reader of their own (`modelkit.fetch.ollama`). All else is
refused by its name. Pure: documents in, values out; every path goes through `store.paths`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from modelkit.errors import FetchError, StoreError
from modelkit.source.gguf.folder import is_gguf
from modelkit.store.canonical import JsonObject
from modelkit.store.digest import Blob
from modelkit.store.manifest import (
    CONFIG_TYPE,
    FILEPATH,
    LAYER_LIMIT,
    MANIFEST_LIMIT_BYTES,
    check_sizes,
    parse_descriptor,
)
from modelkit.store.paths import check_path, check_tree
from runtime.quoting import quoted, shown
from runtime.records import dataclass

Packing = Literal["raw", "tar", "tar+gzip", "tar+zstd"]

_PACK = "application/vnd.cncf.model."
_DOCKER = "application/vnd.docker.ai."
_DOCKER_CONFIG = f"{_DOCKER}model.config.v0."
_PACKINGS: tuple[Packing, ...] = ("raw", "tar", "tar+gzip", "tar+zstd")
_KEPT = ("weight", "weight.config", "doc")
_LEFT_OUT = {"code": "code is never run from a package", "dataset": "data is not part of a package"}
_TITLE = "org.opencontainers.image.title"

# Docker's layers that need no name: one of each is what a model has.
_DOCKER_FILES = {
    f"{_DOCKER}gguf.v3": "model.gguf",
    f"{_DOCKER}safetensors": "model.safetensors",
    f"{_DOCKER}chat.template.jinja": "chat_template.jinja",
    f"{_DOCKER}license": "LICENSE",
    f"{_PACK}weight.v1.gguf": "model.gguf",
    f"{_PACK}weight.v1.safetensors": "model.safetensors",
}

# Where a model has several of a kind, Docker's order is their number.
_SEVERAL = {
    "model.gguf": "model-{0:05}-of-{1:05}.gguf",
    "model.safetensors": "model-{0:05}-of-{1:05}.safetensors",
    "LICENSE": "LICENSE-{0}",
}

# Config and tokenizer of a model in safetensors; folders such as 1_Pooling.
_DOCKER_ARCHIVES = (f"{_DOCKER}vllm.config.tar", f"{_DOCKER}dir.tar")
_DOCKER_ADAPTER = f"{_DOCKER}gguf.v3.lora"

# Kinds that are known, and not read.
_OTHERS = {
    "application/vnd.kitops.modelkit.": "a package of KitOps",
    "application/vnd.jozu.": "a package of KitOps",
    "application/vnd.oci.image.config.v1": "a container image, not a model",
    "application/vnd.docker.container.image.v1": "a container image, not a model",
    "application/vnd.cncf.helm.": "a Helm chart, not a model",
    "application/vnd.oci.empty.v1": "an artifact without a config",
}


@dataclass(frozen=True, slots=True)
class RemoteLayer:
    """One layer that is wanted."""

    blob: Blob
    packing: Packing
    path: str
    """Of the file in the package; of an archive only what messages call it."""


@dataclass(frozen=True, slots=True)
class RemotePackage:
    """What a manifest of others says, checked."""

    config: Blob
    layers: tuple[RemoteLayer, ...]
    notes: tuple[str, ...]
    """What is left out, in sentences."""

    @property
    def blobs(self) -> list[Blob]:
        return [self.config, *(layer.blob for layer in self.layers)]

    @property
    def files(self) -> list[str]:
        """Paths of those that come as they are."""
        return [layer.path for layer in self.layers if layer.packing == "raw"]

    @property
    def has_archives(self) -> bool:
        """Are there any? What is in them is known when they are here."""
        return any(layer.packing != "raw" for layer in self.layers)


def read_package(value: JsonObject) -> RemotePackage:
    """Read an untrusted manifest. Raises FetchError, which names the kind of what is not read."""
    config, layers = value.get("config"), value.get("layers")
    _check_kind(value.get("artifactType"), config.get("mediaType") if isinstance(config, dict) else None)
    if not isinstance(layers, list) or not 1 <= len(layers) <= LAYER_LIMIT:
        raise FetchError(f"a package has 1 to {LAYER_LIMIT} layers")
    wanted: list[RemoteLayer] = []
    notes: list[str] = []
    try:
        for one in layers:
            layer = _layer(one, notes)
            if layer is not None:
                wanted.append(layer)
        package = RemotePackage(parse_descriptor(config), _numbered(wanted), tuple(dict.fromkeys(notes)))
        check_tree(package.files)
        check_sizes(package.blobs)
    except StoreError as error:
        raise FetchError(error.message, hint=error.hint) from error
    if package.config.size_bytes > MANIFEST_LIMIT_BYTES:
        raise FetchError(f"the package's config has {package.config.size_bytes:,} bytes; that is refused")
    known = "config.json" in package.files or any(map(is_gguf, package.files))
    if not (package.has_archives or known):
        raise FetchError(
            "the package has no config.json and no GGUF file, so it is not a model that can run here"
        )
    return package


def is_ollama(value: JsonObject) -> bool:
    """Has it layers of Ollama's?"""
    layers: Any = value.get("layers")
    kinds = (
        [one.get("mediaType") for one in layers if isinstance(one, dict)] if isinstance(layers, list) else []
    )
    return any(isinstance(kind, str) and kind.startswith("application/vnd.ollama.") for kind in kinds)


def _check_kind(artifact: object, config: object) -> None:
    for kind in (artifact, config):
        for prefix, name in _OTHERS.items():
            if isinstance(kind, str) and kind.startswith(prefix):
                raise FetchError(
                    f"this is {name}", hint="Read are ModelPack artifacts, Docker's and Ollama's models."
                )
    if config != CONFIG_TYPE and not (isinstance(config, str) and config.startswith(_DOCKER_CONFIG)):
        raise FetchError(f"an artifact of the kind {quoted(config)} is not read")


def _layer(value: Any, notes: list[str]) -> RemoteLayer | None:
    """One layer, or None where it is left out, which is noted."""
    blob = parse_descriptor(value)
    media_type, annotations = value.get("mediaType"), value.get("annotations")
    named = _path(annotations if isinstance(annotations, dict) else {})
    if not isinstance(media_type, str):
        raise FetchError("a layer does not say what it is")
    if media_type in _DOCKER_FILES or media_type == f"{_DOCKER}model.file":
        return RemoteLayer(blob, "raw", check_path(named or _DOCKER_FILES.get(media_type)))
    if media_type in _DOCKER_ARCHIVES:
        return RemoteLayer(blob, "tar", named or "archive")
    if media_type == _DOCKER_ADAPTER:  # without which it would be another model
        raise FetchError("its LoRA adapter, a layer of Docker's, is not read")
    kind, mark, packing = media_type.removeprefix(_PACK).partition(".v1.")
    if media_type.startswith(_PACK) and mark and packing in _PACKINGS:
        if kind in _LEFT_OUT:
            notes.append(f"a layer with {kind} is left out: {_LEFT_OUT[kind]}")
            return None
        if kind in _KEPT:
            return RemoteLayer(blob, packing, check_path(named) if packing == "raw" else named or "archive")
    if media_type.startswith(_DOCKER):
        notes.append(f"a layer of the kind {shown(media_type)} is left out: it has no meaning here")
        return None
    raise FetchError(f"a layer of the kind {quoted(media_type)} is not read")


def _path(annotations: Mapping[str, Any]) -> str | None:
    found = annotations.get(FILEPATH, annotations.get(_TITLE))
    return found if isinstance(found, str) else None


def _numbered(layers: Sequence[RemoteLayer]) -> tuple[RemoteLayer, ...]:
    """Files that nobody has named, of several of a kind: by their numbers."""
    of, before = Counter(layer.path for layer in layers if layer.packing == "raw"), Counter[str]()
    numbered: list[RemoteLayer] = []
    for layer in layers:
        path = layer.path
        if layer.packing == "raw" and path in _SEVERAL and of[path] > 1:
            before[path] += 1
            path = _SEVERAL[path].format(before[path], of[path])
        numbered.append(replace(layer, path=path))
    return tuple(numbered)
