"""The tree of keys against the plainest thing there is: a list of all sequences put in."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from runtime.cache.trie import Keys, Trie, common, in_namespace, split_namespace

WORD = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)


def put(trie: Trie[str], word: tuple[int, ...]) -> None:
    """The way a store grows: split where the path ends inside an edge, then append the rest."""
    path, matched = trie.walk(word)
    node = path[-1] if path else trie.root
    if matched < node.stop:
        node = trie.split(node, matched, "upper", "lower")
    if matched < len(word):
        trie.append(node, word[matched:], "leaf")


def spelled(trie: Trie[str]) -> dict[tuple[object, ...], object]:
    """Every node by the keys that lead to its end."""
    return {tuple(key for step in node.path for key in step.keys): node for node in trie}


def filled(*words: str) -> Trie[str]:
    trie = Trie("")
    for word in words:
        put(trie, tuple(word))
    return trie


@given(st.lists(WORD, max_size=12), WORD)
@settings(max_examples=150)
def test_a_walk_goes_as_far_as_any_sequence_agrees(
    words: list[tuple[int, ...]], probe: tuple[int, ...]
) -> None:
    trie = Trie("")
    for word in words:
        put(trie, word)
    path, matched = trie.walk(probe)
    assert matched == max((common(word, probe) for word in words), default=0)
    assert [node.start for node in path] == [0, *(node.stop for node in path)][: len(path)]
    assert not path or path[-1].start < matched <= path[-1].stop


@given(st.lists(WORD, max_size=12))
@settings(max_examples=100)
def test_the_tree_keeps_its_shape(words: list[tuple[int, ...]]) -> None:
    trie = Trie("")
    for word in words:
        put(trie, word)
    nodes = spelled(trie)
    assert set(words) <= set(nodes)
    for node in trie:
        assert node.keys
        assert node.parent is not None
        assert node.parent.stop == node.start
        assert node.parent.children[node.keys[0]] is node


def test_parents_come_before_children() -> None:
    assert ["".join(map(str, node.keys)) for node in filled("abcd", "abxy", "q")] == ["ab", "cd", "xy", "q"]


def test_a_split_keeps_the_identity_of_what_ends_where_it_did() -> None:
    trie = filled("abcd")
    (node,) = trie
    node.pins, node.used = 2, 7
    above = trie.split(node, 1, "upper", "lower")
    assert (above.keys, above.page, above.pins, above.used) == (("a",), "upper", 0, 7)
    assert (node.keys, node.start, node.stop, node.page, node.pins) == (("b", "c", "d"), 1, 4, "lower", 2)
    assert node.path == [above, node]


def test_the_number_of_leading_keys_that_agree() -> None:
    keys = tuple(range(50))
    for n in range(51):
        assert common(keys, (*keys[:n], -1, *keys[n + 1 :])) == n
        assert common(keys[:n], keys) == n


def test_a_leaf_can_be_removed_and_nothing_else_can() -> None:
    trie = filled("abcd", "abxy")
    above, leaf, other = trie
    trie.remove(leaf)
    assert trie.walk(tuple("abcd")) == ([above], 2)
    with pytest.raises(AssertionError):
        trie.remove(above)
    trie.remove(other)
    trie.remove(above)
    assert list(trie) == []


def test_an_empty_tree_knows_nothing() -> None:
    trie = Trie("")
    assert trie.walk(("a",)) == ([], 0)
    assert trie.walk(()) == ([], 0)
    assert trie.root.path == []


@pytest.mark.parametrize("keys", [(4, 5), ((4, 5), (5, 6))], ids=["ids", "pairs"])
@pytest.mark.parametrize("words", [(), ("a",), ("source", 2, "a")])
def test_what_sets_keys_apart_can_be_told(keys: Keys, words: tuple[str | int, ...]) -> None:
    apart = in_namespace(keys, *words)
    assert split_namespace(apart) == (keys, words)
    assert common(apart, keys) == (0 if words else 2)
    assert apart[1:] == keys[1:]


def test_words_that_say_nothing_are_none() -> None:
    assert in_namespace((4, 5), "", "") == (4, 5)
    assert in_namespace((), "a") == ()
