"""What ranks tell each other, and where they differ."""

import atexit
from typing import Any

import mlx.core as mx
import pytest

from modelkit.errors import LoadError
from modelkit.ranks import facts, rank_group
from modelkit.ranks.facts import difference, exchanged, free_bytes, own_facts, unlike
from runtime.cpu import native
from runtime.cpu.native import Status
from runtime.errors import RankLost
from runtime.ranks.group import Group

HERE: dict[str, Any] = {"host": "amy", "mlx": "0.32", "free_bytes": 100}


def test_one_alone_hears_itself() -> None:
    mine = own_facts(Group.alone())
    assert exchanged(Group.alone(), mine) == [mine]
    assert mine["free_bytes"] > 0


def test_long_texts_are_cut_and_facts_stay_small() -> None:
    (heard,) = exchanged(Group.alone(), {"problem": "x" * 10_000})
    assert heard["problem"] == "x" * 1500


@pytest.mark.parametrize("said", [b"\xad\x80", b"GET / HTTP/1.1", b"[1, 2]", b"[" * 4096])
def test_what_no_rank_sends_is_said_to_come_from_another_program(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """It may be at the address of a rank, and meet us as one."""
    group = Group.alone()
    heard = mx.array([*said.ljust(4096)], dtype=mx.uint8)
    monkeypatch.setattr(group, "gather", lambda mine: mx.concatenate([mine, heard]))
    with pytest.raises(RankLost, match=r"what rank 1 has sent is not .* another program, or another version"):
        exchanged(group, HERE)


def test_a_rank_of_another_version_may_say_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rank_group, "exchanged", lambda _group, mine: [mine, {"host": "bob", "modelkit": "0.0"}]
    )
    with pytest.raises(LoadError, match=r"has modelkit 0\.0") as refused:
        rank_group.RankGroup(Group.alone())
    assert "same versions" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({}, None),
        ({"mlx": "0.31"}, "rank 1 (bob) has mlx 0.31, and rank 0 (amy) has 0.32"),
        ({"problem": "no weights", "mlx": "0.31"}, "rank 1 (bob) says: no weights"),
    ],
)
def test_where_ranks_differ(other: dict[str, Any], said: str | None) -> None:
    assert difference([HERE, {**HERE, "host": "bob", **other}], ("mlx",)) == said


@pytest.mark.parametrize(
    ("other", "hint"),
    [({"package": "b"}, "modelkit rm"), ({"adapters": "b"}, "same files"), ({"problem": "x"}, None)],
)
def test_what_to_do_is_said_where_packages_differ(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], hint: str | None
) -> None:
    mine = {**HERE, "package": "a", "adapters": "a"}
    monkeypatch.setattr(facts, "exchanged", lambda _group, mine, _within_s: [mine, {**mine, **other}])
    with pytest.raises(LoadError) as refused:
        facts.agreed(Group.alone(), mine, ("package", "adapters"))
    assert refused.value.hint is None if hint is None else hint in str(refused.value.hint)


def test_ranks_of_one_machine_share_what_is_free_there() -> None:
    bob = {**HERE, "host": "bob", "free_bytes": 60}
    assert free_bytes([HERE, bob, {**HERE, "free_bytes": 90}]) == [45, 60, 45]


def test_machines_of_one_name_have_their_own_room_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many Macs are called `Mac`."""
    found = [{**HERE, "address": address} for address in ("10.0.0.1", "10.0.0.2", "10.0.0.2")]
    assert free_bytes(found) == [100, 50, 50]
    monkeypatch.setattr(rank_group, "exchanged", lambda _group, mine: [{**mine, **one} for one in found])
    monkeypatch.setattr(atexit, "register", lambda _: None)
    assert rank_group.RankGroup(Group.alone()).ranks_here == 1


def test_surroundings_that_one_cannot_act_on_are_said_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows has nobody to tell, and the others would see a connection that is lost."""
    monkeypatch.setattr(rank_group, "exchanged", lambda _group, mine: [{**mine, "problem": None}, mine])
    monkeypatch.setenv("MODELKIT_CACHE_DISK", "lots")
    with pytest.raises(LoadError, match=r"rank 1 .* says: MODELKIT_CACHE_DISK is 'lots'") as refused:
        rank_group.RankGroup(Group.alone())
    assert "versions" not in str(refused.value)


def test_a_rank_computes_as_its_surroundings_say_or_all_hear_that_it_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rank_group, "exchanged", lambda _group, mine: [{**mine, "problem": None}, mine])
    monkeypatch.setattr(native, "status", Status(None, reason="nobody built them", required=True))
    with pytest.raises(LoadError, match=r"rank 1 .* says: MODELKIT_KERNELS=required .* nobody built them"):
        rank_group.RankGroup(Group.alone())


def test_ranks_that_make_numbers_in_another_way_are_named() -> None:
    """Answers are no longer the bits of one machine, and only the last of them tell."""
    by_kernels = {"host": "amy", "numbers": "kernels (i16)", "no_kernels": None}
    without = {"host": "bob", "numbers": "MLX on the processor (cpu)", "no_kernels": "nobody built them"}
    assert unlike([by_kernels, by_kernels]) == unlike([without, without]) == ()
    (one,) = unlike([by_kernels, without])
    assert one == (
        "rank 1 (bob) computes by MLX on the processor (cpu), as nobody built them, and rank 0 (amy) "
        "computes by kernels (i16): answers may differ in their last bits from those of one machine"
    )
    (several,) = unlike([without, by_kernels, without, by_kernels])
    assert "rank 1 (amy) computes by kernels (i16) (and 1 more, not as rank 0), and rank 0 (bob)" in several


def test_pages_say_by_what_numbers_of_all_ranks_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rank 1 keeps was computed of what rank 0 has made, however rank 1 itself computes."""
    found = [{**HERE, "numbers": "MLX"}, {**HERE, "numbers": "kernels"}]
    monkeypatch.setattr(rank_group, "exchanged", lambda _group, mine: [{**mine, **one} for one in found])
    monkeypatch.setattr(atexit, "register", lambda _: None)
    assert rank_group.RankGroup(Group.alone()).numbers == "MLX, kernels"


@pytest.mark.parametrize("other", [False, True])
def test_ranks_with_kernels_and_without_are_not_alike(
    monkeypatch: pytest.MonkeyPatch, *, other: bool
) -> None:
    def told(_group: Group, mine: dict[str, Any]) -> list[dict[str, Any]]:
        return [mine, {**mine, "nodes": "cpu, MLX exchanges, no kernels and no ring"} if other else mine]

    monkeypatch.setattr(rank_group, "exchanged", told)
    monkeypatch.setattr(atexit, "register", lambda _: None)
    group = Group.alone()
    rank_group.RankGroup(group)
    assert group.alike != other
