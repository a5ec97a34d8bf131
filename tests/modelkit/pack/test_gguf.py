"""GGUF files become packages whose numbers are exactly the file's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import modelkit
from modelkit.errors import PlanError
from modelkit.modelfile import Modelfile
from modelkit.pack.accept import decide
from modelkit.pack.build import build
from modelkit.pack.prepare import prepare
from modelkit.pack.sources import open_gguf
from modelkit.store.name import Name
from modelkit.store.package import Package
from modelkit.store.store import Store
from runtime.blocks.types import BLOCK_TYPES
from runtime.cpu import native
from runtime.device import Device
from runtime.loaded import LoadedModel, score
from runtime.loading.load import begin_load, load_model
from runtime.nn.operations import ops
from tests.support import gguf_llama
from tests.support.blocks import PACKED
from tests.support.gguf import Gguf, Tensor
from tests.support.gguf_package import create, write
from tests.support.gguf_references import GgufReference

IDS = [1, 5, 80, 200, 17, 300, 4, 9, 121, 33]


PROCESSOR = Device("cpu", "a processor", 0, 1 << 40, "float32", fast_quantized=False, cores=1)
KERNELS = replace(PROCESSOR, fast_quantized=True, as_stored=True)
PACKS = Device("cpu", "packed products", 0, 1 << 40, "float32", fast_quantized=True, cores=1)


def files(package: Package) -> tuple[dict[str, Any], list[Path]]:
    """Its config, and where its tensors are."""
    config = json.loads(package.files["config.json"].read_bytes())
    return config, [path for name, path in package.files.items() if name.endswith(".safetensors")]


def loaded(package: Package, on: Device | None = PROCESSOR) -> LoadedModel:
    return load_model(*files(package), on=on)


def floats(folder: Path, made: list[Any], config: dict[str, Any]) -> LoadedModel:
    """The model of the same numbers in float32."""
    plain = {key: value for key, value in config.items() if key != "quantization"}
    arrays = {name: mx.array(array) for name, array in gguf_llama.checkpoint(made).items()}
    mx.save_safetensors(str(folder / "floats.safetensors"), arrays)
    return load_model(plain, [folder / "floats.safetensors"], on=PROCESSOR)


def logits(model: LoadedModel) -> np.ndarray:
    return score(model, IDS, len(IDS))


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    """As near as activations of 16 bits come, which kernels multiply packed matrices by."""
    assert np.abs(found - wanted).max() < 1e-3 * wanted.std()


def parameters(model: LoadedModel) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in tree_flatten(model.network.parameters())}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


NAMES = [kind.name for kind in PACKED]
THIRDS = [NAMES[start::3] for start in range(3)]


@pytest.mark.parametrize("types", [*THIRDS, ["f32", "f16", "bf16"]], ids=lambda types: types[0])
def test_every_type_gives_the_numbers_of_the_file(types: list[str], store: Store, tmp_path: Path) -> None:
    """Embedding, head and rotated rows among them: 16 matrices, of 8 or 9 types."""
    made = gguf_llama.tensors(types)
    package = create(store, write(tmp_path / "source", gguf_llama.llama(types)))
    config = json.loads(package.files["config.json"].read_bytes())
    wanted = floats(tmp_path, made, config)
    found = loaded(package)
    expected, held = parameters(wanted), parameters(found)
    assert expected.keys() == held.keys()
    for name, array in expected.items():
        assert np.array_equal(held[name], array), name
    assert np.array_equal(logits(found), logits(wanted))


def test_a_device_with_packed_products_keeps_codes(store: Store, tmp_path: Path) -> None:
    made = gguf_llama.tensors(["q4_k"])
    package = create(store, write(tmp_path / "source", gguf_llama.llama(["q4_k"])))
    found = loaded(package, PACKS)
    assert any(name.endswith("down_proj.scales") for name in parameters(found))
    wanted = floats(tmp_path, made, json.loads(package.files["config.json"].read_bytes()))
    close(logits(found), logits(wanted))
    assert found.notes == ()


@pytest.mark.skipif(native.kernels is None, reason="no kernels")
def test_kernels_read_blocks_and_exact_codes_and_what_has_none_becomes_floats(
    store: Store, tmp_path: Path
) -> None:
    types = ["q4_k", "q6_k", "iq3_xxs", "iq2_xs"]
    made = gguf_llama.tensors(types)
    package = create(store, write(tmp_path / "source", gguf_llama.llama(types)))
    found = loaded(package, KERNELS)
    assert found.notes == ()
    held = parameters(found)
    config = json.loads(package.files["config.json"].read_bytes())
    for module, entry in config["quantization"].items():
        if isinstance(entry, dict):
            assert (held[f"{module}.weight"].dtype == np.uint8) == (entry["type"] in ("q4_k", "q6_k")), module
            assert (f"{module}.scales" in held) == (entry["type"] == "iq3_xxs"), module
    wanted = floats(tmp_path, made, config)
    assert np.abs(logits(found) - logits(wanted)).max() < 1e-2 * logits(wanted).std()
    with ops.using("plain"):  # what the blocks stand for, without the kernels' own rounding
        assert np.abs(logits(found) - logits(wanted)).max() < 1e-5 * logits(wanted).std()
    little = replace(KERNELS, available_bytes=found.weight_bytes)
    planned, cramped = (begin_load(*files(package), on=on).plan for on in (KERNELS, little))
    assert planned.stands(KERNELS)
    assert not planned.stands(little)
    assert not cramped.stands(KERNELS)
    assert loaded(package, little).notes == (
        "4 matrices of IQ2_XS run as 8-bit codes in groups of 32, the nearest form that MLX has",
    )


def test_types_that_mlx_has_not_run_as_eight_bits_with_a_note(store: Store, tmp_path: Path) -> None:
    package = create(store, write(tmp_path / "source", gguf_llama.llama(["q6_k"])))
    found = loaded(package, PACKS)
    assert found.notes == (
        "16 matrices of Q6_K run as 8-bit codes in groups of 32, the nearest form that MLX has",
    )
    exact = logits(loaded(package))
    assert 0 < np.abs(logits(found) - exact).max() < 0.05 * np.abs(exact).max()


def test_the_plan_says_what_each_tensor_becomes(store: Store, tmp_path: Path) -> None:
    types = ["q4_0", "q4_k", "q8_0", "f16"]
    path = write(tmp_path / "source", gguf_llama.llama(types))
    recipe = Modelfile.parse(f"FROM {path}\n").recipe(tmp_path)
    prepared = prepare(recipe, store)
    rows = {row["name"]: row for row in prepared.target.plan.rows()}
    q4_0, q4_k = rows["model.embed_tokens.weight"], rows["model.layers.0.self_attn.q_proj.weight"]
    assert (q4_0["source"], q4_0["format"], q4_0["exact"]) == ("q4_0", "q4g32", True)
    assert (q4_0["source_bits"], q4_0["bits"]) == (4.5, 5.0)
    assert (q4_k["source"], q4_k["format"], q4_k["exact"]) == ("q4_k", "q4_k", True)
    assert (q4_k["source_bits"], q4_k["bits"]) == (4.5, 4.5)
    assert all(row["exact"] for row in rows.values())
    assert "its tensors: 4 Q4_K, 4 Q4_0, 4 Q8_0, 4 F16, 5 F32" in prepared.notes
    assert prepared.target.plan.config["quantization"]["model.layers.0.self_attn.q_proj"] == {
        "mode": "gguf",
        "type": "q4_k",
    }


def test_nothing_is_requantized_unless_it_is_asked_for(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "source", gguf_llama.llama(["q6_k", "q8_0"]))
    recipe = Modelfile.parse(f"FROM {path}\n").recipe(tmp_path)
    asked = prepare(recipe, store, quantize="q8")
    rows = [row for row in asked.target.plan.rows() if len(row["shape"]) > 1]
    assert {row["format"] for row in rows} == {"q8"}
    assert not any(row["exact"] for row in rows)
    said = "the file was already quantized as Q6_K, Q8_0; q8 is made of exactly those numbers"
    assert said in asked.notes
    package = create(store, path, quantize="q8")
    plain = create(store, path, "plain")
    exact, near = (parameters(loaded(one))["lm_head.weight"] for one in (plain, package))
    assert 0 < np.square(near - exact).mean() < 1e-3 * np.square(exact).mean()
    wide = create(store, path, "wide", quantize="f32")
    assert np.array_equal(logits(loaded(wide)), logits(loaded(plain)))
    assert "quantization" not in json.loads(wide.files["config.json"].read_bytes())


def test_a_package_of_blocks_is_a_source_again(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "source", gguf_llama.llama(["q4_k", "q4_0", "q6_k"]))
    first = create(store, path)
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "Modelfile").write_text("FROM m\nPARAMETER top_k 7\n")
    recipe = Modelfile.read(tmp_path / "again" / "Modelfile").recipe(tmp_path / "again")
    build(recipe, Name.parse("n"), store)
    again = store.resolve("n")
    weights = [layer.blob.digest for layer in first.manifest.layers if layer.path.endswith(".safetensors")]
    kept = [layer.blob.digest for layer in again.manifest.layers if layer.path.endswith(".safetensors")]
    assert weights == kept
    assert again.files["gguf.json"].read_bytes() == first.files["gguf.json"].read_bytes()
    with pytest.raises(PlanError, match="quantized already"):
        create_from(store, "m", quantize="q4")
    with pytest.raises(PlanError, match="in GGUF's blocks, which are not unpacked"):
        create_from(store, "m", quantize="f32")


def create_from(store: Store, name: str, **options: Any) -> None:
    build(Modelfile.parse(f"FROM {name}\n").recipe(Path()), Name.parse("x"), store, **options)


def test_the_same_file_gives_the_same_package(store: Store, tmp_path: Path) -> None:
    content = gguf_llama.llama(["q4_k", "q5_0"])
    one = create(store, write(tmp_path / "a", content, "model.gguf"))
    other = create(Store(tmp_path / "other"), write(tmp_path / "b", content, "model.gguf"))
    assert one.digest == other.digest


def test_what_the_file_says_of_itself_is_kept(store: Store, tmp_path: Path) -> None:
    more = {"general.sampling.temp": 0.5, "general.tags": ["a", "b"], "quantize.imatrix.entries_count": 7}
    package = create(store, write(tmp_path / "s", gguf_llama.llama(["q8_0"], more=more)))
    facts = json.loads(package.files["gguf.json"].read_bytes())
    assert facts["general.license"] == "mit"
    assert facts["general.tags"] == ["a", "b"]
    assert facts["quantize.imatrix.entries_count"] == 7
    generation = json.loads(package.files["generation_config.json"].read_bytes())
    assert generation["temperature"] == 0.5


def test_given_files_give_the_logits_of_their_checkpoint(
    store: Store, shared_data: Path, tmp_path: Path
) -> None:
    package = create(store, shared_data / "gguf" / "tiny-llama-f32.gguf")
    reference = np.load(shared_data / "tiny" / "llama" / "ref.npz")
    ids = [int(one) for one in reference["input_ids"][0]]
    assert np.abs(score(loaded(package), ids, 16) - reference["logits_full"]).max() < 1e-4


def test_a_file_is_run_as_its_package_would_be(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "source", gguf_llama.llama(["q4_k", "q4_0", "q6_k", "f16"]))
    create(store, path)
    wanted: list[str] = []
    for name in ("m", str(path), str(path.parent)):
        with modelkit.load(name, home=tmp_path / "store") as model:
            wanted.append(str(model.generate("abc", num_predict=8, temperature=0)))
    assert wanted[0] == wanted[1] == wanted[2]


def test_mixed_target_and_draft(store: Store, tmp_path: Path) -> None:
    target = write(tmp_path / "t", gguf_llama.llama(["q8_0"]))
    draft = write(tmp_path / "d", gguf_llama.llama(["q4_k"], seed=1))
    recipe = Modelfile.parse(f"FROM {target}\nDRAFT {draft}\n").recipe(tmp_path)
    build(recipe, Name.parse("pair"), store)
    with modelkit.load("pair", home=tmp_path / "store") as model:
        text = str(model.generate("abc", num_predict=8, temperature=0))
    create(store, target)
    with modelkit.load("m", home=tmp_path / "store") as model:
        assert str(model.generate("abc", num_predict=8, temperature=0)) == text


def experts(kind: str, *, factor: bool) -> tuple[bytes, dict[str, np.ndarray]]:
    """A mixture of four in one type, and the numbers of its stacks by the name's middle."""
    count, made, stacks = 4, [], {}
    for tensor in gguf_llama.tensors(["q8_0"]):
        name = str(tensor.name)
        if ".ffn_" not in name or "norm" in name:
            made.append(tensor)
            continue
        shape = (count, *tensor.shape)
        content = gguf_llama.content(BLOCK_TYPES[kind], (count * shape[1], shape[2]), len(made))
        stack = Tensor(name.replace(".weight", "_exps.weight"), kind, shape, content)
        made.append(stack)
        numbers = gguf_llama.numbers(stack)
        if factor:
            by = np.array([0.5, 1.7, 3.1, 0.03], np.float32)
            made.append(Tensor(name.replace(".weight", "_exps.scale"), "f32", (count,), by.tobytes()))
            numbers = numbers * by[:, None, None]
        stacks[name.split("_")[-1].replace(".weight", name.split(".")[1])] = numbers
        if "gate" in name:
            router = gguf_llama.content(BLOCK_TYPES["f32"], (count, gguf_llama.HIDDEN), 5)
            router_name = name.replace("ffn_gate", "ffn_gate_inp")
            made.append(Tensor(router_name, "f32", (count, gguf_llama.HIDDEN), router))
    said = {"llama.expert_count": count, "llama.expert_used_count": 2}
    return bytes(Gguf({**gguf_llama.metadata(), **said}, made)), stacks


