"""A package of which no machine has the weights: its outline, and what ranks fetch of it from a registry."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from modelkit.errors import FetchError, InvalidName, ModelkitError, StoreError
from modelkit.ranks.pieces import bytes_of, pieces_of
from modelkit.ranks.streaming import Sieve
from modelkit.showing.facts import facts_of
from modelkit.source.tensor import TensorInfo
from modelkit.store import Store, build_artifact
from runtime.ranks.slices import Slice
from tests.support import outlining, ranks
from tests.support.debian_registry import DebianRegistry, installed
from tests.support.fake_registry import FakeRegistry
from tests.support.ranks import Standing
from tests.support.tiny import write_model

Crews = Callable[[int], Standing]
ASKED = ["Once upon", "-p", "temperature=0.8", "-p", "seed=4", "-p", "num_predict=8"]


def test_what_goes_by_gives_what_is_read_of_the_file(tmp_path: Path) -> None:
    """However the file is parted, of columns, rows and all of a tensor."""
    dice = np.random.default_rng(0)
    raw = dice.bytes(64 + 6 * 10 * 4 + 30)
    path = tmp_path / "file"
    path.write_bytes(raw)
    tensor = TensorInfo("w", "F16", (6, 10, 2), path, 64, 64 + 6 * 10 * 4)
    slices = [
        Slice("w"),
        Slice("w", 0, ((1, 3), (4, 5))),
        Slice("w", 1, ((0, 2), (7, 10))),
        Slice("w", 2, ((1, 2),)),
    ]
    for one in slices:
        expected = b"".join(piece.read(tensor).tobytes() for piece in pieces_of(one, tensor))
        for _ in range(20):
            sieve, found, start = Sieve(tensor, bytes_of(one, tensor)), b"", 0
            while start < len(raw):
                stop = start + int(dice.integers(1, 90))
                came = np.frombuffer(raw[start:stop], np.uint8)
                found += b"".join(part.tobytes() for part in sieve.take(start, came))
                start = stop
            assert found == expected
    with pytest.raises(StoreError, match="another order than the file"):
        Sieve(tensor, bytes_of(Slice("w", 0, ((4, 5), (1, 3))), tensor))


def said(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"PYTHONPATH": str(ranks.ROOT), "MODELKIT_HOME": str(home)}
    command = [sys.executable, "-W", "ignore", "-m", "modelkit", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.skipif(not installed, reason="Debian's docker-registry is not installed")
def test_an_outline_is_planned_with_and_run_by_ranks(tmp_path: Path) -> None:
    """As a user does it; the second time without the registry."""
    home, there = tmp_path / "here", tmp_path / "there"
    write_model(tmp_path / "model", num_hidden_layers=4, seed=3)
    (tmp_path / "Modelfile").write_text(f"FROM {tmp_path / 'model'}\nSYSTEM Be brief.\n")
    modelkit.create(tmp_path / "Modelfile", name="story", quantize="q8", home=there)
    (tmp_path / "registry").mkdir()
    with DebianRegistry(tmp_path / "registry") as registry:
        address = f"oci://{registry.host}/amy/story:q8"
        assert said(there, "push", "story", address).returncode == 0
        pulled = said(home, "pull", address, "--outline", "--name", "big", "--json")
        assert pulled.returncode == 0, pulled.stderr
        assert "bytes of weights" in json.loads(pulled.stdout)["notes"][0]
        alone = said(there, "run", "story", *ASKED, "--json")
        expected = json.loads(alone.stdout)["text"]
        refused = said(home, "run", "big", *ASKED)
        assert refused.returncode == 1
        assert "big is an outline: the weights are not here" in refused.stderr
        plan = json.loads(said(home, "plan", "big", "--ranks", "2", "--json").stdout)
        whole = json.loads(said(there, "plan", "story", "--ranks", "2", "--json").stdout)
        assert [one["weight_bytes"] for one in plan["shares"]] == [
            one["weight_bytes"] for one in whole["shares"]
        ]
        shown, whole = (
            json.loads(said(*one, "--json").stdout)
            for one in ((home, "show", "big"), (there, "show", "story"))
        )
        assert {key: shown[key] for key in ("parameters", "architecture")} == {
            key: whole[key] for key in ("parameters", "architecture")
        }
        (tmp_path / "from-it").write_text("FROM big\n")
        made = said(home, "create", "more", "-f", str(tmp_path / "from-it"))
        assert "big:latest is an outline, whose weights are not here" in made.stderr
        first = said(home, "run", "big", *ASKED, "--ranks", "2")
        assert first.returncode == 0, first.stderr
        assert first.stdout.strip() == expected.strip()
        assert "it has fetched its" in first.stderr
        slices = {
            path: path.stat().st_mtime_ns for path in (home / "store/slices").rglob("*") if path.is_file()
        }
        assert slices
        assert said(home, "pull", address, "--outline").returncode == 0
    again = said(home, "run", address, *ASKED, "--ranks", "2", "--json")  # an outline of it is here
    assert json.loads(again.stdout)["text"] == expected, again.stderr
    assert slices == {path: path.stat().st_mtime_ns for path in slices}
    other = said(home, "run", "big", *ASKED, "--ranks", "2", "--shards", "2")
    assert other.returncode == 1
    assert "it cannot be run on 2 ranks: rank 0" in other.stderr
    assert "cannot reach 127.0.0.1" in other.stderr
    assert said(home, "verify").returncode == 0
    shown = said(home, "list").stdout
    assert "big" in shown


def test_an_outline_is_taken_for_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs weights says so; `show` knows what it is one of; nobody gets somebody else's."""
    home, there = tmp_path / "here", tmp_path / "there"
    write_model(tmp_path / "model", num_hidden_layers=2, seed=3)
    recipe = tmp_path / "Modelfile"
    recipe.write_text(f"FROM {tmp_path / 'model'}\n")
    modelkit.create(recipe, name="story", quantize="q8", home=there)
    with FakeRegistry() as registry:
        address, other = (f"oci://{registry.host}/amy/{name}:q8" for name in ("story", "outline"))
        modelkit.push("story", address, home=there)
        modelkit.pull(address, name="big", outline=True, home=home)
        recipe.write_text("FROM big\n")
        store = Store(home)
        for act in (
            lambda: modelkit.create(recipe, name="again", home=home),
            lambda: modelkit.compare("big", "big", home=home),
            lambda: modelkit.load("big", home=home),
            lambda: modelkit.push("big", other, home=home),
            lambda: store.export("big", tmp_path / "out"),
        ):
            with pytest.raises(ModelkitError, match=r"is an outline.* weights are not here"):
                act()
        shown = facts_of(store, store.resolve("big"))
        assert shown["outline_of"]["address"].startswith(f"oci://{registry.host}/amy/story@sha256:")
        whole = Store(there)
        same = facts_of(whole, whole.resolve("story"))
        assert {key: shown[key] for key in ("architecture", "format", "weight_bytes")} == {
            key: same[key] for key in ("architecture", "format", "weight_bytes")
        }
        monkeypatch.setattr("modelkit.fetch.registry.push.refuse_outline", lambda *_: None)
        modelkit.push("big", other, home=home)
        with pytest.raises(FetchError, match="is the outline of another package"):
            modelkit.pull(other, name="strange", home=there)
    assert [str(one.name) for one in whole.packages()] == ["story"]


