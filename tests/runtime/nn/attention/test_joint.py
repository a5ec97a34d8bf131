"""Attention over what was read and a layer's own tokens, under one softmax."""

from pathlib import Path

import numpy as np
import pytest

from runtime.cpu import native
from tests.support.parity import Reference, cut_logits


@pytest.mark.skipif(native.kernels is None, reason="products of MLX's own differ by how many rows they have")
def test_numbers_do_not_depend_on_how_a_text_was_cut(tmp_path: Path) -> None:
    """Its windows are past their end, so that memory has moved what it holds."""
    reference = Reference("t5gemma2")
    model, ids = reference.load(tmp_path), reference.answers["ids"]
    whole = cut_logits(model, ids, [48])
    for cuts in ([1], [7, 1, 3], [16]):
        assert np.array_equal(cut_logits(model, ids, cuts), whole), cuts
