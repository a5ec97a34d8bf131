"""What one rendering may use: time, memory, depth.

Everything a template does passes through here. Time is looked at in every turn of a loop and every call. It
is processor time of the rendering thread: on a busy machine an honest template may wait for seconds.
Memory is counted by what is made, never by what is freed, and charged before it is made. And because lists
can hold the same list twice, a value is weighed as the tree it unfolds to: forty lines can build one that
is small in memory and has 2^40 leaves, which to print or to compare would never end.
"""

import sys
import time
from collections.abc import Iterable
from typing import Any

SECONDS = 2.0
MADE_BYTES = 128 * 1024 * 1024
TREE = 8 * 1024 * 1024
VALUE_DEPTH = 100
CALL_DEPTH = 64
INTEGER_BITS = 4096
ITEM_BYTES = 64
NODE = 16

_MEASURED_BYTES = 200
_VIEWS = type({}.keys()) | type({}.values()) | type({}.items())


class Overrun(Exception):  # names what happened
    """The template wants more than it may have."""


class Budget:
    """The allowance of one rendering. Not for several threads."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._soonest = time.monotonic() + seconds
        self._end = time.thread_time() + seconds
        self._left_bytes = MADE_BYTES
        # Values are kept beside their measures: an id says something only while its value lives, and the
        # sandbox lets no template change one.
        self._measured: dict[int, tuple[object, tuple[int, int]]] = {}
        self._calls = 0

    def tick(self) -> None:
        # Processor time never runs faster than the clock, which costs a quarter to read.
        if time.monotonic() > self._soonest and time.thread_time() > self._end:
            raise Overrun(f"it ran longer than {self._seconds:g} seconds")

    def charge(self, size_bytes: float) -> None:
        """Account for `size_bytes` about to be made."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise Overrun(f"it makes more than {MADE_BYTES >> 20} MiB of text and lists")

    def charge_value(self, value: object) -> None:
        self.charge(sys.getsizeof(value))

    def enter(self) -> None:
        self._calls += 1
        if self._calls > CALL_DEPTH:
            raise Overrun(f"its macros call each other more than {CALL_DEPTH} levels deep")

    def leave(self) -> None:
        self._calls -= 1

    def weigh(self, value: object) -> int:
        """The size of the tree that `value` unfolds to: characters, and NODE for each value.

        Raises Overrun for more than TREE, for more than VALUE_DEPTH levels, and for enormous integers.
        """
        return self._measure(value)[0]

    def height(self, value: object) -> int:
        """How many levels of lists and objects are in `value`; 0 for a text or a number."""
        return self._measure(value)[1]

    def weigh_all(self, values: Iterable[object]) -> None:
        for value in values:
            if not isinstance(value, str):
                self._measure(value)

    def _measure(self, value: Any) -> tuple[int, int]:
        if isinstance(value, str):
            return NODE + len(value), 0
        if isinstance(value, int):
            if value.bit_length() > INTEGER_BITS:
                raise Overrun(f"it computes with numbers of more than {INTEGER_BITS} bits")
            return NODE, 0
        if not isinstance(value, dict | list | tuple | _VIEWS):
            return NODE, 0
        known = self._measured.get(id(value))
        if known is not None:
            return known[1]
        self.tick()
        parts = (*value.keys(), *value.values()) if isinstance(value, dict) else value
        weight, height = NODE, 0
        for part in parts:
            part_weight, part_height = self._measure(part)
            weight += part_weight
            height = max(height, part_height)
        if weight > TREE:
            raise Overrun("it builds a value too large to print or compare")
        if height >= VALUE_DEPTH:
            raise Overrun(f"it nests values more than {VALUE_DEPTH} levels deep")
        self.charge(_MEASURED_BYTES)
        self._measured[id(value)] = (value, (weight, height + 1))
        return weight, height + 1
