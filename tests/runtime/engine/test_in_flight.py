"""Whose turn it is to decode, and when tokens that were drawn are on their way and read."""

from typing import Any

import mlx.core as mx

from runtime.engine.drawing import Drawn
from runtime.engine.in_flight import InFlight


class Counted:
    """Draws for parts of rows, and notes what of it is on its way."""

    def __init__(self, in_flight: InFlight, rows: list[Any]) -> None:
        self.in_flight, self.rows = in_flight, rows

    def step(self) -> tuple[list[Any], list[Drawn]]:
        """Whose turn it was, and what is to be read."""
        part = self.in_flight.part(self.rows)
        self.in_flight.taken(self.rows)
        return part, self.in_flight.dispatch([Drawn(part, mx.zeros((len(part), 1), mx.int32))])


def named(*names: Any) -> list[Any]:
    """In place of rows."""
    return [*names]


def rows_of(groups: Any) -> list[list[Any]]:
    return [group.rows for group in groups]


def test_all_rows_decode_at_once_and_are_read_a_step_late() -> None:
    counted = Counted(InFlight(), ["a", "b"])
    assert rows_of(counted.step()[1]) == []
    assert not counted.in_flight.holds(named("a", "b"))
    assert rows_of(counted.step()[1]) == [["a", "b"]]
    assert rows_of(counted.in_flight.take()) == [["a", "b"]]
    assert len(counted.in_flight) == 0


def test_parts_take_turns_and_are_held_until_the_next_one_is_drawn() -> None:
    in_flight = InFlight(2)
    counted = Counted(in_flight, [*"abcde"])
    found = []
    for _ in range(5):
        begins = in_flight.begins
        part, due = counted.step()
        found.append(("".join(part), begins, ["".join(its) for its in rows_of(due)]))
        assert in_flight.holds(part[:1])
    assert found == [
        ("ab", True, []),
        ("cde", False, []),
        ("ab", True, ["ab"]),
        ("cde", False, ["cde"]),
        ("ab", True, ["ab"]),
    ]
    assert rows_of(in_flight.take()) == [["c", "d", "e"], ["a", "b"]]
    assert not in_flight.holds(named("a"))


def test_every_row_has_its_turn_as_often_however_many_there_are() -> None:
    for count in range(1, 12):
        counted = Counted(InFlight(4), list(range(count)))
        seen = [row for _ in range(min(4, count)) for row in counted.step()[0]]
        assert seen == list(range(count))
        assert counted.in_flight.begins


def test_rows_that_leave_and_come_leave_nobody_out() -> None:
    counted = Counted(InFlight(3), list(range(6)))
    counted.step()
    counted.step()
    counted.rows = [0]
    assert counted.step()[0] == [0]
    counted.rows = list(range(4))
    assert [counted.step()[0] for _ in range(3)] == [[0], [1], [2, 3]]
    assert counted.in_flight.part([]) == []


def test_what_is_not_of_a_part_is_on_its_way_with_all_before_it() -> None:
    counted = Counted(InFlight(2), [*"abcd"])
    counted.step()
    in_flight = counted.in_flight
    assert in_flight.holds(named("a"))
    in_flight.whole()
    drawn = Drawn(named("x"), mx.zeros((1, 1), mx.int32))
    assert in_flight.dispatch([drawn]) == []
    assert not in_flight.holds(named("a"))
    assert in_flight.begins
    again = Drawn(named("x"), mx.ones((1, 1), mx.int32))
    in_flight.replace(drawn, again)
    assert rows_of(in_flight.dispatch([])) == [["a", "b"], ["x"]]
