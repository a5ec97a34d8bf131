"""Models in GGUF from the hub, and from Ollama's and llama.cpp's folders."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import modelkit
from modelkit.cli.main import cli
from modelkit.store.digest import Digest
from modelkit.store.store import Store
from tests.support.gguf_llama import llama
from tests.support.hub import Hub, Repository

STORY = "hf.co/Amy/Story-GGUF"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {
        "story-Q4_K_M.gguf": llama(["q4_k", "q6_k"]),
        "story-Q8_0.gguf": llama(["q8_0"]),
        "LICENSE": b"Do as you like.\n",
        "mmproj-F16.gguf": b"GGUF",
    }


def provenance(home: Path, name: str) -> dict[str, object]:
    raw = Store(home).resolve(name).files["modelkit.json"].read_bytes()
    return json.loads(raw)["provenance"]["target"]["upstream"]


def test_one_quant_is_fetched_and_becomes_a_package(
    hub: Hub, tmp_path: Path, files: dict[str, bytes]
) -> None:
    hub.repositories["Amy/Story-GGUF"] = Repository(files)
    pulled = modelkit.pull(f"{STORY}:q8_0", home=tmp_path / "home")
    assert str(pulled.name) == "amy/story-gguf:q8_0"
    asked = {one.path.rpartition("/")[2] for one in hub.asked("/resolve/")}
    assert asked == {"story-Q8_0.gguf", "LICENSE"}
    package = Store(tmp_path / "home").resolve(pulled.name)
    assert package.files["LICENSE"].read_bytes() == files["LICENSE"]
    upstream = provenance(tmp_path / "home", "amy/story-gguf:q8_0")
    assert (upstream["quant"], upstream["commit"]) == ("Q8_0", "a" * 40)
    with modelkit.load(STORY, home=tmp_path / "home", num_ctx=64) as model:  # another quant: the usual one
        assert model.name == "amy/story-gguf"
        assert model.generate("a", raw=True, num_predict=2, temperature=0).ids
    (tmp_path / "Modelfile").write_text("FROM Amy/Story-GGUF\n")
    made = modelkit.create(tmp_path / "Modelfile", name="x", home=tmp_path / "other")
    assert any("huggingface_hub's cache" in note for note in made.notes)


@pytest.mark.parametrize("file", ["сказка-Q8_0.gguf", f"{'long' * 60}/{'name' * 60}.gguf"])
def test_a_file_of_any_name_gives_a_package_that_can_be_read(
    hub: Hub, tmp_path: Path, files: dict[str, bytes], file: str
) -> None:
    hub.repositories["Amy/Story-GGUF"] = Repository({file: files["story-Q8_0.gguf"]})
    home = tmp_path / "home"
    name = str(modelkit.pull(f"{STORY}/{file}", home=home).name)
    assert provenance(home, name)["file"] == file
    shown = CliRunner().invoke(cli, ["show", name], env={"MODELKIT_HOME": str(home)}).stdout
    assert f"/{file}@" in shown
    (tmp_path / "Modelfile").write_text(f"FROM {name}\nSYSTEM Hi\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="other", home=home)
    with modelkit.load(name, home=home, num_ctx=64) as model:
        assert model.name == name


def test_what_ollama_has_is_read_where_it_lies(tmp_path: Path, cache: Path, files: dict[str, bytes]) -> None:
    root = tmp_path / "ollama"
    layers = {
        "model": files["story-Q8_0.gguf"],
        "params": b'{"temperature": 0.5, "stop": ["x"], "num_gpu": 1}',
        "system": b"You are a pirate.",
        "license": b"MIT\n",
        "template": b"[INST]{{ .Prompt }}[/INST]",
    }
    (root / "blobs").mkdir(parents=True)
    listed: list[dict[str, object]] = []
    for kind, data in layers.items():
        digest = Digest.of(data)
        (root / "blobs" / f"sha256-{digest.hex}").write_bytes(data)
        media_type = f"application/vnd.ollama.image.{kind}"
        listed.append({"mediaType": media_type, "digest": str(digest), "size": len(data)})
    folder = root / "manifests" / "registry.ollama.ai" / "amy" / "story"
    folder.mkdir(parents=True)
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", **listed[0]}
    (folder / "1b").write_text(json.dumps({"schemaVersion": 2, "config": config, "layers": listed}))
    pulled = modelkit.pull("ollama:amy/story:1b", home=tmp_path / "home")
    assert str(pulled.name) == "amy/story:1b"
    package = Store(tmp_path / "home").resolve("amy/story:1b")
    assert "[INST]" in package.files["chat_template.jinja"].read_text()
    metadata = json.loads(package.files["modelkit.json"].read_bytes())
    assert metadata["system"] == "You are a pirate."
    assert metadata["parameters"] == {"temperature": 0.5, "stop": ["x"]}
    assert package.files["LICENSE"].read_bytes() == b"MIT\n"
    assert metadata["provenance"]["target"]["upstream"]["repository"] == "amy/story"
    (tmp_path / "Modelfile").write_text(
        "FROM ollama:amy/story:1b\nPARAMETER temperature 0.9\nSYSTEM Be brief.\n"
    )
    modelkit.create(tmp_path / "Modelfile", name="own", home=tmp_path / "home")
    own = json.loads(Store(tmp_path / "home").resolve("own").files["modelkit.json"].read_bytes())
    assert own["system"] == "Be brief."
    assert own["parameters"] == {"temperature": 0.9, "stop": ["x"]}


def test_a_gguf_of_llama_cpps_is_loaded_by_its_name(
    tmp_path: Path, cache: Path, files: dict[str, bytes]
) -> None:
    folder = tmp_path / ".cache" / "llama.cpp"
    folder.mkdir(parents=True)
    (folder / "Amy_Story-GGUF_story-Q8_0.gguf").write_bytes(files["story-Q8_0.gguf"])
    with modelkit.load("Amy/Story-GGUF", home=tmp_path / "home", num_ctx=64) as model:
        assert any("llama.cpp's folder" in note for note in model.notes)
