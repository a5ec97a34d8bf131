"""Formats are found for families whose matrices are experts, turned over, made of others, or out of reach."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from modelkit.errors import PlanError
from modelkit.modelfile import parse_quantizing
from modelkit.pack.accept import decide
from modelkit.pack.checks import check_tensors
from modelkit.pack.conversion import Part, Silent
from modelkit.pack.quality import reading
from modelkit.pack.quality.search import search
from modelkit.pack.sources import open_source
from modelkit.source.tree import read_directory
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference


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
        ("kimi_linear", "12 bits measured", ("model.layers.1.self_attn.kv_b_proj.weight",)),
    ],
)
def test_a_target_is_met(
    name: str, bits: str, measured: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SIZES", reading.Sizes(2, 1, 12))
    part = part_of(name, tmp_path / "m")
    asked = parse_quantizing(bits)
    found = search(part, asked, Texts(), Silent())  # pyright: ignore[reportArgumentType] -- all that it asks
    assert asked.bits is not None
    assert asked.bits - 1 < found.plan.bits_per_weight <= asked.bits
    assert found.report.measured == measured
    assert found.report.held_out.kl > 0
    check_tensors(part.source, found.plan)


@pytest.mark.parametrize("name", ["t5", "t5gemma"])
def test_what_reads_through_an_encoder_is_refused_before_it_is_loaded(name: str, tmp_path: Path) -> None:
    part = part_of(name, tmp_path / "m")
    for file in part.source.inventory.weights:
        file.path.unlink()
    with pytest.raises(PlanError, match="an encoder reads"):
        search(part, parse_quantizing("6 bits"), Texts(), Silent())  # pyright: ignore[reportArgumentType]
