"""Dense modules behind pooling, the whole way: LaBSE's, EmbeddingGemma's, and one that narrows."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import modelkit
from modelkit.cli.main import cli
from modelkit.errors import ModelkitError, RequestError
from modelkit.settings import settings_at
from modelkit.showing.facts import facts_of
from modelkit.store import Store
from runtime.cpu import native
from tests.support.dense_folders import NAMES, dense_reference, dense_state, write_dense, write_module
from tests.support.embedding_folders import write_modules

TANH = {"in_features": 64, "out_features": 64, "bias": True}
TANH["activation_function"] = "torch.nn.modules.activation.Tanh"  # pyright: ignore[reportArgumentType]


def make(tmp_path: Path, **options: Any) -> Any:
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    return modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, **options)


@pytest.mark.parametrize("name", NAMES)
def test_the_references_vectors(tmp_path: Path, name: str) -> None:
    """From the folder, from its package, and from the package as a folder, once the source is gone."""
    record, folder = dense_reference(name), write_dense(tmp_path / "model", name)
    make(tmp_path)
    out = tmp_path / "out"
    done = CliRunner(env={"MODELKIT_HOME": str(tmp_path)}).invoke(cli, ["export", "it", str(out)])
    assert done.exit_code == 0, done.output
    wanted = np.array(record["vectors"])
    with modelkit.load(folder) as model:
        plain = model.embed(record["texts"], normalize=False).vectors
    shutil.rmtree(folder)
    assert np.abs(plain - wanted).max() < 1e-4 * wanted.std()
    for one in ("it", out):
        with modelkit.load(one, home=tmp_path) as model:
            assert np.array_equal(model.embed(record["texts"], normalize=False).vectors, plain)
            assert not model.writes
            lengths = np.linalg.norm(model.embed(record["texts"]).vectors, axis=1)
            assert np.allclose(lengths, 1)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_in_any_company(tmp_path: Path, name: str) -> None:
    record = dense_reference(name)
    with modelkit.load(write_dense(tmp_path / "model", name)) as model:
        together = model.embed(record["texts"] * 5).vectors
        for vector, ids in zip(together, record["texts"], strict=False):
            alone = model.embed([ids]).vectors[0]
            if native.kernels is None:
                assert np.abs(alone - vector).max() < 2e-6
            else:
                assert np.array_equal(alone, vector)


def test_no_format_rounds_its_weights(tmp_path: Path) -> None:
    record, folder = dense_reference("labse"), write_dense(tmp_path / "model", "labse")
    make(tmp_path, quantize="q8")
    store = Store(settings_at(tmp_path).home)
    kept = store.resolve("it").files["2_Dense/model.safetensors"]
    assert kept.read_bytes() == (folder / "2_Dense" / "model.safetensors").read_bytes()
    wanted = np.array(record["vectors"])
    with modelkit.load("it", home=tmp_path) as model:
        found = model.embed(record["texts"], normalize=False).vectors
    assert 0 < np.abs(found - wanted).mean() < 0.02 * wanted.std()


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_weights_in_16_bits(tmp_path: Path, dtype: str) -> None:
    import mlx.core as mx

    record, folder = dense_reference("labse"), write_dense(tmp_path / "model", "labse")
    kind = mx.float16 if dtype == "F16" else mx.bfloat16
    state = {one: mx.array(x).astype(kind) for one, x in dense_state(record["modules"][0], 0).items()}
    mx.save_safetensors(str(folder / "2_Dense" / "model.safetensors"), state)
    with modelkit.load(folder) as model:
        found = model.embed(record["texts"], normalize=False).vectors
    write_modules(folder, {"pooling_mode_cls_token": True})
    with modelkit.load(folder) as model:
        pooled = model.embed(record["texts"], normalize=False).vectors
    weight, bias = (np.array(state[f"linear.{one}"].astype(mx.float32)) for one in ("weight", "bias"))
    assert np.abs(found - np.tanh(pooled @ weight.T + bias)).max() < 1e-5


def test_it_counts_in_what_a_model_takes(tmp_path: Path) -> None:
    folder, told = write_dense(tmp_path / "model", "labse"), list[Any]()
    with modelkit.load(folder, on_memory=lambda memory, _: told.append(memory)) as model:
        both = model.memory.weight_bytes
    assert told[0].weight_bytes == both
    write_modules(folder, {"pooling_mode_cls_token": True})
    with modelkit.load(folder) as model:
        assert both - model.memory.weight_bytes == 4 * (64 * 64 + 64)


def test_what_show_says(tmp_path: Path) -> None:
    write_dense(tmp_path / "model", "narrowed")
    make(tmp_path)
    store = Store(settings_at(tmp_path).home)
    facts = facts_of(store, store.resolve("it"))
    assert facts["embedding_length"] == 24
    assert facts["embeddings"] == (
        "mean of all tokens, from 1_Pooling/config.json; dense to 40 by gelu, 24 by relu"
    )
    with modelkit.load("it", home=tmp_path) as model:
        assert model.embed("rain", dimensions=24).vectors.shape == (1, 24)
        with pytest.raises(RequestError, match="this model's vectors have 24"):
            model.embed("rain", dimensions=25)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"activation_function": "torch.nn.modules.activation.Mish"}, "Mish.*Identity, Tanh, ReLU, GELU"),
        ({"activation_function": "os.system"}, "activation_function is 'os.system'"),
        ({"in_features": 32}, "linear.weight \\[64, 64\\].*expected linear.weight \\[64, 32\\]"),
        ({"out_features": 0}, "out_features is 0"),
        ({"bias": False}, "linear.bias"),
        ({"bias": 1}, "bias is 1"),
        ({"use_residual": True}, "use_residual"),
        ({"module_input_name": "token_embeddings"}, "module_input_name is 'token_embeddings'"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_name(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    """The package is made, and show says why there are no embeddings."""
    folder = write_dense(tmp_path / "model", "labse")
    write_module(folder / "2_Dense", {**TANH, **change}, dense_state(TANH, 0))
    make(tmp_path)
    for one in (folder, "it"):
        with modelkit.load(one, home=tmp_path) as model, pytest.raises(RequestError, match=said):
            model.embed("rain")


def test_its_inputs_are_what_enters(tmp_path: Path) -> None:
    folder = write_dense(tmp_path / "model", "labse")
    narrow = {**TANH, "in_features": 32}
    write_module(folder / "2_Dense", narrow, dense_state(narrow, 0))
    with modelkit.load(folder) as model, pytest.raises(RequestError, match="32, and 64 elements enter"):
        model.embed("rain")


def test_weights_that_are_pickled_are_not_there(tmp_path: Path) -> None:
    folder = write_dense(tmp_path / "model", "labse")
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")
    with (
        modelkit.load(folder) as model,
        pytest.raises(RequestError, match=r"needs `?2_Dense/model\.safetensors"),
    ):
        model.embed("rain")


def test_weights_that_are_a_pointer_are_refused(tmp_path: Path) -> None:
    folder = write_dense(tmp_path / "model", "labse")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    (folder / "2_Dense" / "model.safetensors").write_text(pointer)
    with pytest.raises(ModelkitError, match=r"2_Dense/model\.safetensors"):
        make(tmp_path)


@pytest.mark.parametrize(
    "kinds", [("Transformer", "Dense", "Pooling"), ("Transformer", "Pooling", "Normalize")]
)
def test_elsewhere_it_is_refused(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    folder = write_dense(tmp_path / "model", "labse")
    modules = json.loads((folder / "modules.json").read_text())
    by_kind = {one["type"].rpartition(".")[2]: one for one in modules}
    listed = [by_kind[kind] for kind in kinds]
    if "Dense" not in kinds:
        listed.append(by_kind["Dense"])
    (folder / "modules.json").write_text(json.dumps(listed))
    with modelkit.load(folder) as model, pytest.raises(RequestError, match="between pooling and normalizing"):
        model.embed("rain")


def test_from_one_file(tmp_path: Path) -> None:
    """What lies in folders beside it belongs to it."""
    record = dense_reference("labse")
    write_dense(tmp_path / "model", "labse")
    (tmp_path / "Modelfile").write_text("FROM ./model/model.safetensors\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    with modelkit.load("it", home=tmp_path) as model:
        found = model.embed(record["texts"], normalize=False).vectors
    wanted = np.array(record["vectors"])
    assert np.abs(found - wanted).max() < 1e-4 * wanted.std()
