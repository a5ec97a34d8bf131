"""The bars themselves: every reference says how well its answers are determined, and the smallest of wrong
formulas is caught beside them.
"""

from pathlib import Path

import pytest

from runtime.nn.activation import gelu, gelu_tanh
from runtime.nn.feed_forward import mlp
from tests.support.parity import Reference, bar, full_logits

# GELU and its tanh form differ by 5e-4 at most. These networks have the second, and bars from 2e-5 to 2e-4.
APPROXIMATE = ["gemma", "gemma3_wrapped", "gemma4_moe", "gpt2", "recurrent_gemma", "starcoder2"]
MOST = 2e-4  # a network that is moved further tells a wrong formula from a right one badly


@pytest.mark.parametrize("name", Reference.names())
def test_every_reference_says_how_far_it_is_moved_by_the_last_bit(name: str) -> None:
    assert 0 < Reference(name).record["sensitivity"] <= MOST


@pytest.mark.parametrize("name", APPROXIMATE)
def test_the_other_gelu_is_found_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {key: gelu if value is gelu_tanh else value for key, value in mlp.ACTIVATIONS.items()}
    for key, value in exact.items():
        monkeypatch.setitem(mlp.ACTIVATIONS, key, value)
    reference = Reference(name)
    ids = reference.answers["ids"]
    assert reference.error(full_logits(reference.load(tmp_path), ids)) > 3 * bar(reference)
