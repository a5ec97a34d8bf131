"""Ollama's routes about packages, through its official client, on a store of a tiny model."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest

from modelkit.errors import ModelkitError
from modelkit.server.http.own_headers import IGNORED
from modelkit.server.ollama import descriptions
from modelkit.server.ollama.recipes import _fit  # pyright: ignore[reportPrivateUsage] -- paths of strangers
from modelkit.store import Package, Store
from tests.support.tiny import TEMPLATE


def names(home: Path) -> set[str]:
    return {package.name.short for package in Store(home).packages()}


def test_tags_list_what_is_there(client: ollama.Client, home: Path, address: str) -> None:
    found = {one.model: one for one in client.list().models}["amy/story:q4"]
    package = Store(home).resolve("amy/story:q4")
    assert (found.digest, found.size) == (package.digest.hex, package.size_bytes)
    assert found.details is not None
    assert (found.details.format, found.details.family) == ("safetensors", "llama")
    assert (found.details.parameter_size or "")[-1] == "K"
    raw = {one["name"]: one for one in httpx.get(f"{address}/api/tags").json()["models"]}["amy/story:q4"]
    assert raw["capabilities"] == ["completion"]
    assert datetime.fromisoformat(raw["modified_at"]).tzinfo == UTC


def test_what_a_package_can_is_looked_at_again_where_that_went_wrong(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def facts(store: Store, package: Package) -> dict[str, Any]:
        asked.append(str(package.digest))
        if len(asked) == 1:
            raise ModelkitError("a file cannot be read")
        return {"capabilities": ["completion", "tools"]}

    monkeypatch.setattr(descriptions, "facts_of", facts)
    monkeypatch.setattr(descriptions, "_TRIED", {})
    told = [descriptions.tags(home)["models"][0]["capabilities"] for _ in range(3)]
    assert told == [["completion"], ["completion", "tools"], ["completion", "tools"]]
    assert len(asked) == 2


def test_a_source_that_is_not_there_is_told_without_our_folders(address: str, home: Path) -> None:
    answer = httpx.post(f"{address}/api/create", json={"model": "new", "from": "none", "stream": False})
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("request:1:1: there is no file, folder or stored model 'none'")
    assert str(home) not in answer.text


def test_show_tells_what_a_package_holds(client: ollama.Client, address: str) -> None:
    found = client.show("amy/story:q4")
    assert found.capabilities == ["completion"]
    assert (found.modelinfo or {})["llama.context_length"] == 256
    assert found.template == TEMPLATE
    assert "top_k 7" in (found.parameters or "").split("\n")
    assert "" not in (found.parameters or "").split("\n")
    assert "SYSTEM Be brief." in (found.modelfile or "")
    more = httpx.post(f"{address}/api/show", json={"name": "amy/story:q4", "verbose": True}).json()
    assert {"name", "type", "shape"} == more["tensors"][0].keys()
    with pytest.raises(ollama.ResponseError, match="no model") as raised:
        client.show("none")
    assert raised.value.status_code == 404


def test_what_is_loaded_is_in_ps_until_it_leaves(client: ollama.Client, address: str) -> None:
    client.generate("amy/story:q4", keep_alive=-1)
    (one,) = client.ps().models
    assert (one.name, one.context_length) == ("amy/story:q4", 256)
    assert one.size is not None
    (row,) = httpx.get(f"{address}/modelkit/v1/ps").json()["models"]
    assert one.size_vram == one.size == row["taken_bytes"] < row["size_bytes"]
    assert one.expires_at is not None
    assert one.expires_at.year > 2300
    assert client.generate("amy/story:q4", keep_alive=0).done_reason == "unload"
    answer = httpx.post(f"{address}/api/generate", json={"model": "none", "keep_alive": 0})
    assert answer.status_code == 404


def test_only_packages_that_are_loaded_are_looked_at_for_ps(
    client: ollama.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A monitor asks every second, and to list a package its files are read."""
    opened, whole = list[str](), Store.resolve

    def resolve(store: Store, name: Any) -> Package:
        opened.append(str(name))
        return whole(store, name)

    monkeypatch.setattr(Store, "resolve", resolve)
    monkeypatch.setattr(Store, "packages", lambda _: pytest.fail("all were read"))
    assert client.ps().models == []
    assert opened == []
    client.generate("amy/story:q4", keep_alive="1h")
    opened.clear()
    (one,) = client.ps().models
    assert one.details is not None
    assert one.details.family == "llama"
    assert opened == ["amy/story:q4"]
    client.generate("amy/story:q4", keep_alive=0)


