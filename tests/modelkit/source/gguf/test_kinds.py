"""Metadata of other kinds than llama.cpp's, or that says what cannot be: read, or refused in words."""

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from modelkit.errors import MalformedFile, ModelkitError
from runtime.errors import UnsupportedModel
from tests.support.gguf_references import GgufReference, read

ODD: tuple[Any, ...] = (
    None,
    *(0, -1, 1, 3, 2**31 - 1, 2**63, 1.5, math.nan, math.inf, 0.0, -1.0, 1e30),
    *(True, False, "x", "", [], [0], [1, 2, 3], [0.0], ["x"], [math.nan]),
)
A_FEW = 12


def changes(reference: GgufReference) -> Iterator[tuple[str, Any]]:
    """One key of the architecture, and what it is to be; None: it is not there."""
    for key, value in reference.metadata.items():
        if key == "general.architecture" or key.startswith("tokenizer."):
            continue
        yield from ((key, other) for other in ODD)
        if isinstance(value, (list, tuple)) and value:
            lists = ([0] * len(value), [-1] * len(value), [2**31 - 1] * len(value), [math.nan] * len(value))
            yield from ((key, other) for other in lists)
            yield from ((key, other) for other in (list(value)[:-1], [*value, value[0]]))
        elif type(value) is int:
            yield from ((key, other) for other in (value + 1, max(value - 1, 0), 2 * value, [value] * 3))


def survives(reference: GgufReference, key: str, value: Any) -> bool:
    """Is it read? Any error but one for the user fails the test."""
    metadata = {name: one for name, one in reference.metadata.items() if name != key}
    if value is not None:
        metadata[key] = value
    try:
        read(metadata, reference.shapes, reference.exported, "m.gguf")
    except (ModelkitError, UnsupportedModel):
        return False
    return True


@pytest.mark.parametrize("name", GgufReference.names())
def test_odd_values_are_read_or_refused_in_words(name: str) -> None:
    reference = GgufReference(name)
    for key, value in random.Random(name).sample(list(changes(reference)), A_FEW):
        survives(reference, key, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", GgufReference.names())
def test_every_odd_value_is_read_or_refused_in_words(name: str) -> None:
    reference = GgufReference(name)
    found = [survives(reference, key, value) for key, value in changes(reference)]
    assert not all(found)


@pytest.mark.parametrize(
    ("name", "key", "value", "said"),
    [
        ("llama", "llama.embedding_length", 0, "is 0; a whole number from 1 on was expected"),
        ("llama", "llama.embedding_length", "64", "is '64'; a whole number from 1 on was expected"),
        ("llama", "llama.attention.head_count", [1.5], "is [1.5]; a whole number, or one for each block"),
        ("plamo", "plamo.attention.head_count", [10, 5, 5], "is [10, 5, 5]; a number was expected"),
        ("llama", "llama.attention.layer_norm_rms_epsilon", math.nan, "is nan; a number was expected"),
        ("llama", "llama.rope.freq_base", [1.0], "is [1.0]; a number was expected"),
        ("qwen3_moe", "qwen3moe.expert_count", True, "is True; a whole number was expected"),
        ("gemma4", "gemma4.feed_forward_length", [64], "a number for each layer was expected"),
        ("gemma4", "gemma4.feed_forward_length", None, "is None; a number was expected"),
        ("step3p5", "step35.swiglu_clamp_exp", ["x"], "a number, or one for each block was expected"),
        ("qwen3_5", "qwen35.ssm.state_size", 2**31 - 1, "other rows than the metadata means"),
    ],
)
def test_what_is_wrong_is_said(name: str, key: str, value: Any, said: str) -> None:
    reference = GgufReference(name)
    metadata = {one: kept for one, kept in reference.metadata.items() if one != key}
    if value is not None:
        metadata[key] = value
    with pytest.raises(MalformedFile) as caught:
        read(metadata, reference.shapes, reference.exported, "m.gguf")
    assert f"`{key}`" in str(caught.value) or "other rows" in said
    assert said in str(caught.value)