def played(rank_group: Standing, folder: Path, *words: str) -> list[Any]:
    return rank_group.do(folder, outlining.__name__, "scenes", *words)


def test_ranks_fetch_what_they_need_and_nothing_twice(crews: Crews, tmp_path: Path) -> None:
    """In stages, then in shards. Each blob is asked for once, for all of them."""
    said = played(crews(2), tmp_path, "came")
    assert (said[0]["asked"], said[0]["later"]) == (1, 2)
    for one in said:
        assert 0 < one["first"]["slices"] < 0.7 * said[0]["whole"]
        assert one["again"] == {**one["first"], "notes": []}
        assert one["first"]["slices"] < one["shards"]["slices"]
        assert (one["problems"], one["pruned"]) == ([], 0)
        assert [one[turn]["left"] for turn in ("first", "again", "shards")] == [0, 0, 0]
    assert len(said[0]["first"]["notes"]) == 2
    assert sum(one["first"]["slices"] for one in said) < 1.1 * said[0]["whole"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("_parted", None),
        ("_whole", None),
        ("_elsewhere", "sends other parts of sha256:"),
        ("_more", "sends more of sha256:"),
        ("_other", "other bytes than those of sha256:"),
        ("_front", "has another header than the one that came with the outline"),
        ("_gone", "does not have"),
    ],
)
def test_a_registry_that_sends_something_else_is_found_out(
    crews: Crews, tmp_path: Path, name: str, why: str | None
) -> None:
    """On all ranks, none of which keeps any of it; the next start gets all."""
    for one in played(crews(2), tmp_path, "hostile", name):
        if why is None:
            assert one["first"]["notes"]
            assert one["again"] == {**one["first"], "notes": []}
        else:
            assert why in one["first"]["problem"]
            assert (one["first"]["slices"], one["first"]["left"]) == (0, 0)
            assert one["again"]["notes"]


def test_a_kill_while_weights_go_by_leaves_no_slice_of_them(tmp_path: Path) -> None:
    """Nobody knows yet whether they are right. What was written goes with the next prune."""
    processes = ranks.start(tmp_path, 2, outlining.__name__)
    try:
        out, err = processes[0].communicate(timeout=120)
        assert "cannot be reached" in out, err
        assert processes[1].wait(60) == -9
    finally:
        ranks.stop(processes)
    for rank in range(2):
        home = tmp_path / f"home-{rank}" / "killed"
        store = Store(home)
        assert store.verify().problems == ()
        assert not [path for path in (home / "store/slices").rglob("*") if path.is_file()]
        gone = store.prune().temp_files
        assert (len(gone) > 0) == (rank == 1)
        hollow = [path.suffix == ".safetensors" for path in gone]  # it lies there too, and nowhere else
        assert any(hollow) == (rank == 1)
        assert [str(one.name) for one in store.packages()] == (["story"] if rank == 0 else [])


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"config.json": b"{}", "model.safetensors": b"x" * 99}, "not made by `modelkit create`"),
        ({"config.json": b"{}", "model.gguf": b"x" * 99}, "has no safetensors files, and so no outline"),
    ],
)
def test_what_has_no_outline_is_refused(tmp_path: Path, files: dict[str, bytes], why: str) -> None:
    home, there = tmp_path / "here", Store(tmp_path / "there")
    with there.begin() as new:
        new.commit("story", build_artifact({path: new.add_bytes(data) for path, data in files.items()}))
    with FakeRegistry() as running:
        address = f"oci://{running.host}/amy/story:q8"
        modelkit.push("story", address, home=tmp_path / "there")
        with pytest.raises(FetchError, match=why):
            modelkit.pull(address, outline=True, home=home)
    assert Store(home).packages() == []
    with pytest.raises(InvalidName, match="names no package in a registry"):
        modelkit.pull("hf.co/amy/story", outline=True, home=home)
