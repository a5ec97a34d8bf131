"""Phi-3-small where its references do not look: LongRoPE's two temperatures, and ids without a token."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.loading.load import load_model
from runtime.models import find_family
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, full_logits

FACTORS = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": 32}


def logits(folder: Path, config: dict[str, Any], count: int) -> np.ndarray:
    record = Reference("phi3small").record
    rows = (4 + 2 * config["num_key_value_heads"]) * 16
    shapes = {
        name: (rows, *shape[1:]) if ".query_key_value." in name else tuple(shape)
        for name, shape in record["tensors"].items()
    }
    state = {name: mx.array(array) for name, array in random_state(shapes).items()}
    mx.save_safetensors(str(folder / "model.safetensors"), state)
    model = load_model(config, [folder / "model.safetensors"])
    return full_logits(model, np.arange(3, 3 + count, dtype=np.int32))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("count", "squared"), [(32, 1.21), (40, 1.44)])
def test_scores_have_the_temperature_of_short_or_of_long_texts(
    tmp_path: Path, groups: int, count: int, squared: float
) -> None:
    plain = {**Reference("phi3small").record["config"], "num_key_value_heads": groups}
    block = {**FACTORS, "type": "su", "short_mscale": 1.0, "long_mscale": 1.0}
    wanted = logits(tmp_path, {**plain, "rope_scaling": block, "mup_attn_multiplier": squared}, count)
    block |= {"short_mscale": 1.1, "long_mscale": 1.2}
    found = logits(tmp_path, {**plain, "rope_scaling": block}, count)
    assert np.abs(found - wanted).max() <= 2e-5 * wanted.std()


def test_ids_without_a_token_are_never_drawn() -> None:
    config = {**Reference("phi3small").record["config"], "vocab_size": 100352}
    family = find_family(config)
    network = family.build(family.parse(config))
    told = np.array(network.logits(mx.zeros((1, 64)))[0])
    never = [100256, 100258, 100259, 100260, 100264, 100265, *range(100267, 100352)]
    assert np.flatnonzero(told < -1e30).tolist() == never


def test_an_inner_size_may_be_told_as_a_multiple() -> None:
    config = {**Reference("phi3small").record["config"], "ff_intermediate_size": None, "ff_dim_multiplier": 7}
    parse = find_family(config).parse
    assert parse(config).intermediate_size == 512
    assert parse({**config, "gegelu_pad_to_256": False}).intermediate_size == 294
