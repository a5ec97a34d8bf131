"""What a hub does not have, what it says that no hub would say, and what is refused before it is asked."""

import time
from pathlib import Path

import pytest

import modelkit
from modelkit.errors import (
    FetchError,
    InvalidName,
    ModelNotFound,
    ParameterError,
    SourceError,
    UnsupportedSource,
)
from modelkit.fetch.hub import library, listing
from modelkit.store.store import Store
from tests.support.hub import STORY, Hub

FAULTS = ["wrong bytes", "longer", "pointer", "wrong range", "loop", "elsewhere", "404"]


@pytest.mark.parametrize(
    ("file", "fault"),
    [*(("model.safetensors", fault) for fault in FAULTS), *(("config.json", fault) for fault in FAULTS[:3])],
)
def test_what_was_not_promised_is_refused(
    hub: Hub, tmp_path: Path, cache: Path, file: str, fault: str
) -> None:
    hub.faults = {file: ["cut", fault] if fault == "wrong range" else [fault] * 5}
    with pytest.raises(FetchError):
        modelkit.pull(STORY, home=tmp_path / "home")
    assert not Store(tmp_path / "home").packages()
    hub.faults = {}
    modelkit.pull(STORY, home=tmp_path / "home")  # what was left does not stand in the way


REFUSED = {
    "no such model": ("hf.co/Amy/Nothing", "there is no such model on 127.0.0.1, or it is private"),
    "no such revision": (f"{STORY}@v9", "has no revision v9"),
    "no GGUF": (f"{STORY}:Q4_K_M", "there are no GGUF files"),
    "no such file": (f"{STORY}/m.gguf", "no file `m.gguf`"),
    "a page without https://": (f"{STORY}/tree/main", "begins with https://; else @main names"),
    "no model file": (f"{STORY}/LICENSE", "is not a model"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_there_is_said(hub: Hub, tmp_path: Path, case: str) -> None:
    text, said = REFUSED[case]
    with pytest.raises((FetchError, UnsupportedSource), match=said):
        modelkit.pull(text, home=tmp_path / "home")
    assert not hub.asked("/resolve/")


def test_terms_have_to_be_accepted_first(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    hub.repositories["Amy/Story"].gated = True
    with pytest.raises(
        FetchError, match=r"accepted its terms\nAccept them at https://huggingface.co/Amy/Story"
    ):
        modelkit.pull(STORY, home=tmp_path / "home")


HOSTILE = {
    "a name with dots": {"../../.ssh/config": {"size": 1, "blobId": "0" * 40}},
    "an absolute name": {"/etc/passwd": {"size": 1, "blobId": "0" * 40}},
    "a blank part": {"a//b": {"size": 1, "blobId": "0" * 40}},
    "a negative size": {"config.json": {"size": -1}},
    "a huge size": {"config.json": {"size": 1 << 62}},
    "a size that is none": {"config.json": {"size": "7"}},
    "no size": {"config.json": {"size": None}},
    "a digest that is a path": {"config.json": {"blobId": "../../../x"}},
    "a digest of another form": {
        "model.safetensors": {"lfs": {"sha256": "../x", "size": 3, "pointerSize": 1}}
    },
    "no digest": {"config.json": {"blobId": None}},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_list_of_files_that_no_hub_has_is_refused_whole(
    hub: Hub, tmp_path: Path, cache: Path, case: str
) -> None:
    hub.repositories["Amy/Story"].siblings = dict(HOSTILE[case])
    with pytest.raises(FetchError, match="list of files"):
        modelkit.pull(STORY, home=tmp_path / "home")
    assert not hub.asked("/resolve/")
    assert not cache.exists()


def test_files_of_odd_names_stay_there(hub: Hub, tmp_path: Path) -> None:
    odd = ["at 3.04.05\u202fPM.png", "a\\b.json", "a\x1b[2Jb", "C:/x", "x" * 300, "model\u200b.safetensors"]
    hub.repositories["Amy/Story"].siblings = {name: {"size": 1, "blobId": "0" * 40} for name in odd}
    assert str(modelkit.pull(STORY, home=tmp_path / "home").name) == "amy/story"


def test_an_answer_of_another_form_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.faults = {"api": ["nonsense"]}
    with pytest.raises(FetchError):
        modelkit.pull(STORY, home=tmp_path / "home")


BOUNDS = {
    "endless 200": "longer than 1 MiB",
    "packed": "longer than 1 MiB",
    "endless 403": "refuses",
    "parts": "more than 100,000 files",
}


@pytest.mark.parametrize("fault", BOUNDS)
def test_a_list_of_files_has_an_end(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault != "parts":
        monkeypatch.setattr(library, "MAX_BYTES", 1 << 20)
        monkeypatch.setattr(listing, "MAX_BYTES", 1 << 20)
    hub.faults = {"api": [fault]}
    with pytest.raises(FetchError, match=BOUNDS[fault]):
        modelkit.pull(STORY, home=tmp_path / "home")
    assert hub.sent_bytes < hub.endless_bytes


@pytest.mark.parametrize("status", [200, 403, "head"])
def test_a_list_of_files_that_drips_is_not_waited_for(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int | str
) -> None:
    monkeypatch.setattr(library, "ANSWER_S", 0.3)
    hub.faults = {"api": [f"drip {status}"]}
    started = time.monotonic()
    with pytest.raises(library.Unreachable, match=r"has not come within 0\.3 s"):
        modelkit.pull(STORY, home=tmp_path / "home")
    assert time.monotonic() - started < 50  # it drips for a minute


def test_a_damaged_file_of_the_cache_is_found_when_it_is_used(hub: Hub, tmp_path: Path, cache: Path) -> None:
    modelkit.pull(STORY, home=tmp_path / "a", quantize="q4")
    for name in ("model.safetensors", "config.json"):
        path = next(cache.rglob(f"snapshots/*/{name}")).resolve()
        path.chmod(0o644)
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(SourceError, match=r"\nRemove it|Remove it"):
            modelkit.pull(STORY, home=tmp_path / f"b{name}", quantize="q8")
        path.write_bytes(data)


def test_names_without_a_host_are_never_fetched(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"modelkit pull hf\.co/Amy/Story"):
        modelkit.load("Amy/Story", home=tmp_path)
    (tmp_path / "Modelfile").write_text("FROM Amy/Story\n")
    with pytest.raises(ModelNotFound, match=r"Modelfile:1:1: .*\n.*modelkit pull hf\.co/Amy/Story"):
        modelkit.create(tmp_path / "Modelfile", home=tmp_path)
    with pytest.raises(InvalidName, match=r"modelkit pull hf\.co/Amy/Story"):
        modelkit.pull("Amy/Story", home=tmp_path)
    assert hub.requests == []


@pytest.mark.parametrize("endpoint", ["mirror.example.org", "ftp://h", "https://amy:hunter2@"])
def test_an_endpoint_that_is_none(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(FetchError, match="HF_ENDPOINT is") as caught:
        modelkit.pull(STORY, home=tmp_path)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["https://[", "https://amy:hunter2", "https://[::1"])
def test_an_endpoint_that_cannot_be_read(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    for offline in (False, True):
        with pytest.raises(ParameterError, match="HF_ENDPOINT is not an address of a server") as caught:
            modelkit.pull(STORY, home=tmp_path, offline=offline)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["HF_ENDPOINT", "HTTP_PROXY"])
def test_a_machine_of_no_possible_name_cannot_be_reached(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.test")
    monkeypatch.setenv(name, "http://a..b:1")
    with pytest.raises(FetchError, match="cannot be reached"):
        modelkit.pull(STORY, home=tmp_path)


@pytest.mark.parametrize("place", ["http://[", "http://localhost:99999", "http://localhost:x"])
def test_a_server_that_sends_on_to_what_is_no_address(hub: Hub, tmp_path: Path, place: str) -> None:
    hub.cdn = place
    with pytest.raises(FetchError, match="redirects to what is not an address"):
        modelkit.pull(STORY, home=tmp_path / "home")


@pytest.mark.parametrize("how", ["--offline", "HF_HUB_OFFLINE"])
def test_offline_nothing_is_asked(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "HF_HUB_OFFLINE":
        monkeypatch.setenv(how, "1")
    with pytest.raises(FetchError, match=rf"not in huggingface_hub's cache .*{how} forbids"):
        modelkit.pull(STORY, home=tmp_path / "home", offline=how == "--offline")
    assert hub.requests == []
