"""Costs that are foreseen are those that are measured, and a network's matrices are found in its tensors."""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.embedding import Pool
from runtime.loaded import LoadedModel
from runtime.quality.divergence import Divergence, Likeness, divergence, likeness, reader
from runtime.quality.errors import costs, rounded
from runtime.quality.fisher import moments
from runtime.quality.owners import owners
from runtime.quality.reading import embedding
from runtime.quality.student import StoredMatrix, left_of, with_packed
from runtime.quant import find_format
from tests.support.parity import Reference

FAMILIES = ["llama", "gpt2", "mixtral", "gpt_oss", "deepseek_v3", "qwen3_5", "mamba2", "gemma3"]


def texts(model: LoadedModel, count: int = 3, tokens: int = 16) -> list[list[int]]:
    drawn = np.random.default_rng(1).integers(0, model.vocab_size, (count, tokens))
    return drawn.tolist()


def agrees(model: LoadedModel, some: list[list[int]], compared: Callable[..., Divergence | Likeness]) -> None:
    """What errors cost, one matrix after the other at 6 bits: the same order foreseen as measured, and the
    same size within a factor.
    """
    how = find_format("q6g32")
    assert how is not None
    seen, modules = moments(model, some), dict(model.network.named_modules())
    before = {tuple(text): reader(model)(text) for text in some}
    foreseen, measured = [], []
    for path, uses in seen.items():
        weight = modules[path]["weight"]
        if weight.shape[-1] % 32 or len(foreseen) > 24:
            continue
        foreseen += costs(weight, uses, [how], mx.float32)
        modules[path]["weight"] = rounded(weight, how).astype(weight.dtype)
        measured.append(compared(lambda ids: before[tuple(ids)], reader(model), some).cost)
        modules[path]["weight"] = weight
    assert len(foreseen) > 3
    ranks = np.stack([np.argsort(np.argsort(one)) for one in (foreseen, measured)])
    assert np.asarray(np.corrcoef(ranks))[0, 1] > 0.6
    assert 0.1 < np.median(np.array(foreseen) / np.array(measured)) < 10


@pytest.mark.parametrize("name", [name for name in FAMILIES if name in Reference.names()])
def test_what_is_foreseen_is_what_is_measured(name: str, tmp_path: Path) -> None:
    model = Reference(name).load(tmp_path / "m")
    agrees(model, texts(model), divergence)


ENCODERS = Reference.encoders()
POOLS: tuple[Pool, ...] = ("mean", "first")


@pytest.mark.parametrize("name", ENCODERS)
def test_what_turns_a_vector_is_foreseen(name: str, tmp_path: Path) -> None:
    """By one pooling here and by the other there."""
    turns_as_foreseen(name, POOLS[ENCODERS.index(name) % len(POOLS)], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", ENCODERS)
def test_what_turns_a_vector_is_foreseen_by_any_pooling(name: str, pool: Pool, tmp_path: Path) -> None:
    turns_as_foreseen(name, pool, tmp_path)


def turns_as_foreseen(name: str, pool: Pool, folder: Path) -> None:
    model = Reference.called(name).load(folder / "m")
    agrees(embedding(model, pool, ()), texts(model, 6), likeness)


def test_a_matrix_is_found_in_the_tensors_that_it_is_made_of(tmp_path: Path) -> None:
    reference = Reference("mixtral")
    model = reference.load(tmp_path / "m")
    shapes = {name: tuple(shape) for name, shape in reference.record["tensors"].items()}
    found = owners(model.described, shapes)
    experts = "model.layers.0.mlp.experts.gate_up_proj"
    assert [path for path in found if experts in found[path]] == [
        "model.layers.0.mlp.switch_mlp.gate_proj",
        "model.layers.0.mlp.switch_mlp.up_proj",
    ]
    assert found["lm_head"] == ("lm_head.weight",)


def test_a_student_computes_with_what_is_left_of_each_matrix(tmp_path: Path) -> None:
    model = Reference("llama").load(tmp_path / "m")
    how = find_format("q4g32")
    assert how is not None
    path = "model.layers.0.self_attn.q_proj"
    weight = dict(model.network.named_modules())[path]["weight"]
    stored = StoredMatrix(how, mx.bfloat16, weight.shape[-1])
    student = with_packed(model, {path: stored})
    dict(model.network.named_modules())[path]["weight"] = left_of(weight, stored)
    ids = list(range(8))
    assert mx.allclose(reader(student)(ids), reader(model)(ids), atol=1e-4)


def test_nothing_is_nothing_away_from_itself(tmp_path: Path) -> None:
    model = Reference("llama").load(tmp_path / "m")
    found = divergence(reader(model), reader(model), texts(model))
    assert (found.kl, found.kl_p99, found.same_top, found.perplexity_ratio) == (0, 0, 1, 1)
