"""Packages written as GGUF: what is said to be exact comes back bit for bit, by our own reader and table."""

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import modelkit
from modelkit.errors import StoreError, UnsupportedSource
from modelkit.fetch.upstream import Upstream
from modelkit.pack.gguf import writing
from modelkit.pack.gguf.export import Planned, plan_gguf
from modelkit.pack.gguf.metadata import own_name, safe_name
from modelkit.pack.gguf.type_choice import Scales, TypeChoice, choose_type
from modelkit.pack.gguf.writing import write_gguf
from modelkit.pack.metadata import Provenance
from modelkit.source.gguf.file import read_gguf
from modelkit.source.prequantized import Packing
from modelkit.store.store import Store
from runtime.blocks import encode
from runtime.blocks.decode import decoded, packed
from runtime.blocks.types import BLOCK_TYPES
from tests.support.checkpoints import random_state, write_checkpoint
from tests.support.gguf_round import exported, file_numbers, package_numbers, values
from tests.support.parity import Reference
from tests.support.peft_folders import write_peft
from tests.support.tiny import CONFIG, TEMPLATE, llama_shapes, write_tokenizer

SIZES = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 1}


def packaged(home: Path, folder: Path, quantize: str | None = None) -> Store:
    modelkit.create(
        modelkit.Modelfile.parse(f"FROM {folder}"),
        name="it",
        quantize=quantize,
        plain=bool(quantize),
        home=home,
    )
    return Store(home)


