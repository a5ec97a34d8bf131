"""What the conversations of several models may take together."""

from hypothesis import given
from hypothesis import strategies as st

from modelkit.server.models.shares import Need, lend

NEEDS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 80), st.booleans()), max_size=6)


@given(NEEDS, st.integers(-50, 300))
def test_all_together_take_no_more_than_there_is(some: list[tuple[int, int, bool]], free: int) -> None:
    needs = [Need(key, *one) for key, one in enumerate(some)]
    lent = lend(needs, free)
    own, reserved = sum(one.own_bytes for one in needs), sum(one.reserved_bytes for one in needs)
    assert all(lent[one.key] >= one.own_bytes for one in needs)
    assert sum(lent.values()) <= max(reserved + free, own)
    using = [one for one in needs if one.in_use]
    if using:  # and nothing of it is left over
        assert sum(lent.values()) > reserved + free - len(using) or sum(lent.values()) == own
