"""`modelkit create`: what it says, what it refuses, and that a refusal changes nothing."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from modelkit import create
from modelkit.errors import ModelfileError
from modelkit.store import memo
from runtime.quant import MAIN
from tests.support.checkpoints import random_tensor
from tests.support.peft_folders import write_peft

Run = Callable[..., Result]
Write = Callable[..., Path]


def test_the_last_line_names_the_package(modelkit: Run, modelfile: Write, draft_line: str) -> None:
    file = modelfile(draft_line)
    result = modelkit("create", "story", "-f", str(file), "-q", "q4", "--quantize-draft", "mxfp8")
    digest = json.loads(modelkit("show", "story", "--json").stdout)["digest"]
    assert result.exit_code == 0
    assert result.stdout.startswith(f"created story {digest.removeprefix('sha256:')[:12]} (")
    assert "target q4 at 7 bits per weight, draft mxfp8 at 8.33 bits per weight" in result.stdout


def test_fused_adapters_are_named_before_and_behind(modelkit: Run, modelfile: Write, tmp_path: Path) -> None:
    where = "base_model.model.model.layers.0.mlp.gate_proj"
    shapes = {"lora_A.weight": (3, 64), "lora_B.weight": (128, 3)}
    tensors = {f"{where}.{leaf}": random_tensor(leaf, shape) for leaf, shape in shapes.items()}
    file = modelfile(f"ADAPTER {write_peft(tmp_path / 'law', tensors)}")
    plain = ("create", "story", "-f", str(file), "--fuse-adapters")
    assert "with law fused into them" in modelkit(*plain, "--dry-run").stdout
    assert json.loads(modelkit(*plain, "--dry-run", "--json").stdout)["fused"] == ["law"]
    assert ", law fused)" in modelkit(*plain).stdout


def test_the_name_is_the_folders(modelkit: Run, modelfile: Write) -> None:
    result = modelkit("create", "-f", str(modelfile(folder="My Story!")))
    assert result.stdout.startswith("created my-story ")


def test_the_modelfile_of_the_current_folder_is_taken(
    modelkit: Run, modelfile: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(modelfile(folder="here").parent)
    assert modelkit("create").stdout.startswith("created here ")


def test_a_modelfile_comes_from_standard_input(
    modelkit: Run, modelfile: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its paths count from the current folder."""
    file = modelfile("SYSTEM Kürze.")
    text = file.read_text(encoding="utf-8")
    file.unlink()
    monkeypatch.chdir(file.parent)
    unnamed = modelkit("create", "-f", "-", stdin=text)
    assert (unnamed.exit_code, "give NAME too" in unnamed.stderr) == (2, True)
    assert modelkit("create", "story", "-f", "-", stdin=text).stdout.startswith("created story ")
    assert json.loads(modelkit("show", "story", "--json").stdout)["system"] == "Kürze."
    wrong = modelkit("create", "story", "-f", "-", stdin=f"{text}\nTOP x\n")
    assert (wrong.exit_code, "Error: standard input:" in wrong.stderr) == (1, True)
    too_long = modelkit("create", "story", "-f", "-", stdin="#" * (1 << 20) + "\n")
    assert (too_long.exit_code, "standard input: larger than" in too_long.stderr) == (1, True)


def test_without_a_modelfile_nothing_is_made_up(
    modelkit: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = modelkit("create", "story")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Modelfile: no such file")
    assert not home.exists()


def test_all_complaints_about_a_modelfile_come_at_once(modelkit: Run, modelfile: Write) -> None:
    lines = ["PARAMETER tempo 1", "ADAPTER ./nothing", "PARAMETER top_p x", "SISTEM Be brief.", "MESSAGE x y"]
    file = modelfile('TEMPLATE """{{ .Prompt }"""', *lines)
    result = modelkit("create", "x", "-f", str(file))
    assert result.exit_code == 1
    told = "".join(result.stderr.split("\n  "))
    with pytest.raises(ModelfileError) as caught:
        create(file, home=file.parent)
    assert caught.value.message.count("Modelfile:") == 6
    for place, said in (
        ("2:1", "the Go template, line 1, column 12"),
        ("3:1", "unknown parameter 'tempo'"),
        ("4:1", "'./nothing'"),
        ("5:1", "top_p"),
        ("6:1", "'SISTEM' is not a directive"),
        ("7:9", "'x' is not a role"),
    ):
        assert f"Modelfile:{place}: " in told
        assert said in told


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ .Prompt }", "the Go template, line 1, column 12: '}' is not understood here"),
        ('{{ template "x" . }}', "the Go template, line 1, column 1: 'template' is not supported"),
        ("{% if %}{{ messages }}", "chat template, line 1: "),
        ('{{ if eq 1 "1" }}x{{ end }}{{ .Prompt }}', "chat template, line 1: "),
    ],
    ids=["lexer", "directive", "jinja", "run"],
)
def test_what_is_wrong_with_a_template_is_said_with_its_line(
    template: str, said: str, modelkit: Run, modelfile: Write
) -> None:
    file = modelfile("SYSTEM Be brief.", f'TEMPLATE """{template}"""')
    result = modelkit("create", "x", "-f", str(file))
    assert result.exit_code == 1
    assert f"Modelfile:3:1: {said}" in "".join(result.stderr.split("\n  "))


