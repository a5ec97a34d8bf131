"""Models of the hub: what is fetched, what is said before, and what comes of a network that fails."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import modelkit
from modelkit.cli.main import cli
from modelkit.errors import FetchError, InvalidName, ModelNotFound, SourceError, StoreError, UnsupportedSource
from modelkit.fetch import beside
from modelkit.fetch.hub import obtain
from modelkit.fetch.hub.library import READ_S, headers_for
from modelkit.showing.texts import modelfile
from modelkit.store.store import Store
from tests.support.hub import Hub, Repository
from tests.support.peft_folders import write_peft

STORY = "hf.co/Amy/Story"
KEPT = {
    *("LICENSE", "README.md", "chat_template.jinja", "config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json"),
}


class Listener:
    """What a fetch tells."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.bars: list[tuple[str, int]] = []
        self.done_bytes = 0

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def begin(self, label: str, total_bytes: int) -> None:
        self.bars.append((label, total_bytes))
        self.done_bytes = 0

    def advance(self, done_bytes: int) -> None:
        self.done_bytes += done_bytes

    def finish(self) -> None:
        assert not self.bars[-1][0].startswith("fetch") or self.done_bytes <= self.bars[-1][1]


def upstream(home: Path, name: str = "amy/story") -> dict[str, object]:
    package = Store(home).resolve(name)
    return json.loads(package.files["modelkit.json"].read_bytes())["provenance"]["target"]["upstream"]


def test_only_what_is_needed_is_fetched(hub: Hub, tmp_path: Path) -> None:
    modelkit.pull(STORY, home=tmp_path / "home")
    asked = {one.path.rpartition("/")[2] for one in hub.asked("/resolve/")}
    assert asked == KEPT
    assert {*Store(tmp_path / "home").resolve("amy/story").files} >= KEPT - {"model.safetensors"}


def test_what_will_be_fetched_is_said_before(hub: Hub, tmp_path: Path) -> None:
    told = Listener()
    modelkit.pull(STORY, home=tmp_path / "home", progress=told)
    files = hub.repositories["Amy/Story"].files
    total = sum(len(files[name]) for name in KEPT)
    assert told.said == [f"{STORY} (commit {'a' * 12}): 7 files to fetch, {obtain.size(total)}"]
    assert told.bars[0] == ("fetch Story", total)


def test_where_a_package_came_from_is_kept(hub: Hub, tmp_path: Path) -> None:
    hub.branches["v1"] = "a" * 40
    modelkit.pull(f"{STORY}@v1", home=tmp_path / "home", name="tale")
    found = upstream(tmp_path / "home", "tale")
    files = found.pop("files")
    assert found == {
        "kind": "hub",
        "endpoint": hub.endpoint,
        "repository": "Amy/Story",
        "commit": "a" * 40,
        "licence": "apache-2.0",
    }
    data = hub.repositories["Amy/Story"].files
    assert files == {
        name: {"digest": f"sha256:{hashlib.sha256(data[name]).hexdigest()}", "size": len(data[name])}
        for name in sorted(KEPT)
    }


def test_the_same_commit_gives_the_same_package_from_the_network_and_the_cache(
    hub: Hub, tmp_path: Path
) -> None:
    first = modelkit.pull(STORY, home=tmp_path / "a")
    again = modelkit.pull(STORY, home=tmp_path / "b", offline=True)
    (tmp_path / "Modelfile").write_text("FROM Amy/Story\n")
    bare = modelkit.create(tmp_path / "Modelfile", home=tmp_path / "c", name="x")
    assert first.digest == again.digest == bare.digest
    assert any("commit aaaaaaaaaaaa, of today" in note for note in again.notes)
    assert any("taken from huggingface_hub's cache" in note for note in bare.notes)


def test_a_modelfile_of_the_package_names_the_commit_and_makes_it_again(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "Modelfile").write_text(f"FROM {STORY}\nQUANTIZE q4\nSYSTEM Be brief.\n")
    made = modelkit.create(tmp_path / "Modelfile", name="story", home=tmp_path / "home")
    store = Store(tmp_path / "home")
    text = modelfile(store.resolve("story"), store)
    assert text.startswith(f"FROM {STORY}@{'a' * 40}\n")
    hub.repositories["Amy/Story"].files["config.json"] = (
        b"{}"  # the branch moves on; the commit stays in the cache
    )
    hub.repositories["Amy/Story"].commit = "b" * 40
    (tmp_path / "Modelfile").write_text(text)
    again = modelkit.create(tmp_path / "Modelfile", name="again", home=tmp_path / "other", offline=True)
    assert again.digest == made.digest


