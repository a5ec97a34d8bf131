"""Parts of images are not drawn in a text."""

import mlx.core as mx
import numpy as np

from runtime.loading import load_model
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, full_logits


def test_ids_of_images_are_never_drawn() -> None:
    reference = Reference("chameleon")
    ids = reference.answers["ids"]
    tensors = {name: mx.array(array) for name, array in random_state(reference.record["tensors"]).items()}
    plain = full_logits(load_model(reference.record["config"], tensors), ids)
    words = {"<image>": 5, "IMGIMGAZ": 7, "IMGIMGBCZ": 90, "the": 9}
    config = {**reference.record["config"], "vocabulary_map": words}
    got = full_logits(load_model(config, tensors), ids)
    assert (got[:, [7, 90]] < plain.min() - 1000).all()
    others = np.delete(np.arange(plain.shape[1]), [7, 90])
    assert np.array_equal(got[:, others], plain[:, others])