def test_what_is_loaded_is_told_where_the_store_cannot_be_read(client: ollama.Client, home: Path) -> None:
    client.generate("amy/story:q4", keep_alive="1h")
    index = home / "store" / "index.json"
    kept = index.read_bytes()
    index.write_bytes(b"{")
    try:
        (found,) = client.ps().models
    finally:
        index.write_bytes(kept)
        client.generate("amy/story:q4", keep_alive=0)
    assert found.model == "amy/story:q4"


def test_a_name_is_copied_and_deleted(client: ollama.Client, home: Path) -> None:
    assert client.copy("amy/story:q4", "other").status == "success"
    assert "other:latest" in names(home)
    assert client.delete("other").status == "success"
    assert "other:latest" not in names(home)
    for call in (lambda: client.copy("none", "x"), lambda: client.delete("none")):
        with pytest.raises(ollama.ResponseError) as raised:
            call()
        assert raised.value.status_code == 404


def test_names_with_the_default_namespace_are_those_without_it(client: ollama.Client, home: Path) -> None:
    client.copy("amy/story:q4", "library/other")
    assert "other:latest" in names(home)
    assert client.show("library/other").capabilities == ["completion"]
    assert client.generate("library/other", options={"num_predict": 1}).done
    assert list(client.create("terse", from_="library/other:latest", stream=True))[-1].status == "success"
    assert client.show("registry.ollama.ai/library/other").capabilities == ["completion"]
    for name in ("ollama.com/library/other", "library/terse"):
        client.delete(name)
    assert not {"other:latest", "terse:latest"} & names(home)


def test_a_package_is_made_from_another(client: ollama.Client, home: Path) -> None:
    lines = list(
        client.create(
            "terse",
            from_="amy/story:q4",
            system="One word.",
            parameters={"temperature": 0.5, "stop": ["a", "b"], "num_ctx": 128},
            messages=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
            license="MIT",
            stream=True,
        )
    )
    assert lines[-1].status == "success"
    shown = client.show("terse")
    assert 'stop "a"' in (shown.parameters or "")
    assert "SYSTEM One word." in (shown.modelfile or "")
    assert "MESSAGE user Hi" in (shown.modelfile or "")
    client.delete("terse")


def test_texts_of_a_package_are_any(client: ollama.Client, address: str) -> None:
    code = 'def f():\n    """One."""\n    return """\n'
    said: Any = [{"role": "user", "content": code}, {"role": "assistant", "content": ""}]
    client.create("coder", from_="amy/story:q4", system=code, license=code, messages=said)
    shown = httpx.post(f"{address}/api/show", json={"model": "coder"}).json()
    assert (shown["system"], shown["license"], shown["messages"]) == (code, code, said)
    assert "All of it comes with FROM" in shown["modelfile"]
    client.delete("coder")
    with pytest.raises(ollama.ResponseError, match=r"messages\[0\].role is .*, expected one of system, user"):
        client.create("coder", from_="amy/story:q4", messages=[{"role": "tool", "content": "x"}])