def test_list_and_show_say_where_a_package_came_from(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path / "home"))
    pulled = CliRunner().invoke(cli, ["pull", STORY])
    assert pulled.exit_code == 0
    assert "7 files to fetch" in pulled.stderr
    assert pulled.stdout.startswith("pulled amy/story ")
    listed = CliRunner().invoke(cli, ["list"]).output
    assert listed.splitlines()[0].endswith("FROM")
    assert listed.splitlines()[1].endswith(STORY)
    shown = CliRunner().invoke(cli, ["show", "amy/story"]).output
    assert f"{STORY}@{'a' * 40}" in shown
    assert "apache-2.0" in shown


def test_the_weights_are_on_the_disk_once(hub: Hub, tmp_path: Path, cache: Path) -> None:
    modelkit.pull(STORY, home=tmp_path / "home")
    digest = hashlib.sha256(hub.repositories["Amy/Story"].files["model.safetensors"]).hexdigest()
    theirs = cache / "models--Amy--Story" / "blobs" / digest
    ours = Store(tmp_path / "home").root / "blobs" / "sha256" / digest
    shared = os.path.samefile(theirs, ours)  # else the disk shares blocks, which only it knows
    assert shared or theirs.stat().st_ino != ours.stat().st_ino
    if shared:
        assert ours.stat().st_mode & 0o222 == 0
    theirs.unlink()
    assert hashlib.sha256(ours.read_bytes()).hexdigest() == digest


def test_from_and_draft_and_load_take_an_address(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "Modelfile").write_text(f"FROM {STORY}\nDRAFT {STORY}\nPARAMETER seed 1\n")
    with pytest.raises(modelkit.errors.PlanError, match="the draft"):  # a model is no draft of itself
        modelkit.create(tmp_path / "Modelfile", home=tmp_path / "home", name="x")
    with modelkit.load(STORY, home=tmp_path / "home") as model:
        assert model.name == "amy/story"
        assert len(model.generate("ab", raw=True, num_predict=3, temperature=0).ids) <= 3
    asked = len(hub.requests)
    modelkit.load(STORY, home=tmp_path / "home").close()
    assert len(hub.requests) == asked  # what a pull has stored is not asked for again


def test_a_connection_that_ends_too_soon_is_taken_up_again(hub: Hub, tmp_path: Path) -> None:
    hub.faults = {"model.safetensors": ["cut", "503", "cut", "ignore range"], "tokenizer.json": ["cut"]}
    told = Listener()
    modelkit.pull(STORY, home=tmp_path / "home", progress=told)
    ranges = [one.headers["range"] for one in hub.asked("/cdn/") if "range" in one.headers]
    third = len(hub.repositories["Amy/Story"].files["model.safetensors"]) // 3
    assert f"bytes={third}-" in ranges
    assert told.said


def test_a_killed_fetch_goes_on_where_it_ended(hub: Hub, tmp_path: Path, cache: Path) -> None:
    hub.faults = {"model.safetensors": ["stall"]}
    code = f"import modelkit; modelkit.pull({STORY!r}, home={str(tmp_path / 'home')!r})"
    data = hub.repositories["Amy/Story"].files["model.safetensors"]
    part = cache / "models--Amy--Story" / "blobs" / f"{hashlib.sha256(data).hexdigest()}.part"
    left = len(data) // 3
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as child:
        assert hub.stalled.wait(60)
        while part.stat().st_size < left:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    modelkit.pull(STORY, home=tmp_path / "home")
    assert f"bytes={left}-" in [one.headers.get("range") for one in hub.asked("model.safetensors")]
    assert not list(cache.rglob("*.part"))


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


def test_a_part_of_other_bytes_costs_a_second_transfer(hub: Hub, tmp_path: Path, cache: Path) -> None:
    digest = hashlib.sha256(hub.repositories["Amy/Story"].files["model.safetensors"]).hexdigest()
    part = cache / "models--Amy--Story" / "blobs" / f"{digest}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 100)
    modelkit.pull(STORY, home=tmp_path / "home")
    assert not part.exists()


