"""Manifests: one spelling for the same files, and nothing doubtful accepted from outside."""

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.errors import StoreError
from modelkit.store import Blob, Digest, build_artifact
from modelkit.store.artifact import parse_config
from modelkit.store.canonical import canonical
from modelkit.store.manifest import Manifest, layers_of, media_type_of

FILES = {
    path: Blob(Digest.of(path.encode()), 10 + len(path))
    for path in ("README.md", "config.json", "draft/model.safetensors", "model.safetensors", "tokenizer.json")
}
ARTIFACT = build_artifact(FILES, descriptor={"family": "llama"}, config={"format": "safetensors"})


def test_a_manifest_reads_back_as_itself():
    manifest = Manifest.parse(ARTIFACT.manifest)
    assert manifest.to_bytes() == ARTIFACT.manifest
    assert {layer.path: layer.blob for layer in manifest.layers} == FILES


def test_the_manifest_is_a_modelpack_artifact():
    value = json.loads(ARTIFACT.manifest)
    assert value["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"
    assert value["config"]["mediaType"] == "application/vnd.cncf.model.config.v1+json"
    kinds = {each["annotations"]["org.cncf.model.filepath"]: each["mediaType"] for each in value["layers"]}
    assert kinds["model.safetensors"] == "application/vnd.cncf.model.weight.v1.raw"
    assert kinds["tokenizer.json"] == "application/vnd.cncf.model.weight.config.v1.raw"
    assert kinds["README.md"] == "application/vnd.cncf.model.doc.v1.raw"


def test_the_config_lists_the_layers_in_order():
    value = json.loads(ARTIFACT.config)
    layers = json.loads(ARTIFACT.manifest)["layers"]
    assert value["modelfs"] == {"type": "layers", "diffIds": [layer["digest"] for layer in layers]}
    assert set(value) == {"descriptor", "config", "modelfs"}


@given(st.permutations(sorted(FILES)))
def test_the_order_of_the_files_given_does_not_matter(order: list[str]):
    again = build_artifact(
        {path: FILES[path] for path in order},
        config={"format": "safetensors"},
        descriptor={"family": "llama"},
    )
    assert again == ARTIFACT


def test_shards_stand_in_their_natural_order():
    names = [f"model-{n}-of-12.safetensors" for n in (10, 2, 1, 12)]
    blob = Blob(Digest.of(b""), 0)
    assert [layer.path for layer in layers_of(dict.fromkeys(names, blob))] == [
        names[2],
        names[1],
        names[0],
        names[3],
    ]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("model.safetensors", "weight"),
        ("adapters/1/ADAPTERS.SafeTensors", "weight"),
        ("model.safetensors.index.json", "weight.config"),
        ("chat_template.jinja", "weight.config"),
        ("LICENSE", "doc"),
        ("draft/license.txt", "doc"),
        ("USE_POLICY.md", "doc"),
        ("readme-first.json", "doc"),
        ("licenses.json", "weight.config"),
    ],
)
def test_the_kind_of_a_layer_follows_its_name(path: str, kind: str):
    assert media_type_of(path) == f"application/vnd.cncf.model.{kind}.v1.raw"


@pytest.mark.parametrize(
    "wrong",
    [
        {"descriptor": {"createdAt": "2026-01-01T00:00:00Z"}},
        {"descriptor": {"family": 7}},
        {"config": {"bits": "4"}},
        {"config": {"capabilities": {"tools": True}}},
        {"config": {"capabilities": {"toolUsage": "yes"}}},
        {"config": {"capabilities": []}},
    ],
)
def test_facts_outside_the_modelpack_schema_are_refused(wrong: dict[str, Any]):
    with pytest.raises(StoreError):
        build_artifact(FILES, **wrong)


def test_a_package_has_files():
    with pytest.raises(StoreError, match="1 to 4,096 files"):
        build_artifact({})


def test_too_many_files_are_refused():
    with pytest.raises(StoreError, match="1 to 4,096 files"):
        build_artifact({f"{n}.json": Blob(Digest.of(b""), 0) for n in range(4097)})


