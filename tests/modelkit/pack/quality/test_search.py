"""A target in a Modelfile or an option, through the real create: met, refused, the same twice, and better."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from modelkit import export_gguf
from modelkit.cli.main import cli
from modelkit.comparing.predictions import compare
from modelkit.errors import StoreError
from modelkit.pack.quality import reading, search, text_file
from modelkit.pack.quality.report import check_report, notes_of, warnings
from modelkit.pack.quality.sensitivity import Costs
from modelkit.store.store import Store
from modelkit.tokenizer import tokenizer
from tests.support.tiny import write_model

ISLAND = Path(__file__).resolve().parents[4] / "examples" / "island"

Run = Callable[..., Result]


def report(home: Path, name: str) -> dict[str, Any]:
    return json.loads(Store(home / "home").resolve(name).files["quality.json"].read_bytes())


def test_a_target_is_met_and_said(create: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkit.pack.quality.report.MUCH_KL", -1.0)
    made = json.loads(create("x", options=("--target-bits", "9")).stdout)
    assert 8 < made["target"]["bits_per_weight"] <= 9
    kept = report(home, "x")
    assert kept["bits_per_weight"] == made["target"]["bits_per_weight"]
    assert (
        kept["size_bytes"]
        == made["target"]["size_bytes"]
        == sum(m["size_bytes"] for m in kept["matrices"]) + 1280
    )
    assert len({row["format"] for row in kept["matrices"]}) > 1
    shown = CliRunner().invoke(cli, ["show", "x", "--quality"], catch_exceptions=False)
    assert "9 bits" in shown.stdout
    assert "held out, own text" in shown.stdout
    assert all(row["name"] in shown.stdout for row in kept["matrices"])
    listed = json.loads(CliRunner().invoke(cli, ["show", "x", "--quality", "--json"]).stdout)
    assert listed == {"target": kept}
    (bad,) = warnings(kept)
    assert f"{bad} (modelkit show --quality)" in made["notes"]  # it was for those to see who asked `show`
    assert Store(home / "home").resolve("x").files["quality.svg"].read_text().startswith("<svg")


@pytest.mark.parametrize("bits", ["16", "13 measured"])
def test_16_bits_of_float32_are_bfloat16(create: Run, home: Path, bits: str) -> None:
    """There was nothing between q8g32, of 10 bits, and 32: 16 bits were q8g32 beside f32."""
    bits, *how = bits.split()
    options = ("--target-bits", bits, *(f"--quality={one}" for one in how))
    made = json.loads(create("x", options=options).stdout)["target"]
    assert float(bits) - 1 < made["bits_per_weight"] <= float(bits)
    formats = {row["format"] for row in report(home, "x")["matrices"]}
    assert "bf16" in formats
    assert "f32" not in formats
    if bits == "16":
        assert (
            json.loads(create("y", options=("-q", "bf16")).stdout)["target"]["size_bytes"]
            == made["size_bytes"]
        )
    assert CliRunner().invoke(cli, ["run", "x", "once", "-p", "num_predict=2"]).exit_code == 0


def test_twice_is_the_same_and_reads_the_model_once(
    create: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = json.loads(create("x", "QUANTIZE 9 bits").stdout)
    monkeypatch.setenv("MODELKIT_HOME", str(home / "other"))
    assert json.loads(create("y", options=("--target-bits", "9")).stdout)["digest"] == first["digest"]
    monkeypatch.setattr(reading, "load", None)  # what was found once is known
    third = json.loads(create("y", "QUANTIZE 9 bits", "SYSTEM Hi").stdout)
    assert third["target"] == first["target"]
    assert third["digest"] != first["digest"]
    again = CliRunner().invoke(cli, ["show", "y", "--modelfile"]).stdout
    assert "QUANTIZE 9 bits\n" in again


@pytest.mark.parametrize("form", ["float64", "head alone"])
def test_files_that_are_written_anew_give_the_same_weights(create: Run, home: Path, form: str) -> None:
    plain = json.loads(create("x", "QUANTIZE 9 bits").stdout)
    path = home / "target" / "model.safetensors"
    tensors = load_file(path)
    if form == "float64":
        tensors = {name: array.astype(np.float64) for name, array in tensors.items()}
    else:
        tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    save_file(tensors, path)
    other = json.loads(create("y", "QUANTIZE 9 bits").stdout)
    assert other["target"] == plain["target"]
    files = [Store(home / "home").resolve(name).files["model.safetensors"] for name in "xy"]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_size_is_a_target_too(create: Run) -> None:
    made = json.loads(create("x", "QUANTIZE 0.1MB measured").stdout)
    assert 95_000 < made["target"]["size_bytes"] <= 100_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("QUANTIZE 2 bits", "the least that the target takes is 35.6 kB, 3.01 bits per weight"),
        ("QUANTIZE 32 bits", "is met already"),
        ("QUANTIZE 1kB", "The nearest target is 3.02 bits"),
        ("QUANTIZE auto", "this is the target"),
        ("QUANTIZE mxfp4 learned", "and mxfp4 is not one"),
        ("QUANTIZE draft auto", "there is no draft to store as auto"),
        ("QUANTIZE 4 bits plain", "says neither"),
        ("QUANTIZE q4 measured", "q4 names one"),
        ("QUANTIZE 4 bits from ./nowhere", "there is no text"),
        ("QUANTIZE 4 bits from ~nobody-of-that-name/x", "there is no text"),
        (f"QUANTIZE 4 bits from ./{'a' * 300}", "there is no text"),
        ("QUANTIZE 44444 bits", "is not a number of bits"),
        ("QUANTIZE 4.5", "Write `4.5 bits`"),
        ("QUANTIZE draft", "there is no format"),
    ],
)
def test_what_cannot_be_met_is_refused(create: Run, line: str, said: str, home: Path) -> None:
    result = create("x", line)
    assert (result.exit_code, said in result.stderr) == (1, True), result.stderr
    assert "Modelfile:2:1: " in result.stderr
    assert not list((home / "home" / "blobs").glob("*/*"))


def test_two_targets_are_wrong_usage(create: Run) -> None:
    result = create("x", options=("--target-bits", "4", "-q", "q4"))
    assert (result.exit_code, "--quantize and --target-bits" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--target-bits", "", "is not a number of bits"),
        ("--target-bits", "4.5 bits", "is not a number of bits"),
        ("--target-bits", "5.12345", "at most four digits behind the point"),
        ("--target-size", "", "expected a number of bytes"),
        ("--target-size", "q4", "expected a number of bytes"),
        ("--target-size", "4.5 bits", "expected a number of bytes"),
        ("--target-size", "0.1B", "a size has to be above 0 bytes"),
        ("--quantize-draft", "", "there is no format ''"),
    ],
)
def test_an_option_that_says_no_target_is_not_taken_for_another(
    create: Run, option: str, value: str, said: str
) -> None:
    result = create("x", options=(option, value))
    assert (result.exit_code > 0, said in result.stderr) == (True, True), result.stderr


def test_an_empty_text_is_none_whatever_was_found_without_one(create: Run, home: Path) -> None:
    create("x", "QUANTIZE 9 bits")
    (home / "empty.txt").touch()
    assert "empty.txt has 0 tokens" in create("y", "QUANTIZE 9 bits from ./empty.txt").stderr


def test_the_nearest_target_can_be_met(create: Run, home: Path) -> None:
    """Of a model most of which stays as it is: its rows divide into no groups."""
    write_model(home / "odd", seed=0, hidden_size=48, num_hidden_layers=1)
    refused = create("x", "QUANTIZE 2 bits", source="./odd").stderr
    nearest = refused.rpartition("nearest target is ")[2].partition(" bits")[0]
    assert float(nearest) > 10
    assert create("x", f"QUANTIZE {nearest} bits", source="./odd").exit_code == 0


def test_a_long_text_may_be_cut_inside_a_letter(
    create: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "text.txt").write_text("é" * 200)
    monkeypatch.setattr(text_file, "_MOST_TEXT_BYTES", 101)
    assert create("x", "QUANTIZE 9 bits from ./text.txt").exit_code == 0


def test_of_a_text_that_is_longer_than_any_prompt_the_beginning_is_looked_at(
    create: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "text.txt").write_text("once upon " * 200)
    for module in (text_file, tokenizer):
        monkeypatch.setattr(module, "MOST_CHARS", 1500)
    result = create("x", "QUANTIZE 9 bits from ./text.txt")
    assert result.exit_code == 0, result.stderr


def test_a_packed_source_is_said_to_be_packed(create: Run) -> None:
    create("packed", "QUANTIZE q8")
    result = create("x", "QUANTIZE 5 bits", source="packed")
    assert "packed is quantized already; it cannot be stored as 5 bits" in result.stderr


@pytest.mark.parametrize("asked", ["9 bits", "9 bits learned", "plain q3g32 learned"])
def test_floats_in_gguf_give_the_same_weights_as_their_checkpoint(
    asked: str, create: Run, home: Path
) -> None:
    create("whole")
    export_gguf("whole", home / "it.gguf", home=home / "home")
    create("x", f"QUANTIZE {asked}")
    made = create("y", f"QUANTIZE {asked}", source="./it.gguf")
    assert made.exit_code == 0, made.stderr
    store = Store(home / "home")
    first, second = (store.resolve(name).files["model.safetensors"].read_bytes() for name in "xy")
    assert first == second
    kept = {name: report(home, name) for name in "xy"}
    assert kept["x"]["matrices"] == kept["y"]["matrices"]


def test_a_text_is_compared_on_where_one_is_given(create: Run, home: Path) -> None:
    create("x", "QUANTIZE 9 bits from ./text.txt")
    assert report(home, "x")["own_text"] is False
    assert "text.txt" not in report(home, "x")["asked"]
    assert f"9 bits from {home}/text.txt" in CliRunner().invoke(cli, ["show", "x", "--modelfile"]).stdout


def test_at_equal_bits_it_beats_one_format_for_all(create: Run, home: Path) -> None:
    """A trained model. What one format for all costs is measured in the same way: a target that it fills."""
    plain = json.loads(create("plain", options=("-q", "q4", "--plain"), source=str(ISLAND / "target")).stdout)
    bits = plain["target"]["bits_per_weight"]
    assert bits < 4.6
    create("x", options=("--target-bits", "4.5"), source=str(ISLAND / "target"))
    assert report(home, "x")["held_out"]["kl"] < 1e-3
    assert compare("x", str(ISLAND / "target")).kl < 0.1 * compare("plain", str(ISLAND / "target")).kl


@pytest.mark.parametrize("held", [{"kl": 0.2, "same_top": 0.95}, {"kl": 0.01, "same_top": 0.8}])
def test_a_poor_model_is_warned_of(held: dict[str, float]) -> None:
    assert len(warnings({"held_out": held})) == 1
    own = json.dumps({"held_out": held}).encode()
    said = notes_of({"quality.json": own, "draft/quality.json": own})
    assert [one.startswith("draft: ") for one in said] == [False, True]


@pytest.mark.parametrize(
    ("chosen", "speed", "said"),
    [
        ("q6", 1.3, "auto chose q6 for it, the fastest of the formats tried: 1.30 times the target alone"),
        ("keep", 1.3, "it stays as it is, the fastest"),
        ("q4", 1.0, "in no format that was tried is it expected to make the target faster"),
    ],
)
def test_of_a_draft_is_told_what_was_chosen_and_not_what_it_costs(
    chosen: str, speed: float, said: str
) -> None:
    fast = {"held_out": {"kl": 0.2, "same_top": 0.8}, "pair": {"chosen": chosen, "speed": speed}}
    (note,) = notes_of({"draft/quality.json": json.dumps(fast).encode()})
    assert said in note
    assert "likeliest" not in note


@pytest.mark.parametrize("change", [{"version": 2}, {"matrices": [1]}, {"held_out": {}}, {"size_bytes": "x"}])
def test_a_strangers_report_is_checked(create: Run, home: Path, change: dict[str, Any]) -> None:
    create("x", "QUANTIZE 9 bits")
    with pytest.raises(StoreError):
        check_report({**report(home, "x"), **change}, "x")


def test_two_models_side_by_side(create: Run, home: Path) -> None:
    create("x", "QUANTIZE 9 bits")
    arguments = ["compare", str(home / "target"), "x", "--json"]
    found = json.loads(CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout)
    assert 0 < found["kl"] < 0.1
    assert found["kl_back"] == pytest.approx(found["kl"], rel=0.5)
    assert (found["tokens"], found["own_text"], found["speed"] > 0) == (48, True, True)
    assert found["weight_bytes"][1] < found["weight_bytes"][0] / 3
    arguments = ["compare", "x", "x", "--text", str(home / "text.txt")]
    shown = CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout
    assert "the text that was given" in shown
    assert "100.0%" in shown


def test_different_vocabularies_are_not_compared(create: Run, home: Path) -> None:
    result = CliRunner().invoke(cli, ["compare", str(home / "target"), str(ISLAND / "target")])
    assert (result.exit_code, "have different vocabularies" in result.stderr) == (1, True)


def test_learned_scales_are_nearer_and_are_what_is_written(create: Run, home: Path) -> None:
    create("x", "QUANTIZE plain q3g32 learned")
    create("y", "QUANTIZE plain q3g32")
    kept = report(home, "x")
    assert kept["held_out"]["kl"] < 0.9 * kept["untuned"]["kl"]
    after, before = (compare(home / "target", name).kl for name in ("x", "y"))
    assert after < 0.95 * before


@pytest.mark.parametrize(
    ("own_text", "before", "after", "kept"),
    [
        (True, (5, 5), (9, 4), True),
        (True, (5, 5), (1, 6), False),
        (False, (5, 5), (9, 4), False),
        (False, (5, 5), (5.5, 4), True),
        (False, (5, 5), (1, 6), False),
    ],
)
def test_what_is_tuned_must_not_cost_more_on_a_text_that_was_given(
    own_text: bool, before: tuple[float, float], after: tuple[float, float], kept: bool
) -> None:
    first, second = ([SimpleNamespace(cost=one) for one in costs] for costs in (before, after))
    assert search.gains(first, second, own_text=own_text) is kept


def test_learned_twice_is_the_same(create: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = json.loads(create("x", "QUANTIZE 5 bits learned").stdout)
    again = json.loads(create("x", "QUANTIZE 5 bits learned", "SYSTEM Hi").stdout)
    assert (again["converted"], again["target"]) == (False, first["target"])
    monkeypatch.setenv("MODELKIT_HOME", str(home / "other"))
    assert json.loads(create("x", "QUANTIZE 5 bits learned").stdout)["digest"] == first["digest"]


def test_a_drafts_format_is_that_of_the_fastest_pair(create: Run, home: Path) -> None:
    (home / "Modelfile").write_text("FROM ./target\nDRAFT ./draft\nQUANTIZE draft auto\n")
    first = CliRunner().invoke(cli, ["create", "x", "-f", str(home / "Modelfile")], catch_exceptions=False)
    assert "asked for" not in first.output
    made = json.loads(create("x", "DRAFT ./draft", "QUANTIZE draft auto").stdout)
    assert made["digest"][7:19] in first.output
    kept = json.loads(Store(home / "home").resolve("x").files["draft/quality.json"].read_bytes())
    offers = {one["format"]: one for one in kept["pair"]["offers"]}
    assert kept["pair"]["speed"] == max(one["speed"] for one in offers.values())
    assert offers["keep"]["cost"] > offers["q4"]["cost"]
    assert made["draft"]["size_bytes"] == kept["size_bytes"]
    shown = CliRunner().invoke(cli, ["show", "x", "--quality"], catch_exceptions=False).stdout
    assert "The pair, against the target alone" in shown
    assert "QUANTIZE draft auto" in CliRunner().invoke(cli, ["show", "x", "--modelfile"]).stdout
    again = json.loads(create("x", "DRAFT ./draft", "QUANTIZE draft auto", "SYSTEM Hi").stdout)
    assert (again["draft"], again["converted"]) == (made["draft"], False)
    chosen, speed = kept["pair"]["chosen"], kept["pair"]["speed"]
    said = (
        f"draft: auto chose {chosen} for it, the fastest of the formats tried: {speed:.2f} times the target"
    )
    assert [sum(note.startswith(said) for note in one["notes"]) for one in (made, again)] == [1, 1]
    assert said in first.output.replace("\n", " ")


def test_one_format_for_all_is_taken_where_it_predicts_better(
    create: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs that are all wrong: they call those matrices tender that are not."""
    honest = search.find_costs

    def turned(*given: Any) -> Costs:
        found = honest(*given)
        most = max(one.cost for options in found.options for one in options)
        worst = [
            tuple(replace(one, cost=most / (one.cost + 1e-6)) for one in row[:-1]) for row in found.options
        ]
        kept = [(*row, options[-1]) for row, options in zip(worst, found.options, strict=True)]
        return Costs(tuple(kept), found.measured)

    monkeypatch.setattr(search, "find_costs", turned)
    monkeypatch.setattr(
        search, "_measured", lambda _reading, _groups, costs, chosen, _budget: (costs, chosen)
    )
    create("x", "QUANTIZE 9 bits measured")
    assert len({row["format"] for row in report(home, "x")["matrices"]}) == 1
    create("y", "QUANTIZE 9 bits fast")
    assert report(home, "x")["calibration"]["kl"] < report(home, "y")["calibration"]["kl"]
