"""A head stored beside a config that ties it: left out when it repeats the embedding, kept when not, and the
embedding where there is no other.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import modelkit
from modelkit.errors import PlanError
from modelkit.pack.build import Created
from modelkit.store.name import Name
from modelkit.store.store import Store
from runtime.loaded import score
from runtime.loading.load import load_model
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference

Make = Callable[..., Created]
NAME = Name.parse("story")
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def tied(llama: Callable[..., Path]) -> Callable[..., Path]:
    """A folder `target` whose config ties a head that it has; `change` is made to the head."""

    def write(change: Callable[[mx.array], mx.array], **config: Any) -> Path:
        folder = llama("target", tie_word_embeddings=True, **config)
        path = folder / "model.safetensors"
        arrays = mx.load(str(path), format="safetensors")
        assert isinstance(arrays, dict)
        mx.save_safetensors(str(path), {**arrays, HEAD: change(arrays[TABLE])}, metadata={"format": "pt"})
        return folder

    return write


Tied = Callable[..., Path]


def same(table: mx.array) -> mx.array:
    return table


def other_end(table: mx.array) -> mx.array:
    return mx.concatenate([table[:-1], table[-1:] + 1])


def stored(store: Store) -> tuple[Mapping[str, Any], np.ndarray]:
    """The config of the package, and what it predicts."""
    files = store.resolve(NAME).files
    config = json.loads(files["config.json"].read_bytes())
    return config, score(load_model(config, [files["model.safetensors"]]), [1, 2, 3], 8)


def test_an_equal_head_is_left_out_of_a_conversion(tied: Tied, make: Make, store: Store) -> None:
    tied(same)
    created = make("FROM ./target", quantize="q8")
    assert f"{HEAD} is left out: it repeats the embedding, to which config.json ties it" in created.notes
    assert HEAD not in created.preparation.target.plan.stored()
    assert stored(store)[0]["tie_word_embeddings"] is True


def test_an_equal_head_keeps_its_file_when_nothing_is_converted(tied: Tied, make: Make, store: Store) -> None:
    folder = tied(same)
    make("FROM ./target")
    files = store.resolve(NAME).files
    assert files["config.json"].read_bytes() == (folder / "config.json").read_bytes()


@pytest.mark.parametrize("quantize", [None, "q8"])
def test_a_head_that_differs_in_one_row_is_the_models_head(
    tied: Tied, make: Make, store: Store, quantize: str | None
) -> None:
    tied(same)
    make("FROM ./target", quantize=quantize)
    before = stored(store)[1]
    tied(other_end)
    created = make("FROM ./target", quantize=quantize)
    config, after = stored(store)
    assert any(note.startswith(f"{HEAD} differs from {TABLE}") for note in created.notes)
    assert config["tie_word_embeddings"] is False
    assert np.abs(after - before)[:, :-1].max() < 1e-6
    assert np.abs(after - before)[:, -1].min() > 1e-3


@pytest.mark.parametrize("packed", [(TABLE, HEAD), (TABLE,), (HEAD,)], ids=["both", "table", "head"])
@pytest.mark.parametrize("change", [same, other_end])
def test_packed_ones_are_compared_as_they_are_packed(
    packed: tuple[str, ...], change: Callable[[mx.array], mx.array], tied: Tied, make: Make, store: Store
) -> None:
    folder = tied(change)
    path = folder / "model.safetensors"
    arrays = mx.load(str(path), format="safetensors")
    assert isinstance(arrays, dict)
    for name in packed:
        parts = mx.quantize(arrays.pop(name), group_size=32, bits=8)
        module = name.removesuffix("weight")
        arrays |= {
            module + leaf: part for leaf, part in zip(("weight", "scales", "biases"), parts, strict=True)
        }
    mx.save_safetensors(str(path), arrays)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization": {"group_size": 32, "bits": 8}}))
    notes = make("FROM ./target").notes
    kept = change is same and len(packed) == 2
    assert any(note.startswith(f"{HEAD} differs from {TABLE}") for note in notes) is not kept
    assert stored(store)[0]["tie_word_embeddings"] is kept


TABLES = {
    "falcon_7b": "word_embeddings",
    "bloom": "word_embeddings",
    "mamba": "embeddings",
    "opt": "embed_tokens",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_other_names(
    name: str, tmp_path: Path, make: Make, write_tokenizer: Callable[[Path, int], None]
) -> None:
    shapes = Reference(name).record["tensors"]
    table = next(tensor for tensor in shapes if tensor.endswith(f"{TABLES[name]}.weight"))
    folder = tmp_path / "target"
    write_checkpoint(folder, Reference(name).record["config"], {**shapes, HEAD: shapes[table]})
    write_tokenizer(folder, shapes[table][0])
    assert any(note.startswith(f"{HEAD} differs from {table}") for note in make("FROM ./target").notes)


def head_alone(folder: Path, table: str) -> None:
    """What safetensors' own `save_model` makes of the two names of one tensor."""
    path = folder / "model.safetensors"
    arrays = mx.load(str(path), format="safetensors")
    assert isinstance(arrays, dict)
    arrays[HEAD] = arrays.pop(table)
    mx.save_safetensors(str(path), arrays, metadata={"format": "pt", table: HEAD})


