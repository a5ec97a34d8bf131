"""Formats for a model that makes vectors, found by what errors turn these by: texts are lines of a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import modelkit
from modelkit.cli.main import cli
from modelkit.pack.quality.report import check_report, warnings
from modelkit.store.store import Store
from tests.support.dense_folders import dense_state, write_module
from tests.support.embedding_folders import FLAGS, write_modules, write_reference
from tests.support.encoder_folders import WORDS, write_encoder

Run = Callable[..., Result]

TANH = "torch.nn.modules.activation.Tanh"
TEXT = ("--calibration", "lines.txt")


@pytest.fixture
def home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Also an encoder and a file of 40 lines, from where commands are given."""
    write_encoder(home / "encoder", "bert", pool="mean")
    draw = np.random.default_rng(3)
    words = [word for word in WORDS if not word.startswith("#")]
    lines = [" ".join(draw.choice(words, size=draw.integers(2, 12))) for _ in range(40)]
    (home / "lines.txt").write_text("\n\n".join(lines), encoding="utf-8")
    monkeypatch.chdir(home)
    return home


def report(home: Path, name: str) -> dict[str, Any]:
    return json.loads(Store(home / "home").resolve(name).files["quality.json"].read_bytes())


def test_a_target_is_met_and_said(create: Run, home: Path) -> None:
    made = json.loads(create("x", options=("--target-bits", "7", *TEXT), source="./encoder").stdout)
    assert 6 < made["target"]["bits_per_weight"] <= 7
    kept = report(home, "x")
    assert check_report(kept, "x") is kept
    assert not kept["own_text"]
    assert (kept["calibration"]["texts"], kept["held_out"]["texts"]) == (20, 20)
    assert 0.9 < kept["held_out"]["cosine_least"] <= kept["held_out"]["cosine"] <= 1
    assert "measured" not in kept  # the backward pass reached every matrix
    shown = CliRunner().invoke(cli, ["show", "x", "--quality"], catch_exceptions=False)
    assert all(
        word in shown.stdout for word in ("7 bits", "COSINE", "SAME NEAREST", "the text that was given")
    )
    assert b"cosine 0." in Store(home / "home").resolve("x").files["quality.svg"].read_bytes()


def test_what_is_said_is_what_users_get(create: Run, home: Path) -> None:
    assert create("x", options=("--target-bits", "6.2", *TEXT), source="./encoder").exit_code == 0
    texts = (home / "lines.txt").read_text(encoding="utf-8").split("\n\n")
    plain, packed = (
        modelkit.load(name, home=home / "home").embed(texts).vectors.astype(np.float64)
        for name in (home / "encoder", "x")
    )
    cosines = (plain * packed).sum(axis=1)
    said = report(home, "x")
    assert np.mean(cosines[::2]) == pytest.approx(said["calibration"]["cosine"], abs=2e-4)
    assert np.min(cosines[1::2]) == pytest.approx(said["held_out"]["cosine_least"], abs=1e-3)


def test_a_search_is_better_than_one_format_of_the_same_size(create: Run, home: Path) -> None:
    alike = json.loads(create("alike", options=("-q", "q4", "--plain"), source="./encoder").stdout)
    options = ("--target-size", str(alike["target"]["size_bytes"]), *TEXT)
    made = json.loads(create("x", options=options, source="./encoder").stdout)
    assert made["target"]["size_bytes"] <= alike["target"]["size_bytes"]
    texts = (home / "lines.txt").read_text(encoding="utf-8").split("\n\n")[1::2]
    better, plain = (
        modelkit.compare_embeddings(home / "encoder", name, texts, home=home / "home").cosine
        for name in ("x", "alike")
    )
    assert better is not None
    assert plain is not None
    assert better > plain


@pytest.mark.parametrize("quality", ["measured", "learned"])
def test_with_more_care_it_is_no_worse(create: Run, home: Path, quality: str) -> None:
    options = ("--target-bits", "6.2", *TEXT)
    create("fast", options=options, source="./encoder")
    assert create("x", options=(*options, "--quality", quality), source="./encoder").exit_code == 0
    fast, kept = report(home, "fast"), report(home, "x")
    assert kept["asked"] == f"6.2 bits {quality}"
    assert kept["calibration"]["cosine"] >= fast["calibration"]["cosine"] - 1e-3
    if quality == "learned":
        assert kept["held_out"]["cosine"] >= kept["untuned"]["cosine"]