@pytest.mark.parametrize(
    ("kind", "factor"), [("q4_k", False), ("q8_0", False), ("nvfp4", False), ("nvfp4", True)]
)
def test_stacked_experts_are_exact(kind: str, factor: bool, store: Store, tmp_path: Path) -> None:
    content, stacks = experts(kind, factor=factor)
    package = create(store, write(tmp_path / "s", content))
    found = parameters(loaded(package))
    for name, numbers in stacks.items():
        part, layer = name[:-1], name[-1]
        (held,) = [a for n, a in found.items() if f"layers.{layer}." in n and f".{part}_proj.weight" in n]
        assert np.array_equal(held, numbers), name
    assert np.isfinite(logits(loaded(package, PACKS))).all()


def test_matrices_that_are_joined_may_be_of_several_types(tmp_path: Path) -> None:
    """As files of many sizes have them: values finer than queries and keys."""
    reference = GgufReference("kimi_linear")
    kinds = {"attn_q": "f16", "attn_k": "f32", "attn_v": "bf16"}
    made: list[Tensor] = []
    for name, array in reference.exported.items():
        kind = kinds.get(name.split(".")[-2], "f32")
        words = array.astype(np.float32).view("<u4") >> 16 if kind == "bf16" else array
        stored = words.astype({"f16": "<f2", "bf16": "<u2", "f32": "<f4"}[kind])
        made.append(Tensor(name, kind, array.shape, stored.tobytes()))
    path = write(tmp_path / "source", bytes(Gguf(reference.metadata, made)))
    plan = decide(open_gguf(path, "it"), "target").plan
    label = {tensor.name: tensor.label for tensor in plan.tensors}
    assert {label[f"model.layers.0.self_attn.{part}_proj.weight"] for part in "qkv"} == {"f32"}


def test_matrices_beside_a_filter_stay_packed(tmp_path: Path) -> None:
    """LFM2 calls them as its filter: `conv.in_proj`."""
    reference = GgufReference("lfm2")
    packed = {name for name in reference.exported if name.split(".")[-2] in ("in_proj", "out_proj")}
    made = [
        Tensor(
            name,
            kind.name,
            array.shape,
            gguf_llama.content(kind, array.shape, 1) if name in packed else array.tobytes(),
        )
        for name, array in reference.exported.items()
        for kind in [BLOCK_TYPES["q8_0" if name in packed else "f32"]]
    ]
    path = write(tmp_path / "source", bytes(Gguf(reference.metadata, made)))
    plan = decide(open_gguf(path, "it"), "target").plan
    label = {tensor.name: tensor.label for tensor in plan.tensors if ".conv." in tensor.name}
    assert {name.split(".conv.")[1]: kind for name, kind in label.items()} == {
        "conv.weight": "f32",
        "in_proj.weight": "q8g32",
        "out_proj.weight": "q8g32",
    }
