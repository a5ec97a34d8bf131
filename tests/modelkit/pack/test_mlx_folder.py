"""A folder for MLX tools holds no GGUF block: what only modelkit reads is MLX's own form there."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import modelkit
from modelkit.errors import SourceError, StoreError
from modelkit.modelfile import Modelfile
from modelkit.pack.build import build
from modelkit.pack.mlx_folder import shard
from modelkit.pack.mlx_folder.plan import plan_folder
from modelkit.pack.writing.reader import Reader
from modelkit.store.name import Name
from modelkit.store.store import Store
from runtime.blocks.forms import EXACT_IN_F32
from runtime.device import Device
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from tests.modelkit.pack.test_gguf import (
    IDS,
    PACKS,
    PROCESSOR,
    create,
    experts,
    loaded,
    logits,
    parameters,
    write,
)
from tests.support import gguf_llama

EXACT = list(EXACT_IN_F32)
NEAREST = ["q6_k", "q2_k", "q3_k", "iq1_m", "iq2_xs", "iq2_s"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def export(store: Store, folder: Path, name: str = "m", **options: Any) -> Any:
    return modelkit.export(name, folder, home=folder.parent / "home", **options)


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def by_modelkit(folder: Path, on: Device = PROCESSOR) -> LoadedModel:
    return load_model(config_of(folder), sorted(folder.glob("*.safetensors")), on=on)


def by_mlx_lm(folder: Path) -> np.ndarray:
    """[ids, vocabulary]"""
    from mlx_lm.utils import load_model as load  # pyright: ignore[reportMissingImports]

    model, _ = load(folder, lazy=False, strict=True)
    return np.array(model(mx.array(IDS)[None])[0].astype(mx.float32))


def step(numbers: np.ndarray) -> np.ndarray:
    """Of 8-bit codes: a 255th of the range of 32 numbers; below 1e-7 MLX has no steps."""
    groups = numbers.reshape(-1, 32)
    return np.repeat(np.maximum(np.ptp(groups, axis=1) / 255, 1e-7), 32).reshape(numbers.shape)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("types", [EXACT, NEAREST, ["q4_k", "q4_0", "q6_k", "f16"]], ids="-".join)
def test_every_kept_type_is_loaded_by_others(types: list[str], store: Store, tmp_path: Path) -> None:
    """Sixteen matrices, embedding and head among them."""
    package = create(store, write(tmp_path / "source", gguf_llama.llama(types)))
    before = {path: blob.read_bytes() for path, blob in package.files.items()}
    done, out = export(store, tmp_path / "out"), tmp_path / "out"
    assert (done.made, done.linked) == (3, len(before) - 3)
    assert {path: blob.read_bytes() for path, blob in package.files.items()} == before
    assert "gguf" not in json.dumps(config_of(out))

    whole, wanted, found = loaded(package), parameters(loaded(package)), parameters(by_modelkit(out))
    assert wanted.keys() == found.keys()
    config = json.loads(package.files["config.json"].read_bytes())
    for name, numbers in wanted.items():
        kept = config["quantization"].get(name.removesuffix(".weight"), {}).get("type")
        if kept in NEAREST:
            assert (np.abs(found[name] - numbers) <= step(numbers)).all(), name
        else:
            assert np.array_equal(found[name], numbers), name
    if find_spec("mlx_lm") is not None:
        same = logits(by_modelkit(out))
        assert np.abs(by_mlx_lm(out) - same).max() < 1e-4 * np.abs(same).max()
    codes, ours = (parameters(one) for one in (by_modelkit(out, PACKS), loaded(package, PACKS)))
    assert codes.keys() == ours.keys()
    assert all(np.array_equal(codes[name], array) for name, array in ours.items())
    error = np.abs(logits(by_modelkit(out)) - logits(whole)).max() / np.abs(logits(whole)).max()
    assert error == 0 if types == EXACT else 0 < error < 0.1


def test_the_index_and_both_blocks_say_what_is_in_the_files(store: Store, tmp_path: Path) -> None:
    create(store, write(tmp_path / "source", gguf_llama.llama(["q4_k", "q6_k"])))
    export(store, tmp_path / "first")
    folder = tmp_path / "first"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensors: dict[str, Any] = {}
    for path in folder.glob("*.safetensors"):
        tensors.update(dict(mx.load(str(path))))  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert index["weight_map"].keys() == tensors.keys()
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in tensors.values())
    block = config_of(folder)["quantization"]
    assert block["model.embed_tokens"] == {"group_size": 32, "bits": 4, "mode": "affine"}
    assert block["model.layers.0.self_attn.q_proj"] == {"group_size": 32, "bits": 8, "mode": "affine"}


def test_the_twin_of_the_block_is_rewritten_too(store: Store, tmp_path: Path) -> None:
    first = create(store, write(tmp_path / "source", gguf_llama.llama(["q4_k"])))
    (tmp_path / "twin").mkdir()
    for path, blob in first.files.items():
        if path != "modelkit.json":
            (tmp_path / "twin" / path).write_bytes(blob.read_bytes())
    config = config_of(tmp_path / "twin")
    config["quantization_config"] = config["quantization"]
    (tmp_path / "twin" / "config.json").write_text(json.dumps(config))
    create(store, tmp_path / "twin", "twin")
    export(store, tmp_path / "out", "twin")
    made = config_of(tmp_path / "out")
    assert made["quantization"] == made["quantization_config"] != config["quantization"]
    assert np.array_equal(logits(by_modelkit(tmp_path / "out")), logits(loaded(first)))


@pytest.mark.parametrize(("kind", "factor"), [("q4_k", False), ("nvfp4", True)])
def test_stacks_of_experts_in_pieces(
    kind: str, factor: bool, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "_PIECE", 150 * gguf_llama.HIDDEN)
    package = create(store, write(tmp_path / "source", experts(kind, factor=factor)[0]))
    export(store, tmp_path / "out")
    wanted, found = parameters(loaded(package)), parameters(by_modelkit(tmp_path / "out"))
    assert wanted.keys() == found.keys()
    for name, numbers in wanted.items():
        if factor and name.split(".")[-2] in ("gate_proj", "up_proj", "down_proj"):
            assert (np.abs(found[name] - numbers) <= step(numbers)).all(), name
        else:
            assert np.array_equal(found[name], numbers), name


def test_a_draft_is_turned_as_well(store: Store, tmp_path: Path) -> None:
    write(tmp_path, gguf_llama.llama(["q8_0"]), "target.gguf")
    write(tmp_path, gguf_llama.llama(["q5_k"], seed=1), "draft.gguf")
    recipe = Modelfile.parse("FROM ./target.gguf\nDRAFT ./draft.gguf\n").recipe(tmp_path)
    build(recipe, Name.parse("m"), store)
    package = store.resolve("m")
    assert export(store, tmp_path / "out").made == 3
    assert "gguf" not in json.dumps(config_of(tmp_path / "out" / "draft"))
    assert (tmp_path / "out" / "model.safetensors").samefile(package.files["model.safetensors"])
    (kind,) = plan_folder(package).kinds
    assert (kind.type, kind.becomes, kind.exact, kind.tensors) == ("q5_k", "q5g32", True, 16)


def test_again_changes_nothing_and_another_file_is_refused(store: Store, tmp_path: Path) -> None:
    create(store, write(tmp_path / "source", gguf_llama.llama(["q4_k"])))
    first, out = export(store, tmp_path / "out"), tmp_path / "out"
    again = export(store, out)
    assert (again.made, again.linked, again.present) == (0, 0, first.made + first.linked)
    weights = out / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreError, match=r"model\.safetensors is not a file of m"):
        export(store, out)


def test_a_failure_leaves_no_half_of_a_file(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store, write(tmp_path / "source", gguf_llama.llama(["q4_k"])))
    read, calls = Reader.read_range, iter(range(10))

    def fails(reader: Reader, path: Path, start: int, stop: int) -> bytearray:
        if next(calls) == 3:
            raise SourceError("the disk went away")
        return read(reader, path, start, stop)

    with monkeypatch.context() as patched:
        patched.setattr(Reader, "read_range", fails)
        with pytest.raises(SourceError, match="the disk went away"):
            export(store, tmp_path / "out")
    left = {path.name for path in tmp_path.joinpath("out").iterdir()}
    assert "model.safetensors" not in left
    assert not any(name.endswith(".part") for name in left)
    done = export(store, tmp_path / "out")
    assert done.present == len(left)
    assert np.isfinite(logits(by_modelkit(tmp_path / "out"))).all()


def test_bytes_do_not_depend_on_the_pieces(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = create(store, write(tmp_path / "source", gguf_llama.llama(["q4_k", "q6_k"])))
    made = plan_folder(package).made["model.safetensors"]

    def bytes_of(pieces: Iterator[tuple[int, Any]]) -> bytes:
        whole = bytearray(made.size_bytes)
        for at, piece in pieces:
            whole[at : at + len(piece)] = piece
        return bytes(whole)

    once = bytes_of(made.pieces())
    monkeypatch.setattr(shard, "_PIECE", 50 * gguf_llama.HIDDEN)
    monkeypatch.setattr(shard, "_COPY_BYTES", 1000)
    assert bytes_of(made.pieces()) == once
