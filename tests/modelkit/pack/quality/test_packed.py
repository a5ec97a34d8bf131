"""A target for a source that is packed already: its numbers are taken exactly, and may stay as they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import modelkit
from modelkit.comparing.predictions import compare
from modelkit.store.store import Store
from tests.support.code_checkpoints import gptq, random_codes
from tests.support.code_folders import gptq_config, linear, two
from tests.support.code_folders import llama as coded_llama
from tests.support.fp8_folders import as_fp8
from tests.support.gguf_llama import llama
from tests.support.peft_folders import write_peft

Run = Callable[..., Result]
REST = "what does not stay as it is is made of exactly those numbers"


def made(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def rows(home: Path, name: str) -> dict[str, dict[str, Any]]:
    package = Store(home / "home").resolve(name)
    return {row["name"]: row for row in json.loads(package.files["quality.json"].read_bytes())["matrices"]}


def weights(home: Path, name: str) -> bytes:
    return Store(home / "home").resolve(name).files["model.safetensors"].read_bytes()


def apart(home: Path, name: str, source: Path | str) -> float:
    """How far the package's answers are from its source's, in spreads of these."""
    with modelkit.load(name, home=home / "home") as one, modelkit.load(source, home=home / "home") as other:
        found, exact = (np.array(model.logits(list(range(3, 20)))) for model in (one, other))
    return float(np.abs(found - exact).max() / exact.std())


def test_fp8_is_searched_as_the_numbers_that_it_says(create: Run, home: Path) -> None:
    as_fp8(home / "target")
    found = made(create("x", "QUANTIZE 12 bits"))
    assert 8 < found["target"]["bits_per_weight"] <= 12
    assert found["target"]["size_bytes"] == sum(row["size_bytes"] for row in rows(home, "x").values()) + 1280
    made(create("decoded", "QUANTIZE f32"))
    assert 0 <= compare("decoded", "x").kl < 1e-3


@pytest.mark.parametrize("asked", ["q4 learned", "5 bits measured"])
def test_more_care_is_taken_of_fp8_too(create: Run, home: Path, asked: str) -> None:
    as_fp8(home / "target")
    made(create("x", f"QUANTIZE {asked}"))


def codes(home: Path) -> tuple[Path, Path]:
    """Folders of a checkpoint of GPTQ's codes, and of the same numbers as floats."""
    config, shapes = coded_llama()
    return two(
        home,
        config,
        shapes,
        gptq_config(4, 128),
        lambda name, shape: random_codes(name, shape, 4, 128),
        gptq,
        linear(shapes),
    )


def test_codes_stay_where_there_is_room_for_them(create: Run, home: Path) -> None:
    coded, plain = codes(home)
    result = create("x", "QUANTIZE 6 bits", source=f"./{coded.name}")
    assert made(result)["target"]["bits_per_weight"] <= 6
    assert f"the weights were already quantized with GPTQ (4 bits); {REST}" in made(result)["notes"]
    kept = made(create("same", source=f"./{coded.name}"))
    assert kept["target"]["bits_per_weight"] > 6  # its tables are floats
    found = rows(home, "x")
    assert {row["format"] for name, row in found.items() if "_proj" in name} == {"q4g128"}
    assert {row["cost"] for name, row in found.items() if "_proj" in name} == {0}
    for name, row in rows(home, "x").items():
        if "_proj" in name:
            assert row["size_bytes"] == row["elements"] * 4.25 / 8
    assert apart(home, "x", plain) < 0.5


def test_codes_get_fewer_bits_where_they_have_to(create: Run, home: Path) -> None:
    coded, plain = codes(home)
    assert (
        3 < made(create("x", "QUANTIZE 4 bits", source=f"./{coded.name}"))["target"]["bits_per_weight"] <= 4
    )
    formats = {row["format"] for name, row in rows(home, "x").items() if "_proj" in name}
    assert formats - {"q4g128"}
    # What is not kept is made of exactly the numbers that the codes say.
    made(create("y", "QUANTIZE 4 bits", source=f"./{plain.name}"))
    both = [rows(home, name) for name in "xy"]
    assert sum(both[0][name]["cost"] for name in both[0]) <= sum(both[1][name]["cost"] for name in both[1])


def test_blocks_of_gguf_stay_or_are_made_of_exactly_their_numbers(create: Run, home: Path) -> None:
    (home / "packed.gguf").write_bytes(llama(["q8_0", "q4_k"]))
    result = create("x", "QUANTIZE 5 bits", source="./packed.gguf")
    assert 4 < made(result)["target"]["bits_per_weight"] <= 5
    assert f"the file was already quantized as Q8_0, Q4_K; {REST}" in made(result)["notes"]
    formats = {row["format"] for row in rows(home, "x").values()}
    assert "q4_k" in formats
    assert len(formats) > 1


def test_a_target_that_what_is_packed_meets_already(create: Run, home: Path) -> None:
    (home / "packed.gguf").write_bytes(llama(["q4_k"]))
    said = create("x", "QUANTIZE 9 bits", source="./packed.gguf").stderr
    assert "9 bits is met already: the target takes" in said


def test_what_runs_without_a_package_is_compared_without_one(create: Run, home: Path) -> None:
    (home / "packed.gguf").write_bytes(llama(["q4_k", "q8_0"]))
    made(create("same", source="./packed.gguf"))
    coded, plain = codes(home)
    for one, other in (("same", home / "packed.gguf"), (plain, coded)):
        found = compare(one, other)
        assert abs(found.kl) < 1e-5
        assert found.weight_bytes[1] > 0
    found = compare("same", home / "packed.gguf")
    assert found.weight_bytes[0] == found.weight_bytes[1]


def test_codes_are_compared_with_their_adapters(create: Run, home: Path) -> None:
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    pair = {f"{module}.lora_A.weight": np.ones((3, 256)), f"{module}.lora_B.weight": np.ones((256, 3))}
    write_peft(home / "lora", {name: array.astype(np.float32) for name, array in pair.items()})
    (home / "packed.gguf").write_bytes(llama(["q4_k"]))
    made(create("x", "ADAPTER ./lora", source="./packed.gguf"))
    assert compare(home / "packed.gguf", "x+lora").kl > 1e-3
    assert abs(compare(home / "packed.gguf", "x+lora=0").kl) < 1e-5
