"""Formats are found for families whose matrices are experts, turned over, made of others, or out of reach."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

import modelkit
from modelkit.errors import PlanError
from modelkit.modelfile import parse_quantizing
from modelkit.pack.accept import decide
from modelkit.pack.checks import check_tensors
from modelkit.pack.part import Part
from modelkit.pack.quality import reading
from modelkit.pack.quality.drafts import fastest
from modelkit.pack.quality.search import search
from modelkit.pack.sources import open_source
from modelkit.progress import Silent
from modelkit.source.tree import read_directory
from modelkit.store.store import Store
from runtime.quality.reading import Answering
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer


@dataclass
class Tokens:
    """What a search asks of a tokenizer."""

    bos_id = 1
    eos_id = 2


class Texts:
    """What a search asks of a model that is ready."""

    tokenizer = Tokens()
    stop_ids = frozenset({2})
    suppressed = ()


def part_of(name: str, folder: Path) -> Part:
    record = Reference(name).record
    write_checkpoint(folder, record["config"], record["tensors"])
    return decide(open_source(read_directory(folder), name, {}), "target")


@pytest.mark.parametrize(
    ("name", "bits", "measured"),
    [
        ("mixtral", "9 bits", ()),
        ("gpt2", "9 bits", ()),
        ("qwen3_5_moe", "14 bits", ()),
        ("t5", "9 bits", ()),
        ("t5gemma", "12 bits", ()),
        ("umt5", "12 bits learned", ()),
        ("kimi_linear", "12 bits measured", ("model.layers.1.self_attn.kv_b_proj.weight",)),
    ],
)
def test_a_target_is_met(
    name: str, bits: str, measured: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SIZES", reading.Sizes(2, 1, 12, 8, 4))
    part = part_of(name, tmp_path / "m")
    asked = parse_quantizing(bits)
    found = search(part, asked, Texts(), Silent())  # pyright: ignore[reportArgumentType] -- all that it asks
    assert asked.bits is not None
    assert asked.bits - 1 < found.plan.bits_per_weight <= asked.bits
    assert found.report.measured == measured
    assert found.report.held_out.kl > 0
    check_tensors(part.source, found.plan)


def test_a_config_with_infinities_is_no_hindrance(tmp_path: Path, short: None) -> None:
    """Mamba 2 and what has its layers say `"time_step_limit": [0.0, Infinity]`."""
    record = Reference("mamba2").record
    assert math.inf in record["config"]["time_step_limit"]
    config = {key: one for key, one in record["config"].items() if not key.endswith("_token_id")}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, record["tensors"]), tokens=128)
    (tmp_path / "Modelfile").write_text("FROM ./model\nQUANTIZE 14 bits\n")
    made = [modelkit.create(tmp_path / "Modelfile", name=name, home=tmp_path) for name in ("one", "two")]
    assert made[0].digest == made[1].digest
    assert "quality.json" in Store(tmp_path).resolve("one").files


def test_a_text_of_yours_is_what_an_encoder_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SIZES", reading.Sizes(2, 1, 12))
    part = part_of("t5", tmp_path / "m")
    monkeypatch.setattr(Tokens, "encode", lambda *_, **__: list(range(3, 60)), raising=False)
    (tmp_path / "text.txt").write_text("any", encoding="utf-8")
    found = reading.read(part, Texts(), tmp_path / "text.txt", Silent(), train=False)  # pyright: ignore[reportArgumentType]
    assert isinstance(found.model, Answering)
    assert not found.own
    for text in found.calibration:
        (*piece, end) = found.model.sources[text][1:]
        assert end == Tokens.eos_id
        assert piece == list(range(piece[0], piece[0] + 10))
    assert all(text[0] == 0 for text in (*found.calibration, *found.held_out))  # the decoder's start


def test_a_drafts_formats_are_not_tried_with_a_target_that_answers(tmp_path: Path) -> None:
    target, draft = part_of("t5", tmp_path / "t"), part_of("llama", tmp_path / "d")
    for file in target.source.inventory.weights:
        file.path.unlink()
    with pytest.raises(PlanError, match="an encoder reads"):
        fastest(draft, target, parse_quantizing("auto"), Texts(), Silent())  # pyright: ignore[reportArgumentType]
