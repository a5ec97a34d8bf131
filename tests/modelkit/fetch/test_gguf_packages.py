"""GGUF files from registries: what is fetched reaches `create`, and nothing of it stays behind."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from modelkit.chat.find import find_template
from modelkit.errors import FetchError, PlanError, UnsupportedSource
from modelkit.fetch.access import Access
from modelkit.fetch.ollama import LAYER_PREFIX
from modelkit.fetch.registry.manifests import DOCKER_TYPE
from modelkit.pack import pulling
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import read_metadata
from modelkit.store import Digest, Name, Store
from tests.modelkit.fetch.conftest import QUICK, at, pull
from tests.modelkit.store.packages import blobs_on_disk
from tests.support import gguf_llama
from tests.support.fake_registry import Call, FakeRegistry, digest_of, whole_fetches

NAME = Name.parse("back")
MODEL = b"GGUF" + bytes(9999)
MODEL_Q4 = gguf_llama.llama(["q4_0"])


@dataclass
class Made:
    digest: Digest
    size_bytes: int
    notes: tuple[str, ...]


class Builder:
    """In the place of `build`: keeps what it was given."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def __call__(self, recipe: Any, name: Name, store: Store, **given: Any) -> Made:
        local = given["access"].here[recipe.from_.address]
        self.seen = {
            "files": {path: place.read_bytes() for path, place in local.files.items()},
            "gguf": local.gguf.name,
            "directives": [f"{one.keyword} {one.name or ''} {one.value}" for one in local.directives],
            "adapters": {
                one.label: [path.read_bytes() for path in one.files.values()] for one in local.adapters
            },
            "upstream": local.upstream.to_json(),
            "promised": {place.name: str(digest) for place, digest in local.promised.items()},
            "quantize": given["quantize"],
            "folder": local.gguf.parent,
        }
        return Made(Digest.of(b""), 1, local.notes)


@pytest.fixture
def builder() -> Builder:
    return Builder()


def offer_ollama(registry: FakeRegistry, *layers: tuple[str, bytes]) -> str:
    described = [
        {"mediaType": LAYER_PREFIX + kind, **registry.put_blob("library/story", data)}
        for kind, data in layers
    ]
    config = {
        "mediaType": "application/vnd.docker.container.image.v1+json",
        **registry.put_blob("library/story", b"{}"),
    }
    value = {"schemaVersion": 2, "mediaType": DOCKER_TYPE, "config": config, "layers": described}
    return registry.put_manifest("library/story", "q4", value, DOCKER_TYPE)


@pytest.mark.parametrize("dialect", ["ollama", "oci"])
def test_a_package_of_ollamas(dialect: Any, store: Store, registry: FakeRegistry, builder: Builder) -> None:
    digest = offer_ollama(
        registry,
        ("model", MODEL),
        ("adapter", b"GGUF adapter"),
        ("projector", b"GGUF images"),
        ("template", b"{{ .Prompt }}"),
        ("system", b"Be terse."),
        ("params", json.dumps({"temperature": 0.5}).encode()),
        ("license", b"MIT"),
    )
    address = replace(at(registry, "library/story"), dialect=dialect)
    pulled = pull(address, NAME, store, Access(), builder, limits=QUICK, quantize="q4")
    seen = builder.seen
    assert seen["files"] == {"model.gguf": MODEL}
    assert seen["adapters"] == {"adapter-1": [b"GGUF adapter"]}
    assert (seen["gguf"], seen["quantize"]) == ("model.gguf", "q4")
    assert seen["directives"] == [
        "TEMPLATE  {{ .Prompt }}",
        "SYSTEM  Be terse.",
        "PARAMETER temperature 0.5",
        "LICENSE  MIT",
    ]
    assert seen["promised"]["model.gguf"] == digest_of(MODEL)
    assert (seen["upstream"]["commit"], seen["upstream"]["requested"]) == (digest, "q4")
    assert [note.partition(":")[0] for note in pulled.notes] == ["its projector is left out"]
    assert not seen["folder"].exists()
    assert blobs_on_disk(store) == set()
    assert not any(digest_of(b"GGUF images") in path for _, path, _ in registry.log)


def test_a_model_of_dockers_in_gguf(store: Store, registry: FakeRegistry, builder: Builder) -> None:
    config = {
        "mediaType": "application/vnd.docker.ai.model.config.v0.1+json",
        **registry.put_blob("ai/story", b'{"config":{"format":"gguf"}}'),
    }
    layers = [
        {"mediaType": "application/vnd.docker.ai.gguf.v3", **registry.put_blob("ai/story", MODEL)},
        {"mediaType": "application/vnd.docker.ai.license", **registry.put_blob("ai/story", b"MIT")},
    ]
    registry.put_manifest("ai/story", "q4", {"schemaVersion": 2, "config": config, "layers": layers})
    pull(at(registry, "ai/story"), NAME, store, Access(), builder, limits=QUICK)
    assert builder.seen["files"] == {"model.gguf": MODEL, "LICENSE": b"MIT"}