def test_the_token_goes_to_the_hub_alone(hub: Hub, tmp_path: Path, cache: Path) -> None:
    modelkit.pull(STORY, home=tmp_path / "home")
    for one in hub.requests:
        sent = one.headers.get("authorization")
        assert sent == ("Bearer hf_secret" if one.host.startswith("127.0.0.1") else None)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and b"hf_secret" in path.read_bytes()]
    assert written == []


def test_without_a_network_the_cached_commit_is_used_and_named(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modelkit.pull(STORY, home=tmp_path / "a")
    hub.repositories["Amy/Story"].commit = "b" * 40
    hub.faults = {"api": ["503", "cut"]}
    for home, said in (("b", "answers with error 503"), ("c", "does not answer")):
        pulled = modelkit.pull(STORY, home=tmp_path / home)
        assert any(said in note and "commit aaaaaaaaaaaa" in note for note in pulled.notes)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert any("aaaaaaaaaaaa" in note for note in modelkit.pull(STORY, home=tmp_path / "d").notes)
    with pytest.raises(FetchError, match=r"127\.0\.0\.1 cannot be reached"):
        modelkit.pull("hf.co/Amy/Other", home=tmp_path / "e")


@pytest.mark.parametrize("how", ["--offline", "HF_HUB_OFFLINE"])
def test_offline_nothing_is_asked(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "HF_HUB_OFFLINE":
        monkeypatch.setenv(how, "1")
    with pytest.raises(FetchError, match=rf"not in huggingface_hub's cache .*{how} forbids"):
        modelkit.pull(STORY, home=tmp_path / "home", offline=how == "--offline")
    assert hub.requests == []


def test_a_branch_that_moved_brings_its_new_files(hub: Hub, tmp_path: Path) -> None:
    first = modelkit.pull(STORY, home=tmp_path / "home")
    repository = hub.repositories["Amy/Story"]
    repository.commit, repository.files["LICENSE"] = "b" * 40, b"Ask first.\n"
    asked = len(hub.asked("/resolve/"))
    second = modelkit.pull(STORY, home=tmp_path / "home")
    assert first.digest != second.digest
    assert [one.path.rpartition("/")[2] for one in hub.asked("/resolve/")[asked:]] == ["LICENSE"]


def test_a_shard_that_the_index_does_not_name_is_not_fetched(hub: Hub, tmp_path: Path) -> None:
    files = hub.repositories["Amy/Story"].files
    data = files["model.safetensors"]
    names = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    shard = "model-00001-of-00001.safetensors"
    files[shard] = files.pop("model.safetensors")
    placed = {name: shard for name in names if name != "__metadata__"}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": placed}).encode()
    files["model-fp16.safetensors"] = b"another"
    modelkit.pull(STORY, home=tmp_path / "home")
    assert not hub.asked("model-fp16")


REFUSED = {
    "no such model": ("hf.co/Amy/Nothing", "there is no such model on 127.0.0.1, or it is private"),
    "no such revision": (f"{STORY}@v9", "has no revision v9"),
    "no GGUF": (f"{STORY}:Q4_K_M", "there are no GGUF files"),
    "no such file": (f"{STORY}/m.gguf", "no file `m.gguf`"),
    "no model file": (f"{STORY}/LICENSE", "is no model"),
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
    "a control character": {"a\x1b[2Jb": {"size": 1, "blobId": "0" * 40}},
    "a backslash": {"a\\..\\b": {"size": 1, "blobId": "0" * 40}},
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


def test_an_answer_of_another_form_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.faults = {"api": ["nonsense"]}
    with pytest.raises(FetchError):
        modelkit.pull(STORY, home=tmp_path / "home")


def test_a_full_disk_is_seen_before_a_byte_moves(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["Amy/Story"].siblings = {
        "model.safetensors": {"lfs": {"sha256": "0" * 64, "size": 1 << 43, "pointerSize": 1}}
    }
    with pytest.raises(StoreError, match=r"8\.8 TB have to be fetched"):
        modelkit.pull(STORY, home=tmp_path / "home")
    assert not hub.asked("/resolve/")


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


def test_an_adapter_of_the_hub_goes_into_the_package(hub: Hub, tmp_path: Path) -> None:
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{layer}.lora_A.weight": np.ones((3, 64), "f4"),
        f"{layer}.lora_B.weight": np.ones((64, 3), "f4"),
    }
    hub.repositories["Amy/tale-1.5"] = Repository.of(
        write_peft(tmp_path / "adapter", tensors), **{"x.py": b"1"}
    )
    (tmp_path / "Modelfile").write_text(f"FROM {STORY}\nADAPTER hf.co/Amy/tale-1.5\n")
    modelkit.create(tmp_path / "Modelfile", name="told", home=tmp_path / "home")
    package = Store(tmp_path / "home").resolve("told")
    assert "adapters/tale-1.5/adapter.safetensors" in package.files
    assert not hub.asked("x.py")
    (tmp_path / "Modelfile").write_text("FROM hf.co/Amy/tale-1.5\n")
    with pytest.raises(UnsupportedSource, match="is a LoRA adapter, not a model"):
        modelkit.create(tmp_path / "Modelfile", name="told", home=tmp_path / "home")


def test_a_cache_without_links_is_read(hub: Hub, tmp_path: Path, cache: Path) -> None:
    """As huggingface_hub makes it where a disk has none."""
    first = modelkit.pull(STORY, home=tmp_path / "a")
    for link in list(cache.rglob("snapshots/*/*")):
        data = link.read_bytes()
        link.unlink()
        link.write_bytes(data)
    shutil.rmtree(next(cache.rglob("blobs")))
    assert modelkit.pull(STORY, home=tmp_path / "b", offline=True).digest == first.digest


@pytest.mark.parametrize("who", ["Ollama", "LM Studio", "llama.cpp"])
def test_what_another_program_has_is_not_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(beside, "LEAST_BYTES", 1)
    data = hub.repositories["Amy/Story"].files["model.safetensors"]
    place = {
        "Ollama": tmp_path / "ollama" / "blobs" / f"sha256-{hashlib.sha256(data).hexdigest()}",
        "LM Studio": tmp_path / ".lmstudio" / "models" / "Amy" / "Story" / "model.safetensors",
        "llama.cpp": tmp_path / ".cache" / "llama.cpp" / "Amy_Story_model.safetensors",
    }[who]
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    theirs = modelkit.pull(STORY, home=tmp_path / "a")
    assert not hub.asked("model.safetensors")
    assert theirs.digest == modelkit.pull(STORY, home=tmp_path / "b").digest
    place.chmod(0o644)
    place.write_bytes(data[:-1] + b"x")  # the same size, and not the same
    if who == "Ollama":  # its name is a promise, and checked when the file is read
        with pytest.raises(SourceError, match=r"Remove it and get it again"):
            modelkit.pull(STORY, home=tmp_path / "c")
    else:
        assert modelkit.pull(STORY, home=tmp_path / "c").digest == theirs.digest
        assert hub.asked("model.safetensors")


def test_two_at_once_fetch_a_file_once(hub: Hub, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        pulled = list(pool.map(lambda one: modelkit.pull(STORY, home=tmp_path / one), ("a", "b")))
    assert pulled[0].digest == pulled[1].digest
    assert len(hub.asked("/cdn/Amy/Story/model.safetensors")) == 1


def test_a_server_without_encryption_is_given_no_token(hub: Hub) -> None:
    assert "authorization" in {name.lower() for name in headers_for(hub.endpoint)}
    assert "authorization" in {name.lower() for name in headers_for("https://mirror.example.org")}
    assert "authorization" not in {name.lower() for name in headers_for("http://mirror.example.org")}


@pytest.mark.parametrize("endpoint", ["mirror.example.org", "ftp://h", "https://amy:hunter2@"])
def test_an_endpoint_that_is_none(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(FetchError, match="HF_ENDPOINT is") as caught:
        modelkit.pull(STORY, home=tmp_path)
    assert "hunter2" not in str(caught.value)


def test_ctrl_c_does_not_wait_for_a_silent_server(hub: Hub, tmp_path: Path) -> None:
    hub.faults = {"model.safetensors": ["stall"]}
    main = threading.get_ident()

    def interrupt() -> None:
        assert hub.stalled.wait(30)
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGINT)

    # A shell's background jobs have it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    waiting = threading.Thread(target=interrupt)
    waiting.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        modelkit.pull(STORY, home=tmp_path / "home")
    waiting.join()
    signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < READ_S
    hub.faults = {}
    modelkit.pull(STORY, home=tmp_path / "home")
