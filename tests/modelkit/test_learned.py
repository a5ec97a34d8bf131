"""What running a package teaches about its drafts outlives the run, and goes with the package."""

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

import modelkit
from modelkit.learned import Learning, lessons_of
from modelkit.store.store import Store
from tests.support.tiny import write_model


def learned(cost: float) -> dict[str, Any]:
    grade = {"grade": 1, "depth": 2, "accepted": [[0.9, 40], [0.5, 20]]}
    row = {"drafter": "draft", "rows": 1, "costs": [[2, cost]], "grades": [grade]}
    return {"version": 2, "drafters": [row]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with the package `pair`."""
    folders = [write_model(tmp_path / name, seed=seed) for seed, name in enumerate(("target", "draft"))]
    recipe = tmp_path / "Modelfile"
    recipe.write_text(f"FROM {folders[0]}\nDRAFT {folders[1]}\n", encoding="utf-8")
    modelkit.create(recipe, name="pair", home=tmp_path / "home")
    return tmp_path / "home"


def learning(home: Path, setting: str = "here") -> Learning:
    return Learning(home, str(Store(home).resolve("pair").digest), setting)


def memos(home: Path) -> list[Path]:
    """The files that hold what was learned."""
    folder = Store(home).root / "conversions"
    return [path for path in folder.iterdir() if b"settings" in path.read_bytes()]


def test_settings_are_kept_apart(home: Path) -> None:
    learning(home, "here").keep(learned(0.1))
    learning(home, "there").keep(learned(0.3))
    assert learning(home, "here").recall() == learned(0.1)
    assert learning(home, "there").recall() == learned(0.3)
    assert learning(home, "elsewhere").recall() is None


def test_nothing_new_is_not_written(home: Path) -> None:
    learning(home).keep(learned(0.1))
    (memo,) = memos(home)
    before = memo.stat().st_mtime_ns
    learning(home).keep(learned(0.1))
    learning(home, "there").keep({"version": 2, "drafters": []})
    assert memo.stat().st_mtime_ns == before


def test_it_goes_with_the_package(home: Path) -> None:
    kept = learning(home)
    kept.keep(learned(0.1))
    Store(home).prune()
    assert kept.recall() == learned(0.1)
    Store(home).remove("pair")
    Store(home).prune()
    assert kept.recall() is None
    assert not memos(home)


def test_a_store_that_cannot_be_written_costs_nothing_but_the_knowledge(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the store should be", encoding="utf-8")
    kept = Learning(tmp_path / "home", "sha256:" + 64 * "0", "here")
    kept.keep(learned(0.1))
    assert kept.recall() is None


def test_a_run_leaves_what_it_learned_and_the_next_one_starts_from_it(home: Path) -> None:
    with modelkit.load("pair", home=home) as model:
        model.generate([5, 9, 44, 3, 17], temperature=0, num_predict=60)
    package = str(Store(home).resolve("pair").digest)
    (lessons,) = lessons_of(Store(home), package).values()
    first = lessons["draft", 1]  # whether its drafts were tried in so few tokens is for the machine to say
    assert 1 in first.accepted
    with modelkit.load("pair", home=home) as model:
        model.generate([5, 9, 44, 3, 17], temperature=0, num_predict=5)  # too few to try a draft
    (lessons,) = lessons_of(Store(home), package).values()
    assert len(lessons["draft", 1].accepted[1]) >= len(first.accepted[1])


def test_a_folder_leaves_nothing(tmp_path: Path) -> None:
    with modelkit.load(write_model(tmp_path / "model"), home=tmp_path / "home") as model:
        model.generate([5, 9, 44], temperature=0, num_predict=20)
    assert not (tmp_path / "home").exists()


def test_a_full_disk_is_told_and_harms_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    kept = learning(home)
    monkeypatch.setattr(os, "write", full)
    kept.keep(learned(0.1))
    monkeypatch.undo()
    assert kept.recall() is None
    (said,) = caplog.messages
    assert "not kept" in said
    assert "no space left on device" in said