def _checkpoint(folder: Path, kind: mx.Dtype) -> Path:
    config = {**CONFIG, **SIZES, "tie_word_embeddings": False, "torch_dtype": "float16"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    state = {name: mx.array(one) for name, one in random_state(llama_shapes(config)).items()}
    mx.save_safetensors(
        str(folder / "model.safetensors"), {name: one.astype(kind) for name, one in state.items()}
    )
    write_tokenizer(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _checkpoint(tmp_path_factory.mktemp("f16"), mx.float16)


@pytest.fixture(scope="module")
def bf16_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _checkpoint(tmp_path_factory.mktemp("bf16"), mx.bfloat16)


# (format, the type of most tensors, is it exact?)
FORMATS = [
    (None, None, True),
    ("q1", "q4_1", True),
    ("q2", "q4_1", True),
    ("q3", "q4_1", True),
    ("q4", "q4_1", True),
    ("q4g32", "q4_1", True),
    ("q4g128", "q4_1", True),
    ("q5", "q5_1", True),
    ("q5g128", "q5_1", True),
    ("q6", "q8_0", False),
    ("q8", "q8_0", False),
    ("mxfp4", "mxfp4", True),
    ("nvfp4", "nvfp4", True),
    ("mxfp8", "bf16", True),
]


@pytest.mark.parametrize(("quantize", "kind", "exact"), FORMATS)
def test_what_an_import_of_the_file_computes_is_what_the_package_says(
    checkpoint: Path, tmp_path: Path, quantize: str | None, kind: str | None, exact: bool
) -> None:
    check_round(checkpoint, tmp_path, quantize, kind, exact=exact)


@pytest.mark.parametrize(("quantize", "kind"), [(None, "bf16"), ("q4", "q4_1"), ("q5g128", "q5_1")])
def test_scales_in_bfloat16_come_back_too(
    bf16_checkpoint: Path, tmp_path: Path, quantize: str | None, kind: str
) -> None:
    check_round(bf16_checkpoint, tmp_path, quantize, kind, exact=True)


def check_round(source: Path, folder: Path, quantize: str | None, kind: str | None, *, exact: bool) -> None:
    with packaged(folder / "home", source, quantize).hold("it") as package:
        planned = exported(package, folder / "it.gguf")
        wanted = package_numbers(package)
    found, imported = file_numbers(folder / "it.gguf")
    assert imported.config["model_type"] == "llama"
    assert found.keys() == wanted.keys()
    assert all(one.choice.exact for one in planned.written) == exact
    assert {one.choice.type for one in planned.written} >= ({kind} if kind else set())
    for name, numbers in wanted.items():
        if exact:
            np.testing.assert_array_equal(found[name], numbers, err_msg=name)
        else:
            assert np.abs(found[name] - numbers).max() <= np.abs(numbers).max() / 127, name


def test_the_file_is_one_that_its_reader_takes_and_says_what_the_package_says(
    checkpoint: Path, tmp_path: Path
) -> None:
    with packaged(tmp_path / "home", checkpoint, "q4").hold("it") as package:
        planned = plan_gguf(package)
        size = write_gguf(planned, tmp_path / "it.gguf")
    file = read_gguf(tmp_path / "it.gguf")
    assert size == (tmp_path / "it.gguf").stat().st_size
    assert not file.notes
    assert file.metadata["general.name"] == "it"
    assert file.metadata["general.file_type"] == 3
    assert file.metadata["tokenizer.chat_template"] == TEMPLATE
    assert file.metadata["tokenizer.ggml.eos_token_id"] == 256
    assert file.metadata.count("tokenizer.ggml.tokens") == CONFIG["vocab_size"]
    assert list(tmp_path.glob(".*")) == []


def test_the_same_package_gives_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    with packaged(tmp_path / "home", checkpoint, "q4").hold("it") as package:
        for name in ("a", "b"):
            exported(package, tmp_path / f"{name}.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


# Names of references: rows that move, experts in stacks, biases, fused matrices.
QUANTIZED = ("qwen3", "phi3_longrope_long", "qwen2_moe", "dots1", "stablelm")


@pytest.mark.parametrize("name", QUANTIZED)
def test_packed_tensors_of_many_families_come_back(name: str, tmp_path: Path) -> None:
    record = Reference(name).record
    config = {key: one for key, one in record["config"].items() if not key.endswith("_token_id")}
    write_checkpoint(tmp_path / "model", config, record["tensors"])
    write_tokenizer(tmp_path / "model", tokens=128)
    with packaged(tmp_path / "home", tmp_path / "model", "q4g32").hold("it") as package:
        planned = exported(package, tmp_path / "it.gguf")
        wanted = package_numbers(package)
    found, _ = file_numbers(tmp_path / "it.gguf")
    assert found.keys() == wanted.keys()
    rounded = {source for one in planned.written if not one.choice.exact for source in one.origin.tensors}
    for one, numbers in wanted.items():
        # Scales of float32 weights become 16-bit floats.
        bar = 2e-3 * np.abs(numbers).max() if one in rounded else 0.0
        assert np.abs(found[one] - numbers).max() <= bar, one


# Types with one 16-bit scale for at least 32 numbers.
PLAIN_TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q1_0", "q2_0")


@pytest.mark.parametrize("name", PLAIN_TYPES)
def test_blocks_that_were_imported_are_written_as_they_were(name: str) -> None:
    kind = BLOCK_TYPES[name]
    rng = np.random.default_rng(5)
    blocks = rng.integers(0, 256, (24, 4, kind.nbytes), dtype=np.uint8)
    ends = 2 if name in ("q4_1", "q5_1") else 1
    halves = rng.normal(0, 0.02, (24, 4, ends)).astype(np.float16)
    blocks[..., : 2 * ends] = halves.view(np.uint8).reshape(24, 4, -1)
    rows = mx.array(blocks.reshape(24, -1))
    bits = {"q4_0": 4, "q4_1": 4, "q5_0": 5, "q5_1": 5, "q8_0": 8, "q1_0": 1, "q2_0": 2}[name]
    made = packed(rows, kind, mx.float16)
    scales, offsets = (np.array(one.astype(mx.float32)) for one in (made.scales, made.biases))
    zero = {1: 0.5, 2: 1, 4: 8, 5: 16, 8: 128}[bits]
    middle = bool((offsets == -np.float32(zero) * scales).all())
    width = 4 * kind.weights
    chosen = choose_type(
        Packing(bits, kind.weights, "affine"), width, Scales(half=True, middle=middle, largest=1.0)
    )
    assert chosen == TypeChoice(name, "converted")
    codes = encode.codes_of(np.array(made.codes), bits)
    again = export_blocks(name, codes, scales, offsets, bits)
    np.testing.assert_array_equal(again, np.array(rows))


def export_blocks(
    name: str, codes: np.ndarray, scales: np.ndarray, offsets: np.ndarray, bits: int
) -> np.ndarray:
    from modelkit.pack.gguf.rows import affine_blocks

    return affine_blocks(name, codes, scales, offsets, bits)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_codes_are_read_as_mlx_packs_them(bits: int, group: int) -> None:
    matrix = mx.array(np.random.default_rng(1).normal(size=(8, 256)).astype(np.float32))
    words, scales, biases = mx.quantize(matrix, group, bits)
    codes = encode.codes_of(np.array(words), bits)
    ours = encode.dequantized(codes, np.array(scales), np.array(biases))
    np.testing.assert_allclose(ours, np.array(mx.dequantize(words, scales, biases, group, bits)), atol=1e-6)
    assert codes.max() < 2**bits


def test_the_nearest_eight_bits_are_those_of_ggml() -> None:
    numbers = np.random.default_rng(3).normal(size=(4, 96)).astype(np.float32)
    numbers[0, :32] = 0
    rows = encode.nearest_bytes(numbers)
    found = np.array(decoded(mx.array(rows), BLOCK_TYPES["q8_0"]))
    steps = np.abs(numbers.reshape(4, 3, 32)).max(axis=-1) / 127
    assert (np.abs(found - numbers).reshape(4, 3, 32).max(axis=-1) <= steps * 0.51).all()


@pytest.mark.parametrize(
    ("packing", "scales", "expected"),
    [
        (Packing(4, 64, "affine"), Scales(True, True, 1.0), "q4_0"),
        (Packing(5, 64, "affine"), Scales(True, True, 1.0), "q5_0"),
        (Packing(8, 64, "affine"), Scales(True, True, 1.0), "q8_0"),
        (Packing(6, 64, "affine"), Scales(True, True, 1.0), "q8_0"),
        (Packing(1, 64, "affine"), Scales(True, True, 1.0), "q4_1"),
        (Packing(4, 64, "affine"), Scales(True, False, 1e5), "bf16"),
        (Packing(4, 64, "affine"), Scales(True, False, float("nan")), "bf16"),
        (Packing(4, 16, "nvfp4"), Scales(True, True, 0.0, plain=False), "bf16"),
    ],
)
def test_a_type_is_chosen_by_what_the_scales_are(packing: Packing, scales: Scales, expected: str) -> None:
    assert choose_type(packing, 256, scales).type == expected


def test_what_is_rounded_is_said(checkpoint: Path, tmp_path: Path) -> None:
    with packaged(tmp_path / "home", checkpoint, "q8").hold("it") as package:
        (most, *_) = plan_gguf(package).kinds
    assert (most.type, most.how) == ("q8_0", "rounded")
    assert "8-bit codes with offsets" in most.why


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    config = {**CONFIG, "tie_word_embeddings": False}
    write_checkpoint(tmp_path / "model", config, llama_shapes(config))
    write_tokenizer(tmp_path / "model")
    with packaged(tmp_path / "home", tmp_path / "model").hold("it") as package:
        return plan_gguf(package)


@pytest.mark.parametrize(
    ("name", "pieces", "written"),
    [
        ("my-Phi-3-mini", ["a"], "my-Phi 3-mini"),
        ("phi3", ["a"], "phi 3"),
        ("phi3", ["</s>", "<unk>", "<s>", "<|endoftext|>"], "phi3"),
        ("phi-4", ["a"], "phi-4"),
    ],
)
def test_no_name_is_written_that_llama_cpp_fails_on(name: str, pieces: list[str], written: str) -> None:
    assert safe_name(name, pieces) == written


def test_a_model_goes_by_its_own_name(tmp_path: Path) -> None:
    """A package is called as its user likes. What no name can be is none."""
    fetched = Provenance(None, {}, Upstream("hub", "https://huggingface.co", "Qwen/Qwen3-8B"))
    facts = tmp_path / "gguf.json"
    facts.write_text(json.dumps({"general.name": "Qwen3 8B Instruct"}))
    assert own_name({"gguf.json": facts}, fetched, "mine") == "Qwen3 8B Instruct"
    for told in (" ", 7, "\x1b[2J"):
        facts.write_text(json.dumps({"general.name": told}))
        assert own_name({"gguf.json": facts}, fetched, "mine") == "Qwen3-8B"
    assert own_name({}, fetched, "mine") == "Qwen3-8B"
    assert own_name({}, Provenance(None, {}), "mine") == "mine"


def test_no_file_is_overwritten(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "it.gguf").write_text("mine")
    (tmp_path / "link.gguf").symlink_to("nowhere")
    for name in ("it.gguf", "link.gguf"):
        with pytest.raises(StoreError, match="exists already"):
            write_gguf(planned, tmp_path / name)
    assert (tmp_path / "it.gguf").read_text() == "mine"


def test_a_failure_leaves_nothing_behind(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "blocks", fails)
    with pytest.raises(StoreError, match="no space"):
        write_gguf(planned, tmp_path / "it.gguf")
    assert not [*tmp_path.glob("*.gguf"), *tmp_path.glob(".*.part")]


def test_what_a_killed_export_left_is_used_again(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / ".it.gguf.part").write_bytes(bytes(10_000_000))
    size = write_gguf(planned, tmp_path / "it.gguf")
    assert (tmp_path / "it.gguf").stat().st_size == size
    assert not (tmp_path / ".it.gguf.part").exists()


def test_two_exports_to_one_name_are_kept_apart(planned: Planned, tmp_path: Path) -> None:
    part = os.open(tmp_path / ".it.gguf.part", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another export"):
            write_gguf(planned, tmp_path / "it.gguf")
    finally:
        os.close(part)


def test_what_another_export_has_just_finished_is_left_as_it_is(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, part = tmp_path / "it.gguf", tmp_path / ".it.gguf.part"
    lock = fcntl.flock

    def after_the_other(file: int, how: int) -> None:
        """Our export has opened the file of one that gives it its name before we have its lock."""
        monkeypatch.setattr(fcntl, "flock", lock)
        os.write(file, b"the other")
        part.rename(target)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", after_the_other)
    with pytest.raises(StoreError, match="exists already"):
        write_gguf(planned, target)
    assert target.read_bytes() == b"the other"
    assert not part.exists()


def test_a_draft_is_a_file_of_its_own_with_the_models_vocabulary(tmp_path: Path) -> None:
    config = {**CONFIG, "tie_word_embeddings": False}
    for name, layers in (("model", 2), ("draft", 1)):
        changed = {**config, "num_hidden_layers": layers}
        write_checkpoint(tmp_path / name, changed, llama_shapes(changed))
        write_tokenizer(tmp_path / name)
    recipe = modelkit.Modelfile.parse(f"FROM {tmp_path / 'model'}\nDRAFT {tmp_path / 'draft'}")
    modelkit.create(recipe, name="it", home=tmp_path / "home")
    with Store(tmp_path / "home").hold("it") as package:
        whole = exported(package, tmp_path / "it.gguf")
        exported(package, tmp_path / "draft.gguf", draft=True)
        wanted = package_numbers(package, draft=True)
    assert any("--draft" in note for note in whole.notes)
    found, imported = file_numbers(tmp_path / "draft.gguf")
    assert imported.config["num_hidden_layers"] == 1
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    pieces = [
        read_gguf(tmp_path / f"{name}.gguf").metadata["tokenizer.ggml.tokens"] for name in ("it", "draft")
    ]
    assert pieces[0] == pieces[1]


def test_a_package_without_a_draft_has_none_to_write(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", CONFIG, llama_shapes(CONFIG))
    write_tokenizer(tmp_path / "model")
    with (
        packaged(tmp_path / "home", tmp_path / "model").hold("it") as package,
        pytest.raises(StoreError, match="has no draft"),
    ):
        plan_gguf(package, draft=True)


def test_a_family_without_an_architecture_is_refused(tmp_path: Path) -> None:
    record = Reference("zamba2").record
    config = {key: one for key, one in record["config"].items() if not key.endswith("_token_id")}
    write_checkpoint(tmp_path / "model", config, record["tensors"])
    write_tokenizer(tmp_path / "model", tokens=128)
    with (
        packaged(tmp_path / "home", tmp_path / "model").hold("it") as package,
        pytest.raises(UnsupportedSource, match="zamba2"),
    ):
        plan_gguf(package)


def test_from_python_a_file_and_what_became_of_the_numbers_come_back(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", CONFIG, llama_shapes(CONFIG))
    write_tokenizer(tmp_path / "model")
    packaged(tmp_path / "home", tmp_path / "model")
    done = modelkit.export_gguf("it", tmp_path / "it.gguf", home=tmp_path / "home")
    assert done.size_bytes == (tmp_path / "it.gguf").stat().st_size
    assert [kind.how for kind in done.tensors] == ["copied"]


def test_tensors_that_follow_from_the_config_are_written(tmp_path: Path) -> None:
    record = Reference("llama_llama3_rope").record
    write_checkpoint(tmp_path / "model", record["config"], record["tensors"])
    write_tokenizer(tmp_path / "model", tokens=128)
    with packaged(tmp_path / "home", tmp_path / "model").hold("it") as package:
        planned = exported(package, tmp_path / "it.gguf")
    file = read_gguf(tmp_path / "it.gguf")
    np.testing.assert_array_equal(
        values(file, "rope_freqs.weight"), np.array(planned.extra["rope_freqs.weight"], dtype=np.float32)
    )


def test_what_an_imported_file_said_of_its_making_is_said_again(checkpoint: Path, tmp_path: Path) -> None:
    said = {
        "general.author": "Ann",
        "general.license": "mit",
        "general.tags": ["a", "b"],
        "general.base_model.count": 1,
        "general.name": "Another",
        "general.file_type": 7,
        "general.alignment": 64,
        "general.sampling.temp": 0.1,
        "general.odd": {"not": "said"},
        "quantize.imatrix.file": "x.dat",
    }
    model = shutil.copytree(checkpoint, tmp_path / "model")
    (model / "gguf.json").write_text(json.dumps(said), encoding="utf-8")
    modelkit.create(modelkit.Modelfile.parse(f"FROM {model}"), name="it", home=tmp_path)
    with Store(tmp_path).hold("it") as package:
        exported(package, tmp_path / "it.gguf")
    found = read_gguf(tmp_path / "it.gguf").metadata
    again = {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}
    kept = {"general.author", "general.license", "general.tags", "general.base_model.count"}
    assert {key: again.get(key) for key in kept} == {key: said[key] for key in kept}
    assert again["general.name"] == "Another"
    assert again["general.file_type"] != 7
    lost = ("general.alignment", "general.sampling.temp", "general.odd", "quantize.imatrix.file")
    assert not {*lost} & {*again}


def test_parts_of_a_recipe_that_stay_behind_are_said(checkpoint: Path, tmp_path: Path) -> None:
    recipe = 'SYSTEM Be terse.\nPARAMETER stop END\nPARAMETER top_k 3\nLICENSE "Free."\n'
    modelfile = modelkit.Modelfile.parse(f"FROM {checkpoint}\n{recipe}")
    modelkit.create(modelfile, name="it", home=tmp_path)
    with Store(tmp_path).hold("it") as package:
        planned = plan_gguf(package)
    assert planned.metadata["general.sampling.top_k"] == 3
    notes = "\n".join(planned.notes)
    assert "SYSTEM" in notes
    assert "PARAMETER stop of" in notes
    assert "LICENSE is not in the file" in notes


def test_adapters_that_stay_behind_are_said(tmp_path: Path) -> None:
    config = {**CONFIG, "tie_word_embeddings": False}
    write_checkpoint(tmp_path / "model", config, llama_shapes(config))
    write_tokenizer(tmp_path / "model")
    query = "base_model.model.model.layers.0.self_attn.q_proj"
    pair = {
        f"{query}.lora_A.weight": np.ones((3, 64), np.float32),
        f"{query}.lora_B.weight": np.ones((64, 3), np.float32),
    }
    write_peft(tmp_path / "style", pair)
    recipe = modelkit.Modelfile.parse(f"FROM {tmp_path / 'model'}\nADAPTER {tmp_path / 'style'}")
    modelkit.create(recipe, name="it", home=tmp_path / "home")
    with Store(tmp_path / "home").hold("it") as package:
        assert any("adapters are not in the file (style)" in note for note in plan_gguf(package).notes)
