"""Whether a head is the embedding again is said in more than one place, and not always meant."""

import pytest

from runtime.models import describe
from runtime.models.config import text_config
from tests.support.parity import Reference


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