@pytest.mark.parametrize(
    ("size", "directives", "notes"),
    [(4096, ["PARAMETER num_ctx 4096"], 0), (None, [], 0), (-1, [], 1), ("long", [], 1)],
)
def test_the_context_of_a_model_of_dockers_is_that_of_its_config(
    store: Store, registry: FakeRegistry, builder: Builder, size: object, directives: list[str], notes: int
) -> None:
    said = json.dumps({"config": {"format": "gguf", "context_size": size}}).encode()
    kind = "application/vnd.docker.ai."
    config = {"mediaType": f"{kind}model.config.v0.1+json", **registry.put_blob("ai/story", said)}
    layers = [{"mediaType": f"{kind}gguf.v3", **registry.put_blob("ai/story", MODEL)}]
    registry.put_manifest("ai/story", "q4", {"schemaVersion": 2, "config": config, "layers": layers})
    pulled = pull(at(registry, "ai/story"), NAME, store, Access(), builder, limits=QUICK)
    assert builder.seen["directives"] == directives
    assert sum("context_size" in note for note in pulled.notes) == notes


def test_the_chat_template_beside_a_model_in_gguf_is_its_own(store: Store, registry: FakeRegistry) -> None:
    kind = "application/vnd.docker.ai."
    config = {"mediaType": f"{kind}model.config.v0.1+json", **registry.put_blob("ai/story", b"{}")}
    parts = ("gguf.v3", gguf_llama.llama(["q8_0"])), ("chat.template.jinja", b"{{ messages[0].content }}!")
    layers = [{"mediaType": kind + name, **registry.put_blob("ai/story", data)} for name, data in parts]
    registry.put_manifest("ai/story", "q4", {"schemaVersion": 2, "config": config, "layers": layers})
    pull(at(registry, "ai/story"), NAME, store, Access(), limits=QUICK)
    assert find_template(store.resolve("back").files) == "{{ messages[0].content }}!"


def test_shards_in_gguf_of_dockers_are_numbered(
    store: Store, registry: FakeRegistry, builder: Builder
) -> None:
    kind = "application/vnd.docker.ai."
    config = {"mediaType": f"{kind}model.config.v0.1+json", **registry.put_blob("ai/story", b"{}")}
    shards = [{"mediaType": f"{kind}gguf.v3", **registry.put_blob("ai/story", one)} for one in (MODEL, b"2")]
    registry.put_manifest("ai/story", "q4", {"schemaVersion": 2, "config": config, "layers": shards})
    pull(at(registry, "ai/story"), NAME, store, Access(), builder, limits=QUICK)
    names = "model-00001-of-00002.gguf", "model-00002-of-00002.gguf"
    assert (builder.seen["files"], builder.seen["gguf"]) == ({names[0]: MODEL, names[1]: b"2"}, names[0])


def test_gguf_is_told_in_capitals_too(store: Store, registry: FakeRegistry, builder: Builder) -> None:
    kind = "application/vnd.cncf.model."
    layer = {
        "mediaType": kind + "weight.v1.raw",
        **registry.put_blob("amy/story", MODEL),
        "annotations": {"org.cncf.model.filepath": "STORY.GGUF"},
    }
    config = {"mediaType": kind + "config.v1+json", **registry.put_blob("amy/story", b"{}")}
    registry.put_manifest("amy/story", "q4", {"schemaVersion": 2, "config": config, "layers": [layer]})
    pull(at(registry), NAME, store, Access(), builder, limits=QUICK)
    assert builder.seen["files"] == {"STORY.GGUF": MODEL}


def test_two_models_are_one_too_many(store: Store, registry: FakeRegistry, builder: Builder) -> None:
    kind = "application/vnd.cncf.model."
    layers = [
        {
            "mediaType": kind + "weight.v1.raw",
            **registry.put_blob("amy/story", name.encode()),
            "annotations": {"org.cncf.model.filepath": name},
        }
        for name in ("a.gguf", "b.gguf", "mmproj.gguf")
    ]
    config = {"mediaType": kind + "config.v1+json", **registry.put_blob("amy/story", b"{}")}
    registry.put_manifest("amy/story", "q4", {"schemaVersion": 2, "config": config, "layers": layers})
    with pytest.raises(FetchError, match="2 models in GGUF"):
        pull(at(registry), NAME, store, Access(), builder, limits=QUICK)