Change = Callable[[dict[str, Any]], object]

WRONG: dict[str, Change] = {
    "schema version": lambda m: m.update(schemaVersion=1),
    "docker manifest": lambda m: m.update(mediaType="application/vnd.docker.distribution.manifest.v2+json"),
    "another artifact": lambda m: m.update(artifactType="application/vnd.example+json"),
    "artifact type no text": lambda m: m.update(artifactType={"a": "\x1b[2J"}),
    "no config": lambda m: m.pop("config"),
    "config no object": lambda m: m.update(config="sha256:x"),
    "image config": lambda m: m["config"].update(mediaType="application/vnd.oci.image.config.v1+json"),
    "no layers": lambda m: m.pop("layers"),
    "empty layers": lambda m: m.update(layers=[]),
    "layers no list": lambda m: m.update(layers={"0": m["layers"][0]}),
    "layer no object": lambda m: m["layers"].append(7),
    "tar layer": lambda m: m["layers"][0].update(mediaType="application/vnd.cncf.model.weight.v1.tar"),
    "code layer": lambda m: m["layers"][0].update(mediaType="application/vnd.cncf.model.code.v1.raw"),
    "media type no text": lambda m: m["layers"][0].update(mediaType=["a"]),
    "digest traversal": lambda m: m["layers"][0].update(digest="sha256:../../../../etc/passwd"),
    "digest missing": lambda m: m["layers"][0].pop("digest"),
    "size negative": lambda m: m["layers"][0].update(size=-1),
    "size true": lambda m: m["layers"][0].update(size=True),
    "size float": lambda m: m["layers"][0].update(size=1.0),
    "size text": lambda m: m["layers"][0].update(size="1"),
    "size huge": lambda m: m["layers"][0].update(size=2**63),
    "no path": lambda m: m["layers"][0].pop("annotations"),
    "path traversal": lambda m: m["layers"][0].update(annotations={"org.cncf.model.filepath": "../x"}),
    "path no text": lambda m: m["layers"][0].update(annotations={"org.cncf.model.filepath": 7}),
    "annotations no object": lambda m: m["layers"][0].update(annotations=[]),
    "path twice": lambda m: m["layers"].append(copy.deepcopy(m["layers"][0])),
    "two sizes of one digest": lambda m: m["layers"][1].update(digest=m["layers"][0]["digest"]),
    "4097 layers": lambda m: m.update(layers=m["layers"][:1] * 4097),
    "5 MiB": lambda m: m.update(annotations={"a": "x" * (5 << 20)}),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_manifest_is_refused(change: Change):
    value = json.loads(ARTIFACT.manifest)
    change(value)
    with pytest.raises(StoreError) as caught:
        Manifest.parse(canonical(value))
    assert caught.value.message.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("sha256:" + "0" * 64),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(["schemaVersion", "mediaType", "config", "layers", "annotations", "artifactType"]), JSON
)
def test_a_manifest_with_any_part_replaced_is_read_or_refused(key: str, value: object):
    with contextlib.suppress(StoreError):
        Manifest.parse(canonical({**json.loads(ARTIFACT.manifest), key: value}))


@given(st.data(), JSON)
def test_a_layer_with_any_part_replaced_is_read_or_refused(data: st.DataObject, value: object):
    manifest = json.loads(ARTIFACT.manifest)
    layer = data.draw(st.sampled_from(manifest["layers"]))
    layer[data.draw(st.sampled_from(sorted(layer)))] = value
    with contextlib.suppress(StoreError):
        Manifest.parse(canonical(manifest))


@pytest.mark.parametrize(
    "config",
    [
        b"{}",
        b"[]",
        b'{"descriptor":{},"config":{},"modelfs":{"type":"layers","diffIds":[]}}',
        b'{"modelfs":[]}',
    ],
)
def test_a_config_that_does_not_fit_its_manifest_is_refused(config: bytes):
    with pytest.raises(StoreError):
        parse_config(config, Manifest.parse(ARTIFACT.manifest))
