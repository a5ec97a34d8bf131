"""Exchanges between processes on loopback."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import pytest

from runtime import host
from runtime.cpu import native
from runtime.errors import RankLost
from runtime.ranks.group import MOST_BYTES, Group
from runtime.ranks.lane import Lane
from runtime.ranks.links import Links
from runtime.ranks.timeouts import Bounded
from tests.support import exchanging, ranks

EXCHANGING = exchanging.__name__

Crews = Callable[[int], ranks.Standing]


@pytest.mark.parametrize("size", [2, 4])
def test_arrays_are_exchanged(crews: Crews, tmp_path: Path, size: int) -> None:
    answers = crews(size).do(tmp_path, EXCHANGING, "arrays")
    total = sum(range(1, size + 1))
    for rank, answer in enumerate(answers):
        assert answer == {
            "sum": [total] * 3,
            "gather": list(range(1, size + 1)),
            "broadcast": [7, 8],
            "received": [(rank - 1) % size + 1] * 3,
        }


@pytest.mark.parametrize("size", [2, 4])
def test_messages_of_every_length_reach_all(crews: Crews, tmp_path: Path, size: int) -> None:
    assert crews(size).do(tmp_path, EXCHANGING, "messages") == ["all heard"] * size


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_without_kernels_exchange_the_same(crews: Crews, tmp_path: Path, size: int) -> None:
    answers = crews(size).do(tmp_path, EXCHANGING, "mixed")
    assert [its[:4] for its in answers] == [[True, True, True, "all heard"]] * size
    assert {tuple(its[4]["sum"]) for its in answers} == {(sum(range(1, size + 1)),) * 3}


@pytest.mark.parametrize("size", [2, 4])
def test_nobody_waits_for_ever_where_all_send_on_at_once(crews: Crews, tmp_path: Path, size: int) -> None:
    """Three times 12 MiB are more than a connection holds."""
    if native.kernels is None:
        pytest.skip(f"rank 0 hears beside by kernels: {native.status.reason}")
    assert crews(size).do(tmp_path, EXCHANGING, "circle") == [True] * size


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_of_other_nodes_make_sums_in_one_order(crews: Crews, tmp_path: Path, size: int) -> None:
    answers = crews(size).do(tmp_path, EXCHANGING, "orders")
    assert all(found == [[1, 1], [3, 3]] for its in answers for found in its)


@pytest.mark.parametrize("without", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_messages_need_not_wait_for_what_is_computed(
    crews: Crews, tmp_path: Path, size: int, *, without: bool
) -> None:
    """And ranks without kernels, which do wait, take part."""
    if native.kernels is None and not without:
        pytest.skip(f"nobody has kernels: {native.status.reason}")
    answers = crews(size).do(tmp_path, EXCHANGING, "ahead_without" if without else "ahead")
    assert answers == [[[size] * 3, [[7, (1 << 24) - 1]]]] * size


def test_a_rank_sleeps_while_it_waits_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    with closing(ranks.Standing(tmp_path, 2)) as two:
        slept, waited = two.do(tmp_path, EXCHANGING, "silence")
    assert slept == "slept"
    assert "said nothing for 0.5 s" in waited["said"]
    assert 0.4 < waited["s"] < 20
    assert waited["cpu_s"] < 0.2


def test_a_rank_sleeps_while_another_computes(crews: Crews, tmp_path: Path) -> None:
    assert max(crews(2).do(tmp_path, EXCHANGING, "lateness")) < 0.5


@pytest.mark.skipif(native.kernels is None or sys.platform != "linux", reason="needs kernels on Linux")
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_of_one_machine_keep_to_cores_of_their_own(crews: Crews, tmp_path: Path, size: int) -> None:
    """While a model runs, where there are as many."""
    answers = crews(size).do(tmp_path, EXCHANGING, "parts")
    for rank, (before, kept, after) in enumerate(answers):
        assert kept == sorted(host.part(rank, size) or before)
        assert before == after


@pytest.mark.parametrize("size", [2, 4])
def test_a_long_sum_is_that_of_its_numbers(crews: Crews, tmp_path: Path, size: int) -> None:
    assert crews(size).do(tmp_path, EXCHANGING, "much") == [True] * size


def test_ids_go_to_ranks_that_read_them(crews: Crews, tmp_path: Path) -> None:
    assert crews(2).do(tmp_path, EXCHANGING, "unread") == ["told", "next"]


def test_a_rank_that_dies_is_noticed_and_the_group_is_over(tmp_path: Path) -> None:
    processes = ranks.start(tmp_path, 2, EXCHANGING)
    try:
        said, err = processes[0].communicate(timeout=120)
    finally:
        ranks.stop(processes)
    assert "connection to a peer was lost" in said, err


def test_who_waits_for_a_message_notices_that_the_rank_behind_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though none can come from there."""
    monkeypatch.setattr(Bounded, "_watch", lambda _: None)
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        here = [stack.enter_context(socket.create_connection(server.getsockname())) for _ in range(2)]
        _before, behind = (stack.enter_context(server.accept()[0]) for _ in range(2))
        links = Links(one.fileno() for one in here)
        stack.callback(lambda: [one.close() for one in links._sockets])
        group = Group(cast("Any", SimpleNamespace(rank=lambda: 1, size=lambda: 3)), links)
        behind.close()
        with pytest.raises(RankLost, match="that is what was asked"):
            group.hear(5, cast("Lane", Asked()))