def test_what_cannot_be_packaged_leaves_nothing(store: Store, registry: FakeRegistry) -> None:
    def refuse(*_: Any, **__: Any) -> Made:
        raise PlanError("no")

    offer_ollama(registry, ("model", MODEL))
    with pytest.raises(PlanError):
        pull(at(registry, "library/story"), NAME, store, Access(), refuse, limits=QUICK)
    assert (store.packages(), blobs_on_disk(store)) == ([], set())
    assert not list(Path(store.root / "partial").iterdir())


def test_what_is_small_is_judged_before_the_weights_are_fetched(
    store: Store, registry: FakeRegistry, builder: Builder
) -> None:
    offer_ollama(registry, ("model", MODEL), ("params", b"{"))
    address = replace(at(registry, "library/story"), dialect="ollama")
    with pytest.raises(FetchError, match="not valid JSON"):
        pull(address, NAME, store, Access(), builder, limits=QUICK)
    assert registry.count("GET", digest_of(MODEL)) == 0


def test_a_model_in_gguf_is_packaged(store: Store, registry: FakeRegistry) -> None:
    model = gguf_llama.llama(["q4_0", "q6_k"])
    digest = offer_ollama(registry, ("model", model), ("system", b"Be terse."), ("license", b"MIT"))
    address = replace(at(registry, "library/story"), dialect="ollama")
    pulled = pulling.pull(address, store, Access(), name=NAME)
    package = store.resolve("back")
    assert (pulled.digest, package.name) == (package.digest, NAME)
    made = read_metadata(package.files[METADATA], "back")
    assert made.system == "Be terse."
    assert made.provenance is not None
    assert made.provenance.upstream is not None
    assert made.provenance.upstream.commit == digest
    assert digest_of(model)[7:] not in blobs_on_disk(store)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No weights are so small that they are fetched unseen."""
    monkeypatch.setattr("modelkit.fetch.registry.gguf.MOMENT_BYTES", 0)


@pytest.mark.usefixtures("at_once")
def test_what_headers_refuse_is_not_fetched(store: Store, registry: FakeRegistry) -> None:
    model = gguf_llama.llama(["f32"], more={"general.architecture": "nonsense"})
    offer_ollama(registry, ("model", model))
    address = replace(at(registry, "library/story"), dialect="ollama")
    with pytest.raises(UnsupportedSource, match="the architecture `nonsense`, which modelkit does not run"):
        pulling.pull(address, store, Access(), name=NAME)
    assert whole_fetches(registry, model) == 0
    assert (store.packages(), blobs_on_disk(store)) == ([], set())


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("ranges", [True, False])
def test_what_headers_allow_is_fetched_once(ranges: bool, store: Store, registry: FakeRegistry) -> None:
    def answer_whole(call: Call) -> bool:
        if ranges or digest_of(MODEL_Q4) not in call.path:
            return False
        return call.answer(200, MODEL_Q4)

    registry.rules.append(answer_whole)
    offer_ollama(registry, ("model", MODEL_Q4), ("system", b"Be terse."))
    address = replace(at(registry, "library/story"), dialect="ollama")
    pulling.pull(address, store, Access(), name=NAME)
    assert read_metadata(store.resolve("back").files[METADATA], "back").system == "Be terse."
    assert whole_fetches(registry, MODEL_Q4) == 1


OWN = "{% for turn in messages %}[{{ turn.role }}]{{ turn.content }}{% endfor %}"
LLAMA_2 = "[INST] <<SYS>>{{ .System }}<</SYS>>\n\n{{ .Prompt }} [/INST]"


@pytest.mark.parametrize(
    ("layer", "own", "used", "said"),
    [
        (LLAMA_2, None, "<<SYS>>", ""),
        (LLAMA_2, OWN, OWN, "its template is one of Ollama's (Go); the one in the model's own file is used"),
        ("{{ .Prompt }}", None, "", "the model has no chat template; it takes plain prompts only"),
        ("{{ if }}", None, "", "its template is left out: the Go template, line 1"),
        ("{% if %}", OWN, OWN, "its template is left out: chat template, line 1"),
    ],
)
def test_a_template_of_ollamas_is_used_where_the_model_has_none(
    layer: str, own: str | None, used: str, said: str, store: Store, registry: FakeRegistry
) -> None:
    more = {} if own is None else {"tokenizer.chat_template": own}
    offer_ollama(registry, ("model", gguf_llama.llama(["f32"], more=more)), ("template", layer.encode()))
    address = replace(at(registry, "library/story"), dialect="ollama")
    pulled = pulling.pull(address, store, Access(), name=NAME)
    found = find_template(store.resolve("back").files)
    assert used in found if found else not used
    about = [note for note in pulled.notes if "template" in note]
    assert about[0].startswith(said) if said else not about
