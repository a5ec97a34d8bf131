"""`/api/push`, `/api/pull` and `/api/create` with adapters, end to end: a real store, a registry on loopback,
a LoRA as PEFT writes it, and Ollama's official client.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import ollama
import pytest

import modelkit
from modelkit.server.ollama.recipes import _adapters  # pyright: ignore[reportPrivateUsage]
from modelkit.showing.facts import facts_of
from modelkit.store import Store
from tests.support.fake_registry import Auth, FakeRegistry
from tests.support.peft_folders import gguf_case, write_peft
from tests.support.tiny import CONFIG, TEMPLATE, llama_shapes, write_model

ASK = {"model": "", "prompt": "Once", "stream": False, "options": {"temperature": 0, "num_predict": 12}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    write_model(folder / "model", template=TEMPLATE)
    (folder / "Modelfile").write_text("FROM ./model\nSYSTEM Be brief.\nPARAMETER top_k 7\n")
    modelkit.create(folder / "Modelfile", name="story", home=folder / "home")
    write_peft(folder / "verse", gguf_case(llama_shapes(CONFIG)))
    return folder / "home"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    with FakeRegistry() as running:
        yield running


def digest(home: Path, name: str) -> str:
    return str(Store(home).resolve(name).digest)


def test_out_and_back(client: ollama.Client, home: Path, registry: FakeRegistry) -> None:
    name = f"{registry.host}/amy/story:q4"
    client.copy("story", name)
    lines = list(client.push(name, stream=True))
    assert lines[-1].status == "success"
    assert any(line.completed and line.completed == line.total for line in lines)
    assert ("amy/story", "q4") in registry.manifests
    client.delete(name)
    assert client.pull(name).status == "success"
    assert digest(home, name) == digest(home, "story")
    sent = registry.count("PUT", "/blobs/")
    assert client.push(name).status == "success"
    assert registry.count("PUT", "/blobs/") == sent  # what is there already does not travel
    client.delete(name)


def test_a_registry_that_lets_nobody_in(address: str, client: ollama.Client, registry: FakeRegistry) -> None:
    registry.auth = Auth("basic")
    name = f"{registry.host}/amy/story:q4"
    client.copy("story", name)
    answer = httpx.post(f"{address}/api/push", json={"model": name, "stream": False})
    assert answer.status_code >= 400
    assert "modelkit login" in answer.json()["error"]
    assert registry.auth.password not in answer.text
    client.delete(name)


def test_a_registry_that_is_not_there(address: str, client: ollama.Client) -> None:
    client.copy("story", "127.0.0.1:9/amy/story")
    answer = httpx.post(f"{address}/api/push", json={"model": "127.0.0.1:9/amy/story", "stream": False})
    assert (answer.status_code, "cannot reach" in answer.json()["error"]) == (502, True)
    client.delete("127.0.0.1:9/amy/story")


def sent(client: ollama.Client, folder: Path) -> dict[str, str]:
    return {one.name: client.create_blob(one) for one in sorted(folder.iterdir())}


def answered(address: str, model: str) -> str:
    return httpx.post(f"{address}/api/generate", json={**ASK, "model": model}).json()["response"]


def test_an_adapter_is_added_to_a_package(client: ollama.Client, home: Path, address: str) -> None:
    """It answers as the same package made by a Modelfile does, and otherwise than its base."""
    files = sent(client, home.parent / "verse")
    assert client.create("voiced", from_="story", adapters=files).status == "success"
    (home.parent / "Voiced").write_text("FROM story\nADAPTER ./verse\n")
    modelkit.create(home.parent / "Voiced", name="wanted", home=home)
    said = {name: answered(address, name) for name in ("story", "voiced", "wanted")}
    assert said["voiced"] == said["wanted"] != said["story"]
    assert "ADAPTER" in (client.show("voiced").modelfile or "")
    for name in ("voiced", "wanted"):
        client.delete(name)


def test_model_and_adapter_are_both_sent(client: ollama.Client, home: Path, address: str) -> None:
    files = sent(client, home.parent / "model")
    adapters = {f"verse/{name}": one for name, one in sent(client, home.parent / "verse").items()}
    assert client.create("both", files=files, adapters=adapters, quantize="q8").status == "success"
    assert answered(address, "both")
    assert [one["name"] for one in facts_of(Store(home), Store(home).resolve("both"))["adapters"]] == [
        "verse"
    ]
    client.delete("both")


@pytest.mark.parametrize(
    ("files", "places"),
    [
        (["adapter_config.json", "adapter_model.safetensors"], [""]),
        (["a/adapter_config.json", "a/adapter_model.safetensors", "b/c/x.json", "b/c/y.bin"], ["/a", "/b/c"]),
        (["law.gguf"], ["/law.gguf"]),
        (["law.gguf", "verse.gguf"], ["/law.gguf", "/verse.gguf"]),
    ],
)
def test_how_many_adapters_some_files_are(files: list[str], places: list[str]) -> None:
    assert _adapters(files) == places


def test_an_adapter_that_does_not_fit_is_refused(
    client: ollama.Client, home: Path, tmp_path: Path, address: str
) -> None:
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    wrong = {
        f"{module}.lora_A.weight": np.ones((3, 7), np.float32),
        f"{module}.lora_B.weight": np.ones((64, 3), np.float32),
    }
    files: Any = sent(client, write_peft(tmp_path / "odd", wrong))
    body = {"model": "odd", "from": "story", "adapters": files, "stream": False}
    answer = httpx.post(f"{address}/api/create", json=body)
    assert answer.status_code == 400
    assert "q_proj" in answer.json()["error"]
    assert "staging" not in answer.text  # where the server keeps files is nobody's business
    body["adapters"] = {"adapter_model.safetensors": "sha256:" + "0" * 64}
    answer = httpx.post(f"{address}/api/create", json=body)
    assert (answer.status_code, "was not sent" in answer.json()["error"]) == (400, True)
    assert not list((home / "staging").glob("use-*"))
