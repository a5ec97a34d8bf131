"""Formats by name, QUANTIZE lines and options, labels, and the Modelfile that a package gives back."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from modelkit.errors import ModelkitError
from modelkit.fetch.upstream import Upstream
from modelkit.modelfile import parse_quantizing
from modelkit.pack.metadata import AdapterFacts, Metadata, Provenance
from modelkit.pack.origins import lines_in
from modelkit.pack.planning.plan_types import Plan, Planned

Run = Callable[..., Result]
Write = Callable[..., Path]


def made(modelkit: Run, file: Path, *options: str, name: str = "x") -> dict:
    result = modelkit("create", name, "-f", str(file), *options, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def labels(modelkit: Run, file: Path, *options: str) -> dict[str, str]:
    shown = made(modelkit, file, *options, "--dry-run")
    return {row["name"]: row["format"] for row in shown["target"]["tensors"] if len(row["shape"]) == 2}


@pytest.mark.parametrize("name", ["q4g32", "q3g128", "q1", "q8g32"])
def test_a_format_by_its_group(modelkit: Run, modelfile: Write, name: str) -> None:
    """The tiny model's rows are 64 and 128 wide: what does not divide stays."""
    found = set(labels(modelkit, modelfile(), "-q", name, "--plain").values())
    assert name in found
    assert found <= {name, "f32"}
    assert (("f32" in found) is True) == name.endswith("g128")


def test_promotion_keeps_the_groups(modelkit: Run, modelfile: Write) -> None:
    assert set(labels(modelkit, modelfile(), "-q", "q4g32").values()) == {"q4g32", "q8g32"}


def test_plain_is_every_matrix_alike(modelkit: Run, modelfile: Write) -> None:
    assert set(labels(modelkit, modelfile(), "-q", "q4").values()) == {"q4", "q8"}
    assert set(labels(modelkit, modelfile(), "-q", "q4", "--plain").values()) == {"q4"}


def test_plain_needs_a_format(modelkit: Run, modelfile: Write) -> None:
    result = modelkit("create", "x", "-f", str(modelfile()), "--plain")
    assert (result.exit_code, "no format is asked for" in result.stderr) == (1, True)


def test_lines_are_the_options(modelkit: Run, modelfile: Write, draft_line: str) -> None:
    by_lines = made(modelkit, modelfile(draft_line, "QUANTIZE plain q4", "QUANTIZE draft plain q8g32"))
    by_options = made(
        modelkit, modelfile(draft_line), "-q", "q4", "--quantize-draft", "q8g32", "--plain", name="y"
    )
    assert by_lines["digest"] == by_options["digest"]
    assert by_lines["target"]["format"] == "q4"
    tabs = made(modelkit, modelfile(draft_line, "QUANTIZE plain\tq4", "QUANTIZE draft\tplain q8g32"))
    assert tabs["digest"] == by_lines["digest"]


def test_options_win_and_say_so(modelkit: Run, modelfile: Write) -> None:
    file = modelfile("QUANTIZE q4")
    shown = made(modelkit, file, "-q", "q8")
    said = f"{file}:2:1: QUANTIZE q4 gives way to an option of create: q8"
    assert (shown["target"]["format"], shown["notes"][0]) == ("q8", said)
    assert made(modelkit, file, "-q", "q4")["notes"] == made(modelkit, file)["notes"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("QUANTIZE q4_k_m",), ":2:1: there is no format 'q4_k_m'\n  Here it is q4."),
        (("QUANTIZE q4 q8",), ":2:1: 'q4 q8' says neither"),
        (("QUANTIZE q4", "QUANTIZE q8"), ":3:1: a second QUANTIZE for the target"),
        (("QUANTIZE draft q4",), ":2:1: there is no draft to store as q4"),
    ],
)
def test_a_line_that_cannot_act_is_refused_at_its_place(
    modelkit: Run, modelfile: Write, lines: tuple[str, ...], said: str
) -> None:
    result = modelkit("create", "x", "-f", str(modelfile(*lines)))
    assert (result.exit_code, said in result.stderr) == (1, True), result.stderr


def test_a_packed_source_is_not_packed_again(modelkit: Run, modelfile: Write, tmp_path: Path) -> None:
    made(modelkit, modelfile("QUANTIZE q4"), name="packed")
    (tmp_path / "again").write_text("FROM packed\nQUANTIZE q8\n")
    result = modelkit("create", "x", "-f", str(tmp_path / "again"))
    assert "again:2:1: packed" in result.stderr
    assert "is quantized already" in result.stderr


@pytest.mark.parametrize("lines", [(), ("QUANTIZE q4",), ("QUANTIZE plain q3", "SYSTEM Hi", "LICENSE MIT")])
def test_the_modelfile_of_a_package_names_its_origin(
    modelkit: Run, modelfile: Write, tmp_path: Path, lines: tuple[str, ...], draft_line: str
) -> None:
    file = modelfile(draft_line, *lines, "QUANTIZE draft q8")
    first = made(modelkit, file, name="first")
    text = modelkit("show", "first", "--modelfile").stdout
    said = file.read_text().splitlines()
    assert {*said} <= {*text.splitlines()}
    modelkit("rm", "first")
    (tmp_path / "again").write_text(text)
    assert made(modelkit, tmp_path / "again", name="second")["digest"] == first["digest"]