@pytest.mark.parametrize("quantize", [None, "q8", "f16"])
def test_a_head_alone_is_the_embedding(
    llama: Callable[..., Path], make: Make, store: Store, quantize: str | None
) -> None:
    folder = llama("target", tie_word_embeddings=True)
    before = make("FROM ./target", quantize=quantize)
    config, wanted = stored(store)
    with modelkit.load(folder) as opened:
        logits = opened.logits([1, 2, 3])
    head_alone(folder, TABLE)
    created = make("FROM ./target", quantize=quantize)
    assert created.preparation.target.plan.stored() == before.preparation.target.plan.stored()
    assert any(note.startswith(f"{HEAD} is the embedding") for note in created.notes)
    after, found = stored(store)
    assert after == config
    assert np.array_equal(found, wanted)
    with modelkit.load(folder) as opened:
        assert any(note.startswith(f"{HEAD} is the embedding") for note in opened.notes)
        assert np.array_equal(opened.logits([1, 2, 3]), logits)


@pytest.mark.parametrize("name", [*TABLES, "gpt2"])
def test_embeddings_of_other_names_have_heads_alone(
    name: str, tmp_path: Path, make: Make, write_tokenizer: Callable[[Path, int], None]
) -> None:
    shapes, config = Reference(name).record["tensors"], Reference(name).record["config"]
    table = next(one for one in shapes if one.endswith((f"{TABLES.get(name)}.weight", "wte.weight")))
    folder = tmp_path / "target"
    write_checkpoint(folder, config, shapes)
    write_tokenizer(folder, shapes[table][0])
    head_alone(folder, table)
    (note,) = (one for one in make("FROM ./target").notes if one.startswith(HEAD))
    assert note.endswith(f"it is called {table} here")


def test_a_head_alone_of_another_size_is_no_embedding(llama: Callable[..., Path], make: Make) -> None:
    folder = llama("target", tie_word_embeddings=True)
    head_alone(folder, TABLE)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 33}))
    with pytest.raises(PlanError, match=rf"{TABLE} is missing, expected shape 33"):
        make("FROM ./target")


def test_an_untied_package_is_a_source_like_any_other(tied: Tied, make: Make, store: Store) -> None:
    tied(other_end)
    first = make("FROM ./target")
    assert make("FROM story", "again").digest == first.digest


def test_a_head_where_none_can_be_is_refused(
    tied: Tied, make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from modelkit.pack import tying

    monkeypatch.setattr(
        tying, "_runs", lambda _: False
    )  # as Zamba 2, whose blocks are shared by the same word
    tied(other_end)
    with pytest.raises(PlanError, match=r"lm_head\.weight differs .* as this architecture must"):
        make("FROM ./target")
    assert not store.root.exists()
