"""A rank that lacks a package, or some of its blobs, is given them before anything is opened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import LoadError
from modelkit.ranks.rounds import ROUND_BYTES, Round, next_round
from modelkit.store import Blob, Digest
from tests.support import bringing, ranks
from tests.support.ranks import Standing

Crews = Callable[[int], Standing]
BLOBS = [Blob(Digest.of(b"a"), 10), Blob(Digest.of(b"b"), ROUND_BYTES + 5)]


def played(rank_group: Standing, folder: Path, name: str) -> list[Any]:
    return [answer[name] for answer in rank_group.do(folder, bringing.__name__, "scenes", name)]


def test_what_is_missing_comes_from_rank_0(crews: Crews, tmp_path: Path) -> None:
    """To each of three that lack it; then one blob alone."""
    first, *others = played(crews(4), tmp_path, "missing")
    assert [note.split(" ")[:2] for note in first["first"]["notes"]] == [["rank", str(i)] for i in (1, 2, 3)]
    assert {note.rpartition("fetched ")[2] for note in first["first"]["notes"]} == {"54.5 kB"}
    assert {note.rpartition("fetched ")[2] for note in first["again"]["notes"]} == {"18 kB"}
    for said in (other[turn] for other in others for turn in ("first", "again")):
        assert said["digest"] == first["digest"]
        assert (said["problems"], said["left"]) == ([], 0)


def test_nothing_happens_where_all_have_it(crews: Crews, tmp_path: Path) -> None:
    assert [one["said"]["notes"] for one in played(crews(2), tmp_path, "same")] == [[], []]


def test_another_package_of_that_name_is_left_alone(crews: Crews, tmp_path: Path) -> None:
    for one in played(crews(2), tmp_path, "other"):
        assert (one["said"]["notes"], one["said"]["digest"]) == ([], one["own"])


def test_other_bytes_are_refused_and_nothing_is_named(crews: Crews, tmp_path: Path) -> None:
    whys = (
        "rank 1 (here) says: other bytes than those of sha256:",
        "rank 0 (here) says: the blob ",
        "rank 1 (here) says: what was sent is not the manifest",
    )
    for one in played(crews(2), tmp_path, "spoiled"):
        for why, said in zip(whys, one, strict=True):
            assert why in said["problem"]
            assert said["mine"] or (said["digest"], said["blobs"]) == (None, 0)


@pytest.mark.parametrize("scene", ["registry", "half"])
def test_a_registry_that_rank_0_knows_is_asked_first(crews: Crews, tmp_path: Path, scene: str) -> None:
    """What it has not comes from rank 0."""
    first, second = played(crews(2), tmp_path, scene)
    assert (second["said"]["digest"], second["said"]["problems"]) == (first["digest"], [])
    assert (first["asked"] == first["blobs"]) if scene == "registry" else first["asked"]


def test_a_machine_that_gets_nowhere_is_given_up(crews: Crews, tmp_path: Path) -> None:
    first, second = played(crews(2), tmp_path, "stalled")
    assert "no machine has read or written anything for 0.3 s" in first["problem"]
    assert second["problem"] == first["problem"]
    assert (second["digest"], second["blobs"]) == (None, 0)


def test_a_kill_in_the_middle_leaves_the_store_clean_and_costs_what_was_not_there(
    crews: Crews, tmp_path: Path
) -> None:
    processes = ranks.start(tmp_path, 2, bringing.__name__)
    try:
        said, err = processes[0].communicate(timeout=120)
        assert "cannot be reached" in said, err
        assert processes[1].wait(60) == -9
    finally:
        ranks.stop(processes)
    first, second = played(crews(2), tmp_path, "rest")
    before, after = second["before"], second["said"]
    assert (before["digest"], before["problems"]) == (None, [])
    assert after["digest"] == first["digest"]
    assert (after["problems"], after["left"]) == ([], 0)
    (note,) = first["said"]["notes"]
    # Of 54 kB: 9 of one blob had come, and what of the last pieces reached the disk is a matter of luck.
    assert float(note.rpartition("fetched ")[2].split()[0]) < 50


def test_rounds_begin_where_the_first_byte_is_missing() -> None:
    assert next_round([None, None], BLOBS) is None
    assert next_round([None, [1, 7], [0, 3]], BLOBS) == Round(0, 3, 10)
    assert next_round([None, [1, 0]], BLOBS) == Round(1, 0, ROUND_BYTES)


@pytest.mark.parametrize(
    "asked", [7, "x", [0], [0, 10], [-1, 0], [2, 0], [0, -1], [0, 1.5], [True, 0], [0, 0, 0]]
)
def test_a_rank_that_asks_for_nonsense_is_refused(asked: object) -> None:
    with pytest.raises(LoadError, match="a rank asks for"):
        next_round([None, asked], BLOBS)
