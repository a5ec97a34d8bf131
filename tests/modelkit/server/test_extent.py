"""How much a JSON text holds is counted as it is, wherever the text is cut for that."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.server import extent as counting
from modelkit.server.extent import Extent, at_most, extent

TEXTS = st.text(st.sampled_from('a"\\:,{[]}\n\u00e9'), max_size=9)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def counted(value: Any) -> tuple[int, int]:
    """Parts and values, by walking what was read."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        found = [counted(one) for one in inner]
        fields = len(value) if isinstance(value, dict) else 0
        parts = 1 + fields + sum(parts for parts, _ in found)
        return parts, max(len(value) - 1, 0) + sum(values for _, values in found)
    return 0, 0


@given(VALUES, st.integers(1, 9), st.booleans())
def test_it_is_that_of_what_is_read(value: Any, piece_bytes: int, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_PIECE_BYTES", piece_bytes)
        found = extent(data)
    assert (found.parts, found.values) == counted(value)
    assert found.within(at_most(data))


def test_either_may_be_too_much() -> None:
    most = Extent(3, 3)
    assert Extent(3, 3).within(most)
    assert not Extent(4, 0).within(most)
    assert not Extent(0, 4).within(most)
