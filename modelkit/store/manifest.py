"""The manifest of a package, as pure data: which files, in which order, under which digests.

An OCI image manifest carrying a ModelPack artifact (CNCF model-spec, docs/spec.md): every layer is one whole
file, its path in the annotation `org.cncf.model.filepath`. Nothing in it depends on when or where it was
made: the same files give the same bytes.

`Manifest.parse` takes bytes from anywhere and checks everything before anything is used: kinds, counts,
sizes, digests, paths. Bounds: 4 MiB (what registries take), for the config too, and 4096 layers.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from modelkit.errors import StoreError
from modelkit.store.canonical import JsonObject, canonical, parse_object
from modelkit.store.digest import Blob, Digest
from modelkit.store.paths import check_path, check_tree
from runtime.quoting import quoted
from runtime.records import dataclass

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE = "application/vnd.cncf.model.manifest.v1+json"
CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
WEIGHT_TYPE = "application/vnd.cncf.model.weight.v1.raw"
WEIGHT_CONFIG_TYPE = "application/vnd.cncf.model.weight.config.v1.raw"
DOC_TYPE = "application/vnd.cncf.model.doc.v1.raw"
LAYER_TYPES = (WEIGHT_TYPE, WEIGHT_CONFIG_TYPE, DOC_TYPE)
FILEPATH = "org.cncf.model.filepath"

MANIFEST_LIMIT_BYTES = 4 << 20
LAYER_LIMIT = 4096
BLOB_LIMIT_BYTES = 16 << 40

_WEIGHTS = (".safetensors", ".gguf")
_DOC = re.compile(
    r"(license|licence|copying|notice|readme|use_policy)([._-].*)?|.*\.(md|rst|pdf)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One file of a package."""

    path: str
    blob: Blob
    media_type: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checked manifest: the config's blob and the files, in the order of the layers."""

    config: Blob
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        check_files([layer.path for layer in self.layers])
        check_sizes((self.config, *(layer.blob for layer in self.layers)))
        if self.config.size_bytes > MANIFEST_LIMIT_BYTES:
            raise StoreError(
                f"the package's config has {self.config.size_bytes:,} bytes; at most"
                f" {MANIFEST_LIMIT_BYTES:,} are expected"
            )

    @property
    def blobs(self) -> frozenset[Blob]:
        """Everything the manifest refers to, each once."""
        return frozenset((self.config, *(layer.blob for layer in self.layers)))

    def to_bytes(self) -> bytes:
        raw = canonical(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "artifactType": ARTIFACT_TYPE,
                "config": _descriptor(CONFIG_TYPE, self.config),
                "layers": [
                    {**_descriptor(layer.media_type, layer.blob), "annotations": {FILEPATH: layer.path}}
                    for layer in self.layers
                ],
            }
        )
        if len(raw) > MANIFEST_LIMIT_BYTES:
            raise StoreError(
                f"the manifest would be {len(raw):,} bytes; registries take {MANIFEST_LIMIT_BYTES:,}"
            )
        return raw

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Read an untrusted manifest. Raises StoreError, saying what is wrong, for all but a ModelPack of raw
        layers.
        """
        value = parse_object(raw, "the manifest", MANIFEST_LIMIT_BYTES)
        if value.get("schemaVersion") != 2 or value.get("mediaType", MANIFEST_TYPE) != MANIFEST_TYPE:
            raise StoreError("this is not an OCI image manifest of schema version 2")
        if value.get("artifactType", ARTIFACT_TYPE) != ARTIFACT_TYPE:
            raise StoreError(f"this is not a model package but {quoted(value['artifactType'])}")
        config = value.get("config")
        _check_type(config, (CONFIG_TYPE,), "config")
        layers = value.get("layers")
        if not isinstance(layers, list) or len(layers) > LAYER_LIMIT:
            raise StoreError(f"a manifest has a list of at most {LAYER_LIMIT} layers")
        return cls(parse_descriptor(config), tuple(_parse_layer(layer) for layer in layers))


def check_files(paths: Collection[str]) -> None:
    """Raise StoreError where files of these paths cannot be one package."""
    if not 1 <= len(paths) <= LAYER_LIMIT:
        raise StoreError(f"a package has 1 to {LAYER_LIMIT:,} files, not {len(paths):,}")
    check_tree(check_path(path) for path in paths)


def check_sizes(blobs: Iterable[Blob]) -> None:
    """Raise StoreError where a manifest gives one digest two sizes."""
    sizes: dict[Digest, int] = {}
    for blob in blobs:
        if sizes.setdefault(blob.digest, blob.size_bytes) != blob.size_bytes:
            raise StoreError(f"a manifest gives two sizes for {blob.digest}")


def layers_of(files: Mapping[str, Blob]) -> tuple[Layer, ...]:
    """The layers for a package's files, by path with numbers in their natural order (shard 2 before shard
    10).
    """
    return tuple(Layer(path, files[path], media_type_of(path)) for path in sorted(files, key=_natural))


def media_type_of(path: str) -> str:
    """Weights, documentation, or else something a loader reads beside the weights."""
    name = path.rpartition("/")[2]
    if name.lower().endswith(_WEIGHTS):
        return WEIGHT_TYPE
    return DOC_TYPE if _DOC.fullmatch(name) else WEIGHT_CONFIG_TYPE


def parse_descriptor(value: object) -> Blob:
    """The blob that an untrusted OCI descriptor names. Raises StoreError."""
    if not isinstance(value, dict):
        raise StoreError("a descriptor in a manifest is not a JSON object")
    size = value.get("size")
    if type(size) is not int or not 0 <= size <= BLOB_LIMIT_BYTES:
        raise StoreError(
            f"the size of a blob is {quoted(size)}; 0 to {BLOB_LIMIT_BYTES:,} bytes are expected"
        )
    return Blob(Digest.parse(value.get("digest")), size)


def _parse_layer(value: object) -> Layer:
    media_type = _check_type(value, LAYER_TYPES, "layer")
    blob = parse_descriptor(value)
    annotations: Any = value.get("annotations") if isinstance(value, dict) else None
    if not isinstance(annotations, dict) or FILEPATH not in annotations:
        raise StoreError(f"the layer {blob.digest} has no file path ({FILEPATH})")
    return Layer(check_path(annotations[FILEPATH]), blob, media_type)


def _check_type(value: object, known: tuple[str, ...], part: str) -> str:
    media_type: object = value.get("mediaType") if isinstance(value, dict) else None
    if not isinstance(media_type, str) or media_type not in known:
        raise StoreError(
            f"a {part} of the kind {quoted(media_type)} is not one modelkit reads",
            hint=f"It reads {', '.join(known)}: whole files, not archives.",
        )
    return media_type


def _descriptor(media_type: str, blob: Blob) -> JsonObject:
    return {"mediaType": media_type, "digest": str(blob.digest), "size": blob.size_bytes}


def _natural(path: str) -> tuple[list[tuple[int, str]], str]:
    pieces = re.split(r"([0-9]+)", path)
    return [
        (int(piece), "") if piece.isdecimal() and piece.isascii() else (-1, piece) for piece in pieces
    ], path
