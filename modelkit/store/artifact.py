"""From a package's files to the two JSON documents that make them an artifact: the manifest and the config.

The config is ModelPack's (docs/config.md): `descriptor` says what the model is, `config` what it is
technically, `modelfs` repeats the layers' digests. It has no timestamp, so the same files and facts give the
same two documents.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import StoreError
from modelkit.store.canonical import JsonObject, canonical, parse_object
from modelkit.store.digest import Blob, Digest
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES, Manifest, layers_of
from runtime.quoting import quoted
from runtime.records import dataclass

_DESCRIPTOR_KEYS = {
    **dict.fromkeys(
        ("family", "name", "version", "revision", "vendor", "title", "description", "docURL", "sourceURL"),
        str,
    ),
    **dict.fromkeys(("authors", "licenses", "datasetsURL"), list),
}
_CONFIG_KEYS = {
    **dict.fromkeys(("architecture", "format", "paramSize", "precision", "quantization"), str),
    "capabilities": dict,
}
_CAPABILITY_KEYS = {
    **dict.fromkeys(("inputTypes", "outputTypes", "languages"), list),
    **dict.fromkeys(("reasoning", "toolUsage", "reward"), bool),
    "knowledgeCutoff": str,
}


@dataclass(frozen=True, slots=True)
class Artifact:
    """The bytes of a manifest and of the config it names. `Transaction.commit` takes both."""

    manifest: bytes
    config: bytes

    @property
    def size_bytes(self) -> int:
        """What the whole package takes: the two documents, and every file of it once."""
        return len(self.manifest) + sum(blob.size_bytes for blob in Manifest.parse(self.manifest).blobs)


def build_artifact(
    files: Mapping[str, Blob],
    *,
    descriptor: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Artifact:
    """The artifact for `files` (path in the package -> stored blob).

    `descriptor` and `config` hold ModelPack's keys of those names (`family`, `licenses`; `architecture`,
    `format`, `paramSize`, `precision`, `quantization`, `capabilities`). An unknown key, or a value of the
    wrong type, is a StoreError, as are paths that cannot stand in one folder.
    """
    layers = layers_of(files)
    _check_keys("descriptor", descriptor or {}, _DESCRIPTOR_KEYS)
    _check_keys("config", config or {}, _CONFIG_KEYS)
    _check_keys("config.capabilities", (config or {}).get("capabilities", {}), _CAPABILITY_KEYS)
    raw = canonical(
        {
            "descriptor": dict(descriptor or {}),
            "config": dict(config or {}),
            "modelfs": {"type": "layers", "diffIds": [str(layer.blob.digest) for layer in layers]},
        }
    )
    return Artifact(Manifest(Blob(Digest.of(raw), len(raw)), layers).to_bytes(), raw)


def parse_config(raw: bytes, manifest: Manifest) -> JsonObject:
    """Read an untrusted config. It must have ModelPack's three parts and list the manifest's layers."""
    value = parse_object(raw, "the package's config", MANIFEST_LIMIT_BYTES)
    parts = [value.get(key) for key in ("descriptor", "config", "modelfs")]
    if not all(isinstance(part, dict) for part in parts):
        raise StoreError("the package's config must have the objects `descriptor`, `config` and `modelfs`")
    expected = [str(layer.blob.digest) for layer in manifest.layers]
    if value["modelfs"].get("diffIds") != expected:
        raise StoreError("the package's config lists other layers than its manifest")
    return value


def _check_keys(where: str, given: Mapping[str, Any], known: Mapping[str, type]) -> None:
    for key, value in given.items():
        if key not in known:
            raise StoreError(f"{where} has no key {quoted(key)} in ModelPack; it has {', '.join(known)}")
        if not isinstance(value, known[key]):
            raise StoreError(f"{where}.{key} must be {known[key].__name__}, not {type(value).__name__}")
