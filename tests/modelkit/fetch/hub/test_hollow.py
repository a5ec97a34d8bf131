"""`create --dry-run` of a model of the hub: the plan of the whole model, of a few of its bytes."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from modelkit.cli.main import cli
from modelkit.fetch.hub import obtain, transfer
from tests.support.gguf import Gguf, Tensor
from tests.support.gguf_llama import metadata, tensors
from tests.support.hub import Hub, Repository
from tests.support.tiny import TEMPLATE, write_model


def run(tmp_path: Path, *words: str) -> Any:
    command = ["create", "x", "-f", str(tmp_path / "Modelfile"), *words, "--json"]
    return CliRunner().invoke(cli, command, env={"MODELKIT_HOME": str(tmp_path / "home")})


def created(tmp_path: Path, *words: str) -> dict[str, Any]:
    told = run(tmp_path, *words)
    assert told.exit_code == 0, told.output
    return json.loads(told.stdout)


def asked_bytes(hub: Hub, name: str) -> int:
    """How much was asked for of a file of weights."""
    total = 0
    for request in hub.asked("/cdn/"):
        if request.path.endswith(name):
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
            assert found is not None, "the whole file was asked for"
            total += int(found[2]) - int(found[1]) + 1
    return total


@pytest.fixture
def wide(hub: Hub, tmp_path: Path) -> Hub:
    """With weights that are much larger than a header."""
    folder = write_model(tmp_path / "wide", template=TEMPLATE, hidden_size=128, intermediate_size=512)
    hub.repositories["Amy/Wide"] = Repository.of(folder)
    (tmp_path / "Modelfile").write_text("FROM hf.co/Amy/Wide\n")
    return hub


def test_the_plan_of_safetensors_takes_their_header_alone(wide: Hub, cache: Path, tmp_path: Path) -> None:
    size = len(wide.repositories["Amy/Wide"].files["model.safetensors"])
    plan = created(tmp_path, "-q", "q4", "--dry-run")
    assert 0 < asked_bytes(wide, "model.safetensors") <= 1 << 16 < size
    assert not any(path.stat().st_size == size for path in cache.rglob("*") if path.is_file())
    made = created(tmp_path, "-q", "q4")
    assert made["target"]["size_bytes"] == plan["target"]["size_bytes"] > 0
    assert created(tmp_path, "-q", "q4", "--dry-run")["target"] == plan["target"]


def test_the_plan_of_gguf_takes_its_header_and_what_the_config_is_made_of(hub: Hub, tmp_path: Path) -> None:
    factors = Tensor("rope_freqs.weight", "f32", (32,), np.ones(32, np.float32).tobytes())
    data = bytes(Gguf(metadata(), [*tensors(["f16"]), factors]))
    hub.repositories["Amy/G"] = Repository({"m-F16.gguf": data})
    (tmp_path / "Modelfile").write_text("FROM hf.co/Amy/G\n")
    plan = created(tmp_path, "--dry-run")
    assert asked_bytes(hub, ".gguf") < len(data)
    assert created(tmp_path)["target"]["size_bytes"] == plan["target"]["size_bytes"]


def test_a_server_without_ranges_serves_headers_too(wide: Hub, tmp_path: Path) -> None:
    wide.faults["model.safetensors"] = ["ignore range"]
    assert created(tmp_path, "--dry-run")["target"]["size_bytes"] > 0


def test_no_whole_file_is_read_for_its_end(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without ranges sends all that is before it, and that may be any amount."""
    factors = Tensor("rope_freqs.weight", "f32", (32,), np.ones(32, np.float32).tobytes())
    data = bytes(Gguf(metadata(), [*tensors(["f16"]), factors]))
    monkeypatch.setattr(transfer, "_FRONT_BYTES", len(data) - len(factors.data) - 1)
    hub.repositories["Amy/G"] = Repository({"m-F16.gguf": data})
    hub.faults["m-F16.gguf"] = ["ignore range"] * 9
    (tmp_path / "Modelfile").write_text("FROM hf.co/Amy/G\n")
    told = run(tmp_path, "--dry-run")
    assert told.exit_code == 1
    assert "sends whole files only" in told.output


def test_a_header_that_was_cut_off_is_asked_for_again(wide: Hub, tmp_path: Path) -> None:
    wide.faults["model.safetensors"] = ["cut", "cut"]
    assert created(tmp_path, "--dry-run")["target"]["size_bytes"] > 0


def test_a_wrong_part_is_refused(wide: Hub, tmp_path: Path) -> None:
    wide.faults["model.safetensors"] = ["wrong range"]
    told = run(tmp_path, "--dry-run")
    assert told.exit_code != 0
    assert "was asked for bytes 0 to 65,536" in told.output


def test_a_head_that_may_be_a_copy_is_said_to_be_compared_later(hub: Hub, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tied", template=TEMPLATE, tie_word_embeddings=False)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    hub.repositories["Amy/Tied"] = Repository.of(folder)
    (tmp_path / "Modelfile").write_text("FROM hf.co/Amy/Tied\n")
    notes = created(tmp_path, "--dry-run")["notes"]
    assert any("lm_head.weight may be a copy" in note for note in notes)
    assert any("lm_head.weight differs" in note for note in created(tmp_path)["notes"])


def test_what_headers_tell_to_be_refused_is_refused_before_weights_come(
    wide: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obtain, "MOMENT_BYTES", 0)
    files = wide.repositories["Amy/Wide"].files
    right, files["config.json"] = files["config.json"], b'{"architectures": ["FrobnicateForCausalLM"]}'
    told = run(tmp_path)
    assert "the target hf.co/Amy/Wide cannot be run" in told.output
    assert "Modelfile:1:1" not in told.output
    del files["config.json"]
    assert run(tmp_path).output.count("Modelfile:1:1: hf.co/Amy/Wide has no config.json") == 1
    assert 0 < asked_bytes(wide, "model.safetensors") <= 2 << 16
    files["config.json"] = right
    created(tmp_path)


@pytest.mark.parametrize("hindered", ["by the server", "by the disk"])
def test_weights_come_though_their_headers_cannot_be_had_before(
    wide: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hindered: str
) -> None:
    monkeypatch.setattr(obtain, "MOMENT_BYTES", 0)
    if hindered == "by the server":
        wide.faults["model.safetensors"] = ["wrong range"]
    else:
        monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    created(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "m-Q8_0.gguf"])
def test_weights_that_git_itself_holds_are_fetched_for_their_digest(
    wide: Hub, tmp_path: Path, name: str
) -> None:
    held = wide.repositories["Amy/Wide"]
    if name.endswith(".gguf"):
        held = wide.repositories["Amy/Wide"] = Repository({name: bytes(Gguf(metadata(), tensors(["q8_0"])))})
    held.siblings[name] = {"lfs": None}
    plan = created(tmp_path, "--dry-run")
    assert created(tmp_path)["target"]["size_bytes"] == plan["target"]["size_bytes"]
