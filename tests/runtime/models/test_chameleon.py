"""Chameleon where its references do not look: the vocabulary in its config, as large as it is published."""

from runtime.models import describe
from tests.support.parity import Reference


def test_a_vocabulary_of_the_published_size_is_read() -> None:
    size = 65536
    words = {f"IMGIMG{i}" if 4 <= i < 8196 else f"word{i}": i for i in range(size)}
    config = {**Reference.called("chameleon").record["config"], "vocab_size": size, "vocabulary_map": words}
    assert describe(config).config.undrawn == tuple(range(4, 8196))