def test_without_its_sources_a_package_is_made_of_itself(
    modelkit: Run, modelfile: Write, tmp_path: Path, checkpoints: Path
) -> None:
    source = tmp_path / "gone"
    shutil.copytree(checkpoints / "target", source)
    file = tmp_path / "Modelfile"
    file.write_text("FROM ./gone\nQUANTIZE q4\n")
    first = made(modelkit, file, name="first")
    shutil.rmtree(source)
    text = modelkit("show", "first", "--modelfile").stdout
    assert (
        f"# Made with FROM {source}\n# Made with QUANTIZE q4\n# Made from 'model.safetensors' sha256:" in text
    )
    assert "\nFROM first:latest\n" in text
    (tmp_path / "again").write_text(text)
    assert made(modelkit, tmp_path / "again", name="second")["digest"] == first["digest"]
    assert modelkit("show", "second", "--modelfile").stdout.endswith("FROM second:latest\n")


def test_what_is_said_of_sources_that_are_gone_is_a_comment_whatever_they_are_called(
    modelkit: Run, tmp_path: Path, checkpoints: Path
) -> None:
    source = tmp_path / "a\rSYSTEM b\nSYSTEM c"
    shutil.copytree(checkpoints / "target", source)
    file = tmp_path / "Modelfile"
    file.write_bytes(b'FROM "' + bytes(source) + b'"\n')
    first = made(modelkit, file, name="first")
    shutil.rmtree(source)
    text = modelkit("show", "first", "--modelfile").stdout
    assert [line[:6] for line in re.split("[\r\n]+", text.strip())] == ["# Made", "# Made", "FROM f"]
    (tmp_path / "again").write_text(text)
    assert made(modelkit, tmp_path / "again", name="second")["digest"] == first["digest"]


def test_a_package_made_from_a_package_names_it(modelkit: Run, modelfile: Write, tmp_path: Path) -> None:
    made(modelkit, modelfile("SYSTEM Hi"), name="base")
    (tmp_path / "more").write_text('FROM base\nSYSTEM ""\nPARAMETER top_k 7\n')
    second = made(modelkit, tmp_path / "more", name="second")
    text = modelkit("show", "second", "--modelfile").stdout
    assert text == "FROM base\nSYSTEM \nPARAMETER top_k 7\n"
    made(modelkit, modelfile("SYSTEM Other"), name="base")  # no longer what it was made from
    text = modelkit("show", "second", "--modelfile").stdout
    assert "FROM second:latest" in text
    (tmp_path / "more").write_text(text)
    assert made(modelkit, tmp_path / "more", name="third")["digest"] == second["digest"]


def _plan(*parts: tuple[str, int]) -> Plan:
    tensors = tuple(Planned(str(at), "F32", (n,), None, label, "", ()) for at, (label, n) in enumerate(parts))
    return Plan("target", "float", None, tensors, (), {}, ())


@pytest.mark.parametrize(
    ("parts", "label"),
    [
        ([("q4", 51), ("q8", 49)], "q4"),
        ([("q4", 40), ("q8", 35), ("bf16", 25)], "q4+q8"),
        ([("q4", 50), ("q8", 50)], "q4+q8"),
        ([("q4", 25), ("q8", 25), ("q6", 25), ("bf16", 25)], "mixed"),
        ([], ""),
    ],
)
def test_a_label_is_what_most_is(parts: list[tuple[str, int]], label: str) -> None:
    assert _plan(*parts).label == label


@pytest.mark.parametrize("text", ["q4", "plain q4", "q3g128", "plain mxfp4", "bf16"])
def test_words_come_back(text: str) -> None:
    assert str(parse_quantizing(text)) == text


@pytest.mark.parametrize("text", ["", "plain", "q4g16", "q7", "plain plain q4", "Q4 plain"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ModelkitError):
        parse_quantizing(text)


def test_a_package_from_elsewhere_says_where_it_can_be_fetched_again() -> None:
    """Nothing is known of it here but what it says itself."""
    upstream = Upstream("hub", "https://huggingface.co", "a/b", commit="c" * 40)
    target, draft = Provenance("4.5 bits", {}, upstream), Provenance("plain q4", {}, upstream)
    said = lines_in(Metadata(provenance=target, draft_provenance=draft), draft=True, adapters=False)
    assert [f"{one.keyword} {one.value}" for one in said] == [
        f"FROM hf.co/a/b@{'c' * 40}",
        f"DRAFT hf.co/a/b@{'c' * 40}",
        "QUANTIZE 4.5 bits",
        "QUANTIZE draft plain q4",
    ]
    assert lines_in(Metadata(provenance=target), draft=True, adapters=False) == ()
    assert lines_in(Metadata(provenance=Provenance("q4", {})), draft=False, adapters=False) == ()
    assert lines_in(Metadata(provenance=target), draft=False, adapters=True) == ()
    fused = Metadata(provenance=target, adapters=(AdapterFacts("law", "peft", None, {}, fused=True),))
    assert lines_in(fused, draft=False, adapters=False) == ()
