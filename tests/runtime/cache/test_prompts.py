"""Prompts that encoders have read, kept for whoever asks the same again."""

import mlx.core as mx

from runtime.cache.build import build_memory
from runtime.cache.layout import Encoder, Full
from runtime.cache.prefix import PrefixStore
from runtime.cache.prompts import KeptPrompts, of_prompts, prompt_keys
from runtime.step import Step

LAYOUT = (Encoder(1, 2, of_prompt=True), Full(1, 2))


def kept(*prompts: tuple[tuple[int, ...], str]) -> KeptPrompts:
    """These prompts, each read with adapters of such a name."""
    memory = build_memory(LAYOUT)
    own = KeptPrompts(memory, PrefixStore(of_prompts(LAYOUT), 1 << 20))
    layer, step = memory[0], Step((0,), (1,))
    assert layer is not None
    for ids, space in prompts:
        layer.append(step, *[mx.zeros((1, 1, len(ids), 2))] * 2)  # pyright: ignore[reportAttributeAccessIssue]
        layer.commit(step, (1,))
        assert own.keep(0, prompt_keys(ids, space)) is not None
        memory.clear(0)
    return own


def test_they_are_listed_as_ids_and_with_what_they_were_read_with() -> None:
    listed = kept(((7, 8, 9), ""), ((7, 8, 9), "adapters-a")).describe()
    assert {(entry.keys, entry.space) for entry in listed} == {((7, 8, 9), ""), ((7, 8, 9), "adapters-a")}


def test_those_that_begin_alike_are_listed_along_the_tree() -> None:
    listed = kept(((7, 8, 9), "adapters-a"), ((7, 5, 5), "adapters-a")).describe()
    assert [(entry.keys, entry.resumable) for entry in listed] == [
        ((7,), False),
        ((8, 9), True),
        ((5, 5), True),
    ]