def test_json_is_one_object(modelkit: Run, modelfile: Write, draft_line: str) -> None:
    result = modelkit(
        "create", "a/story:v1", "-f", str(modelfile(draft_line)), "--quantize", "int8", "--json"
    )
    made = json.loads(result.stdout)
    assert made["name"] == "a/story:v1"
    assert made["digest"].startswith("sha256:")
    assert (made["target"]["format"], made["draft"]["format"]) == ("q8", "f32")
    assert made["converted"] is True


def test_the_other_spelling_of_quantize_draft(modelkit: Run, modelfile: Write, draft_line: str) -> None:
    result = modelkit("create", "x", "-f", str(modelfile(draft_line)), "--draft-quantize", "q4", "--json")
    assert json.loads(result.stdout)["draft"]["format"] == "q4"


def test_an_unknown_format_is_wrong_usage(modelkit: Run, modelfile: Write) -> None:
    result = modelkit("create", "x", "-f", str(modelfile()), "-q", "q9")
    assert result.exit_code == 2
    assert all(row.name in result.stderr for row in MAIN)
    assert "q4g32" in result.stderr


def test_help_lists_every_format(modelkit: Run) -> None:
    shown = modelkit("create", "--help").stdout
    assert all(f"{row.name} " in shown and row.help in shown for row in MAIN)
    assert "groups of 32 or 128" in shown


def test_a_draft_format_without_a_draft_is_refused(modelkit: Run, modelfile: Write, home: Path) -> None:
    result = modelkit("create", "x", "-f", str(modelfile()), "--quantize-draft", "q4")
    assert result.exit_code == 1
    assert "there is no draft" in result.stderr
    assert not home.exists()


def test_a_bad_name_is_refused_first(modelkit: Run, home: Path) -> None:
    result = modelkit("create", "../up", "-f", "nowhere")
    assert (result.exit_code, "is not a model name" in result.stderr) == (1, True)


def test_a_mistake_in_the_modelfile_has_its_place(modelkit: Run, modelfile: Write) -> None:
    file = modelfile("PARAMETER temprature 1")
    result = modelkit("create", "x", "-f", str(file))
    assert (
        result.stderr == f"Error: {file}:2:1: unknown parameter 'temprature'\n  Did you mean temperature?\n"
    )


def test_notes_go_to_standard_error(modelkit: Run, modelfile: Write) -> None:
    result = modelkit("create", "x", "-f", str(modelfile("RENDERER qwen3")))
    assert "note: RENDERER qwen3 is recorded" in result.stderr
    assert "note" not in result.stdout


def test_a_dry_run_shows_every_tensor_and_writes_nothing(
    modelkit: Run, modelfile: Write, draft_line: str, home: Path
) -> None:
    result = modelkit("create", "x", "-f", str(modelfile(draft_line)), "-q", "q4", "--dry-run")
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if "layers.1.self_attn.v_proj" in line)
    assert row.split()[1:8] == ["32", "x", "64", "f32", "q8", "2.3", "kB"]
    assert "sensitive matrix" in row
    assert "target: 20 tensors, 94.5K parameters" in result.stdout
    assert "draft: 11 tensors" in result.stdout
    assert "bits per weight" in result.stdout
    assert not home.exists()


def test_what_writes_to_the_store_alone_needs_no_temporary_folder(
    modelkit: Run, modelfile: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A container may have a read-only root, and one place for models."""
    file = modelfile()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert modelkit("create", "story", "-f", file, "-q", "q4").exit_code == 0


def test_a_dry_run_in_json_has_the_totals(modelkit: Run, modelfile: Write) -> None:
    result = modelkit("create", "x", "-f", str(modelfile()), "--dry-run", "--json")
    plan = json.loads(result.stdout)
    assert plan["dry_run"] is True
    assert plan["size_bytes"] == sum(row["size_bytes"] for row in plan["target"]["tensors"])
    assert plan["target"]["bits_per_weight"] == 32
    assert plan["draft"] is None


def test_creating_again_says_that_nothing_was_converted(
    modelkit: Callable[..., Result], modelfile: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memo, "_SETTLED_NS", -(10**18))  # trust files that were written just now
    first = modelkit("create", "story", "-f", str(modelfile()), "-q", "q8")
    again = modelkit("create", "story", "-f", str(modelfile("SYSTEM Be brief.")), "-q", "q8")
    assert "no weight had to be converted" not in first.stdout
    assert again.stdout.endswith("; no weight had to be converted\n")
