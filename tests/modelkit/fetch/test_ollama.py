"""Ollama's manifests and their small layers become directives and notes; nothing in them is believed."""

import json
from typing import Any

import pytest

from modelkit.errors import FetchError, StoreError
from modelkit.fetch.ollama import LAYER_PREFIX, OllamaManifest, belongings
from modelkit.store.digest import Blob, Digest


class Package:
    """A manifest and its small layers."""

    def __init__(self, *layers: tuple[str, bytes], **changes: Any) -> None:
        self.blobs = {Digest.of(data): data for _, data in layers}
        value = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": self.described("application/vnd.docker.container.image.v1+json", b"{}"),
            "layers": [self.described(LAYER_PREFIX + kind, data) for kind, data in layers],
        }
        self.raw = json.dumps({**value, **changes}).encode()

    @staticmethod
    def described(media_type: str, data: bytes) -> dict[str, Any]:
        return {"mediaType": media_type, "digest": str(Digest.of(data)), "size": len(data)}

    def read(self, blob: Blob) -> bytes:
        return self.blobs[blob.digest]


def lines(package: Package) -> tuple[list[str], tuple[str, ...]]:
    found = belongings(OllamaManifest.parse(package.raw), package.read)
    return [f"{d.keyword} {d.name or ''} {d.value}" for d in found.directives], found.notes


def test_small_layers_become_directives() -> None:
    params = {"stop": ["<a>", "<b>"], "temperature": 0.5, "num_ctx": 4096, "mirostat": 2}
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    found, notes = lines(
        Package(
            ("model", b"GGUF"),
            ("template", b"{{ if .System }}{{ .System }}{{ end }}"),
            ("system", b"Old."),
            ("system", b"Be terse."),
            ("params", json.dumps(params).encode()),
            ("messages", json.dumps(turns).encode()),
            ("license", b"MIT"),
            ("projector", b"PROJ"),
        )
    )
    assert found == [
        "TEMPLATE  {{ if .System }}{{ .System }}{{ end }}",
        "SYSTEM  Be terse.",
        "PARAMETER stop <a>",
        "PARAMETER stop <b>",
        "PARAMETER temperature 0.5",
        "PARAMETER num_ctx 4096",
        "MESSAGE user Hi",
        "MESSAGE assistant Hello",
        "LICENSE  MIT",
    ]
    assert [note.split(":")[0] for note in notes] == [
        "its parameter 'mirostat' is left out",
        "its projector is left out",
    ]


def test_of_several_values_for_one_parameter_the_last_counts() -> None:
    params = (b'{"temperature": [0.2, 0.5], "stop": "<a>"}', b'{"temperature": 0.7, "stop": "<b>"}')
    found, _ = lines(Package(("model", b"GGUF"), *(("params", one) for one in params)))
    assert found == ["PARAMETER stop <a>", "PARAMETER temperature 0.7", "PARAMETER stop <b>"]


def test_of_too_many_stop_strings_the_first_are_kept() -> None:
    found, notes = lines(Package(("model", b"GGUF"), ("params", json.dumps({"stop": ["x"] * 999}).encode())))
    assert found == ["PARAMETER stop x"] * 16
    assert notes == ("of its 999 stop strings the first 16 are kept",)


def test_a_template_is_kept() -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert lines(Package(("model", b"GGUF"), ("template", template.encode()))) == (
        [f"TEMPLATE  {template}"],
        (),
    )


def test_the_model_is_the_one_layer_of_its_kind() -> None:
    assert OllamaManifest.parse(Package(("model", b"GGUF")).raw).gguf("x").size_bytes == 4
    for layers in ([("model", b"A"), ("model", b"B")], [("system", b"A")]):
        with pytest.raises(FetchError, match=r"^x has \d layers with a model; exactly one"):
            OllamaManifest.parse(Package(*layers).raw).gguf("x")


@pytest.mark.parametrize("kinds", [["tensor"], ["json"], ["tensor", "json", "model"]])
def test_a_package_of_single_tensors_is_refused_by_name(kinds: list[str]) -> None:
    with pytest.raises(FetchError, match=r"^x is one of Ollama's packages for MLX") as refused:
        OllamaManifest.parse(Package(*((kind, kind.encode()) for kind in kinds)).raw).gguf("x")
    assert "modelkit pull hf.co/" in str(refused.value.hint)


@pytest.mark.parametrize(
    "changes",
    [
        {"schemaVersion": 1},
        {"layers": []},
        {"layers": "all"},
        {"layers": [Package.described(LAYER_PREFIX + "model", b"x")] * 5000},
        {"layers": [Package.described("application/vnd.ollama.image.virus", b"x")]},
        {"layers": [{**Package.described(LAYER_PREFIX + "model", b"x"), "size": -1}]},
        {"layers": [{**Package.described(LAYER_PREFIX + "model", b"x"), "digest": "sha256:../../x"}]},
        {
            "layers": [
                Package.described(LAYER_PREFIX + "model", b"x"),
                {**Package.described(LAYER_PREFIX + "model", b"x"), "size": 5},
            ]
        },
        {"config": None},
    ],
)
def test_a_manifest_that_is_wrong_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(StoreError):
        OllamaManifest.parse(Package(("model", b"GGUF"), **changes).raw)


@pytest.mark.parametrize(
    "layer",
    [
        ("params", b"[1]"),
        ("params", b"{"),
        ("params", json.dumps(dict.fromkeys(map(str, range(999)))).encode()),
        ("params", b"\xff"),
        ("messages", b'[{"role": "user"}]'),
        ("messages", b"{}"),
        ("system", b"x" * ((1 << 20) + 1)),
    ],
)
def test_a_small_layer_that_is_wrong_is_refused(layer: tuple[str, bytes]) -> None:
    with pytest.raises(FetchError):
        lines(Package(("model", b"GGUF"), layer))
