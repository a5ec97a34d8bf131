"""`modelkit list`: one line per package, whatever state it is in."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from tests.support.tiny import write_model

Run = Callable[..., Result]
Create = Callable[..., None]


def rows(result: Result) -> list[list[str]]:
    return [re.split(r"  +", line) for line in result.stdout.splitlines()]


def test_an_empty_store(modelkit: Run) -> None:
    assert rows(modelkit("list")) == [["NAME", "DIGEST", "SIZE", "FORMAT", "DRAFT", "MODIFIED"]]


def test_an_empty_store_in_json(modelkit: Run) -> None:
    assert json.loads(modelkit("list", "--json").stdout) == []


def test_a_line_per_package(modelkit: Run, created: Create, draft_line: str) -> None:
    created("story", draft_line)
    (line,) = rows(modelkit("list"))[1:]
    assert line[0] == "story:latest"
    assert re.fullmatch("[0-9a-f]{12}", line[1])
    assert line[3:] == ["f32", "f32", "just now"]


def test_a_name_of_any_length_is_shown_whole(modelkit: Run, created: Create) -> None:
    created("story")
    long = f"{'n' * 80}/{'m' * 80}"
    for tag in ("a", "b"):
        assert modelkit("cp", "story", f"{long}:{tag}").exit_code == 0
    assert {row[0] for row in rows(modelkit("list", "n"))[1:]} == {f"{long}:a", f"{long}:b"}


def test_json_has_the_facts(modelkit: Run, created: Create, draft_line: str) -> None:
    created("story", draft_line)
    (story,) = json.loads(modelkit("list", "--json").stdout)
    assert story["name"] == "story"
    assert re.fullmatch("sha256:[0-9a-f]{64}", story["digest"])
    assert story["size_bytes"] > story["draft"]["size_bytes"] > 0
    assert story["architecture"] == story["draft"]["architecture"] == "LlamaForCausalLM"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", story["modified"])
    assert story["problem"] is None


def test_a_mostly_unquantized_draft_has_one_label_everywhere(
    modelkit: Run, modelfile: Callable[..., Path], tmp_path: Path
) -> None:
    """Rows of 48 and 80 elements cannot be q4; its config.json says q4 all the same."""
    odd = write_model(tmp_path / "odd", seed=3, hidden_size=80, intermediate_size=48, num_hidden_layers=1)
    path = modelfile(f"DRAFT {odd}")
    made = modelkit("create", "story", "-f", str(path), "--quantize-draft", "q4")
    assert "draft f32" in made.stdout, made.output
    (story,) = json.loads(modelkit("list", "--json").stdout)
    shown = json.loads(modelkit("show", "story", "--json").stdout)
    assert story["draft"]["format"] == shown["draft"]["format"] == "f32"


def test_the_newest_comes_first(modelkit: Run, created: Create) -> None:
    created("a")
    created("b")
    assert [line[0] for line in rows(modelkit("list"))[1:]] == ["b:latest", "a:latest"]


def test_a_prefix_of_none_is_told_so(modelkit: Run, created: Create) -> None:
    """A table without a line looked like a store that is empty."""
    created("story")
    listed = modelkit("list", "tale")
    assert listed.stdout == "NAME  DIGEST  SIZE  FORMAT  DRAFT  MODIFIED\n"
    assert "no package has a name that begins with 'tale'" in listed.stderr


def test_a_prefix_chooses(modelkit: Run, created: Create) -> None:
    created("story:one")
    created("other")
    assert [row["name"] for row in json.loads(modelkit("list", "STO", "--json").stdout)] == ["story:one"]


def test_a_broken_package_hides_no_other(modelkit: Run, created: Create, home: Path) -> None:
    created("whole")
    created("hurt", "SYSTEM another manifest")
    damage(modelkit, home, "hurt")
    result = modelkit("list")
    assert {line[0]: line[3] for line in rows(result)[1:]} == {"whole:latest": "f32", "hurt:latest": "broken"}
    assert "note: hurt is broken" in result.stderr


def test_a_broken_package_in_json_says_why(modelkit: Run, created: Create, home: Path) -> None:
    created("hurt")
    damage(modelkit, home, "hurt")
    (hurt,) = json.loads(modelkit("list", "--json").stdout)
    assert hurt["problem"]
    assert hurt["size_bytes"] is None


def damage(modelkit: Run, home: Path, name: str) -> None:
    """Take the package's modelkit.json away."""
    layers = json.loads(modelkit("show", name, "--json").stdout)["layers"]
    digest = next(layer["digest"] for layer in layers if layer["path"] == "modelkit.json")
    (home / "store" / "blobs" / "sha256" / digest.removeprefix("sha256:")).unlink()
