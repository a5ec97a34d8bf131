"""Whether a head is the embedding again is said in more than one place, and not always meant."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.config.fields import text_config
from runtime.loading.load import load_model
from runtime.models import describe
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, full_logits


@pytest.mark.parametrize(("wrapper", "block"), [(False, True), (True, False)])
def test_the_wrappers_word_counts(wrapper: bool, block: bool) -> None:
    raw = {"tie_word_embeddings": wrapper, "text_config": {"tie_word_embeddings": block}}
    assert text_config(raw)["tie_word_embeddings"] is wrapper


def test_without_it_the_text_blocks_does() -> None:
    assert text_config({"text_config": {"tie_word_embeddings": True}})["tie_word_embeddings"] is True


@pytest.mark.parametrize("name", ["kimi_linear", "nemotron_h"])
def test_families_that_never_tie_have_a_head_of_their_own(name: str) -> None:
    config = {**Reference(name).record["config"], "tie_word_embeddings": True}
    assert describe(config).config.tied is False


def test_a_tied_head_of_minicpm_reads_what_is_scaled() -> None:
    """As its authors' class computes it; mlx-lm's leaves that out."""
    reference = Reference("minicpm")
    config, ids = reference.record["config"], reference.answers["ids"]
    tensors = {name: mx.array(x) for name, x in random_state(reference.record["tensors"]).items()}
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    apart = full_logits(load_model(config, tensors), ids)
    del tensors["lm_head.weight"]
    tied = full_logits(load_model({**config, "tie_word_embeddings": True}, tensors), ids)
    assert np.abs(tied - apart).max() < 1e-5 * apart.std()