class Asked:
    """A lane by which nothing comes, and which says that it was asked for more."""

    def comes(self, seconds: float) -> bool:
        return False

    def receive(self, count: int) -> bytes:
        raise ConnectionError("that is what was asked")


def test_one_alone_is_a_group() -> None:
    group = Group.alone()
    assert (group.rank, group.size) == (0, 1)
    group.tell(b"nobody hears it")
    assert group.sum(mx.array([1, 2])).tolist() == [1, 2]
    assert group.broadcast(mx.array([3]), (1,), mx.int32).tolist() == [3]


def test_a_group_that_was_given_up_says_why() -> None:
    group = Group.alone()
    assert "first" in str(group.lose("the first reason"))
    assert "first" in str(group.lose("the second"))
    with pytest.raises(RankLost, match="the first reason"):
        group.sum(mx.array([1]))


def test_a_message_has_a_limit() -> None:
    with pytest.raises(ValueError, match="is the most"):
        Group.alone().tell(bytes(MOST_BYTES + 1))


def test_who_may_wait_longer_is_said_to_have() -> None:
    group = Group.alone()
    with group.bounded(1):
        group.renew(3)
        until_s = group._bounded._until_s
        assert until_s is not None
        assert 2 < until_s - time.monotonic() <= 3
        group._bounded._until_s = 0
        group._bounded._look()
    with pytest.raises(RankLost, match="has not answered within 3 s"):
        group.check()


def test_a_wait_within_another_leaves_it_a_limit() -> None:
    group = Group.alone()
    with group.bounded(5):
        with group.bounded(600):
            pass
        assert group._bounded._until_s is not None
    assert group._bounded._until_s is None


LEFT = """
import threading, time
from runtime.errors import RankLost
from runtime.ranks.group import _leave
threading.Thread(target=_leave, args=(RankLost("gone"),)).start()
time.sleep(100)
"""


@pytest.mark.parametrize("nobody", ["2> /dev/full", "2>&-", "2>&1 | true"])
def test_a_process_that_has_lost_the_others_ends_where_nobody_hears_why(nobody: str) -> None:
    """Whoever started it may be gone, and its pipes with it."""
    line = f'{{ sleep 0.2; "$@"; echo $? >&3; }} {nobody}'
    ran = subprocess.run(
        ["sh", "-c", f"{{ {line}; }} 3>&1 >/dev/null", "sh", sys.executable, "-c", LEFT],
        stdout=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert ran.stdout == b"1\n"