def test_scales_are_tuned_for_a_given_format(create: Run, home: Path) -> None:
    options = ("-q", "q3", "--plain", "--quality", "learned", *TEXT)
    assert create("x", options=options, source="./encoder").exit_code == 0
    kept = report(home, "x")
    assert kept["held_out"]["cosine"] > kept["untuned"]["cosine"]


def test_a_recipe_says_it_and_gives_the_same_twice(create: Run, home: Path) -> None:
    first = json.loads(create("x", "QUANTIZE 6 bits from lines.txt", source="./encoder").stdout)
    again = json.loads(create("y", "QUANTIZE 6 bits from lines.txt", source="./encoder").stdout)
    assert first["digest"] == again["digest"]
    (home / "lines.txt").write_text("\n".join(f"rain {'cat ' * count}" for count in range(1, 12)))
    other = json.loads(create("z", "QUANTIZE 6 bits from lines.txt", source="./encoder").stdout)
    assert other["digest"] != first["digest"]


def test_what_stands_behind_the_pooling_counts(create: Run, home: Path) -> None:
    """Another layer behind it turns vectors otherwise, so what was found before is not taken."""
    options = ("--target-bits", "6.2", *TEXT)
    create("plain", options=options, source="./encoder")
    said = [report(home, "plain")["held_out"]]
    module = {"in_features": 64, "out_features": 24, "bias": True, "activation_function": TANH}
    write_modules(home / "encoder", {FLAGS["mean"]: True}, ("Transformer", "Pooling", "Dense", "Normalize"))
    for place in (1, 2):
        write_module(home / "encoder" / "2_Dense", module, dense_state(module, place))
        made = create(f"dense-{place}", options=options, source="./encoder")
        assert made.exit_code == 0, made.stderr
        said.append(report(home, f"dense-{place}")["held_out"])
    assert said[0] != said[1] != said[2] != said[0]


def test_texts_are_asked_for(create: Run, home: Path) -> None:
    refused = create("x", options=("--target-bits", "5"), source="./encoder")
    assert refused.exit_code == 1
    assert "makes embeddings, and writes no text that formats could be tried on" in refused.stderr
    assert "--calibration FILE" in refused.stderr
    (home / "lines.txt").write_text("rain\ncat\nrain\n")
    few = create("x", options=("--target-bits", "6.2", *TEXT), source="./encoder")
    assert few.exit_code == 1
    assert "lines.txt has 2 different lines; at least 8 are needed" in few.stderr
    (home / "lines.txt").write_bytes(b"\xff\xfe" * 40)
    assert (
        "lines.txt cannot be read as a text: byte 0 (0xff) is not UTF-8"
        in create("x", options=("--target-bits", "6.2", *TEXT), source="./encoder").stderr
    )


def test_vectors_that_turned_are_warned_of() -> None:
    sound = {"cosine": 0.99, "cosine_least": 0.9, "same_nearest": 1.0, "texts": 20}
    assert warnings({"held_out": sound}) == []
    (said,) = warnings({"held_out": {**sound, "cosine": 0.9}})
    assert "the vectors' cosine with the source's is 0.9" in said
    (said,) = warnings({"held_out": {**sound, "same_nearest": 0.5}})
    assert "the nearest text is the source's for 50% of texts only" in said


@pytest.mark.parametrize("name", ["modernbert", "nomic_bert", "embedding_gemma", "distilbert", "mpnet"])
def test_other_encoders(create: Run, home: Path, name: str) -> None:
    write_encoder(home / "other", name, pool="mean")
    made = create("x", options=("--target-bits", "8", *TEXT), source="./other")
    assert made.exit_code == 0, made.stderr
    assert report(home, "x")["held_out"]["cosine"] > 0.95


@pytest.mark.parametrize("quality", ["fast", "learned"])
def test_a_decoder_without_a_head(create: Run, home: Path, quality: str) -> None:
    write_reference(home / "other", "qwen3", pool="last")
    made = create("x", options=("--target-bits", "7", "--quality", quality, *TEXT), source="./other")
    assert made.exit_code == 0, made.stderr
    kept = report(home, "x")
    assert kept["held_out"]["cosine"] > 0.9
    assert "measured" not in kept
