"""What PEFT adds behind the norm of an embedding's rows is refused; what goes through the norm is taken."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from modelkit.errors import SourceError
from modelkit.pack.adapters.place import Placement, place
from modelkit.source.adapters.reading import read_adapter
from runtime.models import describe
from tests.support.checkpoints import random_tensor
from tests.support.parity import Reference
from tests.support.peft_folders import write_peft

NAMES = ("inkling_text", "inkling2_text", "muse_glimmer", "muse_spark")


def placed(
    name: str, leaves: Mapping[str, tuple[int | str, ...]], folder: Path, **config: object
) -> Placement:
    """leaves: of what the adapter says of the table; V and D stand for its sizes."""
    record = Reference(name).record
    shapes = {tensor: tuple(shape) for tensor, shape in record["tensors"].items()}
    table = next(one for one in shapes if one.endswith("embed_tokens.weight"))
    sizes = dict(zip("VD", shapes[table], strict=True))
    stem = f"base_model.model.{table.removesuffix('.weight')}"
    tensors = {
        f"{stem}{leaf}": np.array(
            random_tensor(leaf, tuple(sizes[one] if isinstance(one, str) else one for one in shape))
        )
        for leaf, shape in leaves.items()
    }
    write_peft(folder / "lora", tensors, **config)
    return place(read_adapter(folder / "lora"), describe(record["config"]), shapes)


@pytest.mark.parametrize("name", NAMES)
def test_a_pair_for_the_module_is_refused(name: str, tmp_path: Path) -> None:
    pair = {".lora_embedding_A": (3, "V"), ".lora_embedding_B": ("D", 3)}
    with pytest.raises(SourceError, match="embed_tokens behind the norm of its rows") as refused:
        placed(name, pair, tmp_path)
    assert "modules_to_save" in (refused.value.hint or "")


def test_rows_of_their_own_are_refused(tmp_path: Path) -> None:
    rows = {".token_adapter.trainable_tokens_delta": (2, "D")}
    with pytest.raises(SourceError, match="embed_tokens behind the norm of its rows"):
        placed("muse_spark", rows, tmp_path, trainable_token_indices=[3, 5])


@pytest.mark.parametrize("name", NAMES)
def test_a_pair_for_the_parameter_is_taken(name: str, tmp_path: Path) -> None:
    pair = {".lora_A.weight": (3, "D"), ".lora_B.weight": ("V", 3)}
    found = placed(name, pair, tmp_path, target_parameters=["embed_tokens.weight"])
    assert any(one.endswith("embed_tokens.weight") for one in found.parameters)
