"""Texts that no repetition is followed across, in ids of which each stands for some bytes."""

from hypothesis import given
from hypothesis import strategies as st

from modelkit.tokenizer.breakers import TextBreakers

PIECES = [b"a", b"b", b"ab", b"\n", b"x\ny", b"", b"a:b", b"\xc3", b"\xa9", b":"]
ids = st.lists(st.integers(0, len(PIECES) + 2), max_size=20)


@given(ids=ids, texts=st.lists(st.sampled_from(["\n", ":", "ab", "aba", "é", "b\n"]), min_size=1, max_size=3))
def test_what_is_behind_has_no_byte_of_a_text_and_is_as_much_as_can_be(
    ids: list[int], texts: list[str]
) -> None:
    text = [PIECES[one] if one < len(PIECES) else b"" for one in ids]
    whole = b"".join(text)
    last = max(
        (whole.rfind(one.encode()) + len(one.encode()) for one in texts if one.encode() in whole), default=0
    )
    count = TextBreakers(texts, PIECES).behind(ids)
    behind = b"".join(text[len(ids) - count :])
    assert len(whole) - len(behind) >= last
    if count < len(ids):
        assert len(whole) - len(behind) - len(text[len(ids) - count - 1]) < last


def test_a_text_may_lie_in_several_tokens() -> None:
    assert TextBreakers(["é"], PIECES).behind([0, 7, 8, 1, 1]) == 2
    assert TextBreakers(["b:"], PIECES).behind([2, 9, 0]) == 1


def test_a_token_breaks_by_itself_where_a_text_is_in_it() -> None:
    found = TextBreakers(["\n", ":"], PIECES)
    assert [one for one in range(len(PIECES) + 1) if found.breaks(one)] == [3, 4, 6, 9]


def test_as_many_tokens_in_front_are_looked_at_as_a_text_can_have() -> None:
    assert TextBreakers(["\n", "User:"], PIECES).reach == 4
