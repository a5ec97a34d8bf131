"""NVFP4's scales end at 448 and at 2**-10: what lies beyond is not packed into other numbers in silence."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.errors import SourceError
from modelkit.packages import list_packages
from tests.support.tiny import write_model

QUERIES = "model.layers.0.self_attn.q_proj.weight"


def create(tmp_path: Path, wanted: str, queries: np.ndarray) -> None:
    """A package of a model with those queries, [64, 64]."""
    folder = write_model(tmp_path / "model")
    tensors = {**load_file(folder / "model.safetensors"), QUERIES: queries.astype(np.float32)}
    save_file(tensors, folder / "model.safetensors")
    (tmp_path / "Modelfile").write_text(f"FROM ./model\nQUANTIZE plain {wanted}\n")
    modelkit.create(tmp_path / "Modelfile", name="reach", home=tmp_path / "home")


def normal(size: float) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((64, 64)) * size


@pytest.mark.parametrize(
    ("size", "said"), [(0.001, "too small for nvfp4: 100% of its groups"), (1e5, "too large for nvfp4")]
)
def test_a_matrix_that_nvfp4_cannot_hold_is_refused(size: float, said: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"`{QUERIES}` has numbers that are {said}") as caught:
        create(tmp_path, "nvfp4", normal(size))
    assert "mxfp4" in str(caught.value.hint)
    assert list_packages(home=tmp_path / "home") == []


@pytest.mark.parametrize("size", [0.001, 1e5])
def test_mxfp4_holds_it(size: float, tmp_path: Path) -> None:
    create(tmp_path, "mxfp4", normal(size))


def test_a_few_rows_next_to_zero_may_go(tmp_path: Path) -> None:
    queries = normal(0.02)
    queries[:6] *= 1e-4  # of 64
    queries[32:] = 0  # nothing is lost there
    create(tmp_path, "nvfp4", queries)


def test_a_tenth_of_the_groups_may_not(tmp_path: Path) -> None:
    queries = normal(0.02)
    queries[:7] *= 1e-4
    with pytest.raises(SourceError, match="11% of its groups of 16 would be zeros"):
        create(tmp_path, "nvfp4", queries)
