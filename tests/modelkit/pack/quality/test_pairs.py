"""Two models that read one text: vocabularies padded differently, contexts of two lengths, other configs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from modelkit.cli.main import cli
from modelkit.comparing import predictions
from modelkit.pack.accept import decide
from modelkit.pack.quality.float_model import load
from modelkit.pack.sources import open_source
from modelkit.pack.writing.arrays import read_arrays
from modelkit.source.tree import read_directory
from modelkit.store.store import Store
from runtime.device import device
from runtime.loading.load import load_model
from runtime.quality import acceptance
from runtime.quality.divergence import reader
from tests.support.checkpoints import write_checkpoint
from tests.support.dflash import block_config, block_shapes
from tests.support.fp8_folders import as_fp8
from tests.support.parity import Reference
from tests.support.peft_folders import write_peft
from tests.support.tiny import write_model

Run = Callable[..., Result]
Texts = list[tuple[int, ...]]


@pytest.fixture
def padded(home: Path) -> Path:
    """The target with twice the rows that its tokenizer has, and half of those its draft has not."""
    write_model(home / "padded", seed=0, vocab_size=640, tie_word_embeddings=False)
    return home


def watched(monkeypatch: pytest.MonkeyPatch, module: object, name: str, place: int) -> Texts:
    """The texts that a function gets as one of its arguments."""
    seen: Texts = []
    honest = getattr(module, name)

    def watching(*given: object) -> object:
        texts = given[place]
        assert isinstance(texts, Sequence)
        seen.extend(tuple(text) for text in texts)
        return honest(*given)

    monkeypatch.setattr(module, name, watching)
    return seen


def test_a_model_writes_nothing_that_the_other_cannot_look_up(
    padded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched(monkeypatch, predictions, "_read", 1)
    predictions.compare(padded / "padded", padded / "target")
    assert seen
    assert max(map(max, seen)) < 320


def test_a_draft_is_tried_on_what_it_can_read(
    padded: Path, create: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(padded / "brief", seed=0, num_hidden_layers=1, max_position_embeddings=16)
    seen = watched(monkeypatch, acceptance, "shared", 2)
    made = create("x", "DRAFT ./brief", "QUANTIZE draft auto", source="./padded")
    assert made.exit_code == 0, made.stderr
    assert max(map(max, seen)) < 320
    assert max(map(len, seen)) == 16


def test_a_text_with_a_token_that_one_has_no_row_for(home: Path) -> None:
    for name in ("target", "draft"):
        write_model(home / name, seed=0, vocab_size=256 if name == "draft" else 320)
    (home / "text.txt").write_text("It was<end>a bright cold day." * 20)
    arguments = ["compare", str(home / "target"), str(home / "draft"), "--text", str(home / "text.txt")]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert (result.exit_code, "has the token 256, which one" in result.stderr) == (1, True), result.stderr


@pytest.mark.parametrize("lines", [("QUANTIZE draft auto",), ("QUANTIZE draft 5 bits",)])
def test_a_changed_config_is_another_model(home: Path, create: Run, lines: tuple[str, ...]) -> None:
    """The same weights, which turn keys otherwise."""
    first = create("x", "DRAFT ./draft", *lines)
    assert first.exit_code == 0, first.stderr
    config = json.loads((home / "draft" / "config.json").read_text())
    (home / "draft" / "config.json").write_text(json.dumps({**config, "rope_theta": 50.0}))
    create("y", "DRAFT ./draft", *lines)
    store = Store(home / "home")
    one, other = (store.resolve(name).files["draft/quality.json"].read_bytes() for name in "xy")
    assert one != other


@pytest.mark.parametrize("options", [(), ("-q", "q4")])
def test_a_draft_is_tried_with_a_target_that_has_to_be_converted(
    home: Path, create: Run, options: tuple[str, ...]
) -> None:
    as_fp8(home / "target")
    made = create("x", "DRAFT ./draft", "QUANTIZE draft auto", options=options)
    assert made.exit_code == 0, made.stderr


def test_experts_in_blocks_are_read_as_they_are(home: Path) -> None:
    record = Reference("gpt_oss").record
    write_checkpoint(home / "m", record["config"], record["tensors"])
    held = dict(load_file(home / "m" / "model.safetensors"))
    rng = np.random.default_rng(0)
    for name in [name for name in held if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, columns, rows = held.pop(name).shape
        held[f"{name}_blocks"] = rng.integers(0, 256, (experts, rows, columns // 32, 16), dtype=np.uint8)
        held[f"{name}_scales"] = rng.integers(118, 124, (experts, rows, columns // 32), dtype=np.uint8)
    save_file(held, home / "m" / "model.safetensors")
    part = decide(open_source(read_directory(home / "m"), "m", {}), "target")
    same = load_model(part.plan.config, read_arrays(part), on=replace(device(), fast_dtype="float32"))
    ids = list(range(3, 19))
    np.testing.assert_allclose(reader(load(part))(ids), reader(same)(ids), rtol=1e-4, atol=1e-4)


PACKED = {"auto": "without `auto` the draft stays", "5 bits": "or leave the target out"}


@pytest.mark.parametrize("asked", PACKED)
def test_a_packed_draft_is_said_to_be_packed(home: Path, create: Run, asked: str) -> None:
    create("packed", "QUANTIZE q4", source="./draft")
    said = create("x", "DRAFT packed", f"QUANTIZE draft {asked}").stderr
    assert "Modelfile:3:1: packed is quantized already" in said
    assert PACKED[asked] in said


@pytest.mark.parametrize("asked", ["auto", "12 bits"])
def test_formats_are_found_for_a_draft_in_fp8(home: Path, create: Run, asked: str) -> None:
    as_fp8(home / "draft")
    made = create("x", "DRAFT ./draft", f"QUANTIZE draft {asked}")
    assert made.exit_code == 0, made.stderr
    assert json.loads(made.stdout)["draft"]["bits_per_weight"] <= 12


@pytest.mark.parametrize("asked", ["auto", "5 bits", "q4 learned"])
def test_a_draft_that_only_runs_inside_its_target_is_not_read_by_itself(
    home: Path, create: Run, asked: str
) -> None:
    config = block_config()
    write_checkpoint(home / "block", config, block_shapes(config))
    result = create("x", "DRAFT ./block", f"QUANTIZE draft {asked}")
    assert (result.exit_code, "runs inside its target only" in result.stderr) == (1, True), result.stderr


def test_a_draft_is_not_tried_with_a_target_whose_adapters_are_not_in_it_yet(home: Path, create: Run) -> None:
    module = "base_model.model.model.layers.1.self_attn.q_proj"
    pair = {f"{module}.lora_A.weight": np.ones((3, 64)), f"{module}.lora_B.weight": np.ones((64, 3))}
    write_peft(home / "lora", {name: array.astype(np.float32) for name, array in pair.items()})
    lines = ("ADAPTER ./lora", "DRAFT ./draft", "QUANTIZE draft auto")
    result = create("x", *lines, options=("--fuse-adapters",))
    assert (result.exit_code, "are not in there yet" in result.stderr) == (1, True), result.stderr
    assert create("x", *lines).exit_code == 0


def test_a_model_drafts_for_itself_in_a_format_that_is_found(create: Run) -> None:
    """What it will be stored as is not known before, so it is not refused for being its own target."""
    made = create("x", "DRAFT ./target", "QUANTIZE draft 5 bits")
    assert made.exit_code == 0, made.stderr
    assert json.loads(made.stdout)["draft"]["bits_per_weight"] <= 5