@pytest.mark.parametrize("links", [True, False])
def test_a_package_is_made_from_files_that_were_sent(
    client: ollama.Client, home: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some disks know no second name of a file."""
    if not links:

        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr("modelkit.server.ollama.recipes.os.link", refuse)
    folder = home.parent / "model"
    files = {one.name: client.create_blob(one) for one in folder.iterdir()}
    answer = client.create("sent", files=files, quantize="q4")
    assert answer.status == "success"
    assert client.show("sent").details.quantization_level.startswith("q4")  # pyright: ignore
    assert not list((home / "staging").glob("use-*"))
    client.delete("sent")


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        (
            "amy/story:q4",
            400,
            "amy/story:q4 names no registry to push to; copy it to a name",
        ),
        ("none", 404, "no model"),
    ],
)
def test_a_push_of_a_name_without_a_registry_says_what_was_expected(
    address: str, name: str, status: int, said: str
) -> None:
    answer = httpx.post(f"{address}/api/push", json={"model": name, "stream": False})
    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
    assert "''" not in answer.text


def test_a_field_that_nobody_knows_is_named(address: str) -> None:
    """In the order in which the body has them; null carries nothing."""
    more = {"surely_unknown": 1, "systen": "typed wrongly", "nothing": None}
    for method, path, body in (
        ("POST", "create", {"model": "odd", "from": "amy/story:q4", "stream": False}),
        ("POST", "show", {"model": "odd", "verbose": False}),
        ("POST", "copy", {"source": "odd", "destination": "odder"}),
        ("DELETE", "delete", {"name": "odder"}),
        ("DELETE", "delete", {"model": "odd"}),
    ):
        answer = httpx.request(method, f"{address}/api/{path}", json={**body, **more})
        assert (answer.status_code, answer.headers[IGNORED]) == (200, "surely_unknown, systen"), path


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "neither 'from' or 'files'"),
        ({"from": "/etc"}, "name"),
        ({"from": "../model"}, "name"),
        ({"from": "./model"}, "name"),
        ({"from": "none"}, "none"),
        ({"files": {"../x": "sha256:" + "0" * 64}}, "not a relative"),
        ({"files": {"x": ""}}, "digest of a file"),
        ({"files": {"config.json": "sha256:" + "0" * 64}}, "was not sent"),
        ({"from": "amy/story:q4", "parameters": {"what": 1}}, "unknown parameter"),
        ({"from": "amy/story:q4", "parameters": {"top_k": "x"}}, "top_k"),
        ({"from": "amy/story:q4", "quantize": "q99"}, "q99"),
        ({"from": "amy/story:q4", "messages": [{"content": "x"}]}, "messages[0].role is missing"),
        ({"from": "amy/story:q4", "remote_host": "x"}, "remote_host"),
        ({"modelfile": "FROM amy/story:q4"}, "modelfile: an older form"),
        ({"files": {"test.gguf": "sha256:e3b0c4"}, "quantize": "q4_k_m"}, "digest"),
    ],
)
def test_what_cannot_be_made_is_refused(address: str, home: Path, body: dict[str, Any], text: str) -> None:
    before = names(home)
    answer = httpx.post(f"{address}/api/create", json={"model": "new", **body})
    assert answer.status_code in (400, 404), answer.text
    assert text in answer.json()["error"]
    assert names(home) == before


@pytest.mark.parametrize("field", ["files", "adapters"])
@pytest.mark.parametrize(
    "paths", [["a" * 300], ["é" * 200], ["a", "a/b"], ["a/b", "a"]], ids=lambda one: one[0][:3]
)
def test_files_that_cannot_lie_beside_each_other_are_refused(
    address: str, home: Path, field: str, paths: list[str]
) -> None:
    digest = f"sha256:{hashlib.sha256(b'abc').hexdigest()}"
    httpx.post(f"{address}/api/blobs/{digest}", content=b"abc")
    body = {
        "model": "new",
        "from": "amy/story:q4" if field == "adapters" else "",
        field: dict.fromkeys(paths, digest),
    }
    answer = httpx.post(f"{address}/api/create", json=body)
    assert answer.status_code == 400, answer.text
    assert f"{field}.{paths[-1]}: no such file can be made" in answer.json()["error"]
    assert not list((home / "staging").glob("use-*"))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/x", "a/../b", "a//b", "./a", "a\\b", "c:x", "a\0b", "x" * 401]
)
def test_a_path_that_leaves_its_folder_is_no_path(name: str) -> None:
    assert not _fit(name)
    assert _fit("a/b.json")


def test_the_version_is_three_numbers(address: str) -> None:
    for method in ("GET", "HEAD"):
        assert httpx.request(method, f"{address}/api/version").status_code == 200
    parts = httpx.get(f"{address}/api/version").json()["version"].split(".")
    assert [int(part) for part in parts] >= [0, 13, 4]  # what Codex wants; VS Code wants 0.6.4
    assert len(parts) == 3
    assert httpx.get(f"{address}/").text == "Ollama is running"
    assert httpx.post(f"{address}/api/version").status_code == 405
    assert httpx.get(f"{address}/api/none").json().keys() == {"error"}
