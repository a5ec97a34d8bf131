"""Adapters on the one table of an encoder-decoder: the same for both that look up in it, or refused."""

from pathlib import Path

import numpy as np
import pytest

from modelkit.errors import UnsupportedSource
from modelkit.pack.adapters.place import Placement, place
from modelkit.source.adapters.reading import read_adapter
from runtime.models import describe
from tests.support.checkpoints import random_tensor
from tests.support.parity import Reference
from tests.support.peft_folders import write_peft

TABLES = ("encoder.embed_tokens", "decoder.embed_tokens")


def placed(name: str, tensors: dict[str, np.ndarray], folder: Path, **config: object) -> Placement:
    reference = Reference(name).record
    write_peft(folder / "lora", tensors, **config)
    shapes = {tensor: tuple(shape) for tensor, shape in reference["tensors"].items()}
    return place(read_adapter(folder / "lora"), describe(reference["config"]), shapes)


def said(kind: str, name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """What an adapter says of one of the base's tables."""
    record, trunk = Reference(name).record, "model." if name == "bart" else ""
    tokens, width = record["tensors"][f"{trunk}shared.weight"]
    stem = f"base_model.model.{trunk}"
    leaves = {
        "pair": {".lora_embedding_A": (3, tokens), ".lora_embedding_B": (width, 3)},
        "whole": {".weight": (tokens, width)},
        "rows": {".token_adapter.trainable_tokens_delta": (2, width)},
    }
    return {f"{stem}{{}}{leaf}": random_tensor(leaf, shape, seed) for leaf, shape in leaves[kind].items()}


@pytest.mark.parametrize("kind", ["pair", "whole", "rows"])
@pytest.mark.parametrize("name", ["bart", "t5"])
def test_what_is_said_of_both_copies_is_said_of_the_table(name: str, kind: str, tmp_path: Path) -> None:
    tensors = {key.format(table): array for table in TABLES for key, array in said(kind, name).items()}
    found = placed(name, tensors, tmp_path, trainable_token_indices={"embed_tokens": [3, 5]})
    assert "shared.weight" in found.parameters


@pytest.mark.parametrize("kind", ["pair", "whole", "rows"])
@pytest.mark.parametrize("table", TABLES)
def test_one_copy_alone_is_refused(table: str, kind: str, tmp_path: Path) -> None:
    tensors = {key.format(table): array for key, array in said(kind, "bart").items()}
    with pytest.raises(UnsupportedSource, match=rf"one table, and model\.{table}\.weight is changed alone"):
        placed("bart", tensors, tmp_path, trainable_token_indices={"embed_tokens": [3, 5]})


@pytest.mark.parametrize("kind", ["pair", "whole", "rows"])
def test_copies_that_change_each_otherwise_are_refused(kind: str, tmp_path: Path) -> None:
    tensors = {
        key.format(table): array
        for seed, table in enumerate(TABLES)
        for key, array in said(kind, "t5", seed).items()
    }
    with pytest.raises(UnsupportedSource, match="are changed each otherwise"):
        placed("t5", tensors, tmp_path, trainable_token_indices={"embed_tokens": [3, 5]})
