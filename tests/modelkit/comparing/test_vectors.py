"""Two models compared by the vectors that they make of texts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import modelkit
from modelkit.cli.main import cli
from modelkit.comparing import vectors as room
from modelkit.errors import LoadError, RequestError
from tests.support.adapter_references import AdapterReference
from tests.support.encoder_folders import write_encoder
from tests.support.tiny import write_model

TEXTS = [
    "Once upon a time",
    "rain",
    "there was a small cat that liked tea",
    "cats",
    "a small time",
    "tea cat",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("home")
    write_encoder(root / "model", "bert", pool="mean")
    write_model(root / "writer", hidden_size=32)
    make(root, "q4", quantize="q4")
    (root / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return root


def make(root: Path, name: str, *lines: str, **options: Any) -> None:
    (root / "Modelfile").write_text("\n".join(["FROM ./model", *lines]) + "\n", encoding="utf-8")
    modelkit.create(root / "Modelfile", name=name, home=root, **options)


def compare(home: Path, b: object, texts: list[str] = TEXTS, **options: Any) -> modelkit.EmbeddingComparison:
    other: Any = b
    return modelkit.compare_embeddings(home / "model", other, texts, home=home, **options)


def vectors(home: Path, name: str | Path) -> np.ndarray:
    with modelkit.load(name, home=home) as model:
        return model.embed(TEXTS).vectors.astype(np.float64)


def test_what_is_said_of_them(home: Path) -> None:
    a, b = vectors(home, home / "model"), vectors(home, "q4")
    found = compare(home, "q4")
    cosines = [float(one @ other) for one, other in zip(a, b, strict=True)]
    assert found.cosine == pytest.approx(np.mean(cosines), abs=1e-6)
    assert found.cosine_least == pytest.approx(min(cosines), abs=1e-6)
    assert min(cosines) < np.mean(cosines) < 1
    near = [
        [max((j for j in range(6) if j != i), key=lambda j: one[i] @ one[j]) for i in range(6)]
        for one in (a, b)
    ]
    assert found.same_nearest == sum(map(int.__eq__, *near)) / 6
    pairs = [(i, j) for i in range(6) for j in range(i)]
    order = [sorted(pairs, key=lambda pair: one[pair[0]] @ one[pair[1]]) for one in (a, b)]
    squares = sum((order[0].index(pair) - order[1].index(pair)) ** 2 for pair in pairs)
    assert found.rank_correlation == pytest.approx(1 - 6 * squares / (15 * (15 * 15 - 1)))
    assert (found.texts, found.dimensions, found.cut) == (6, (64, 64), (0, 0))
    assert found.weight_bytes[1] < found.weight_bytes[0]


def test_a_model_is_like_itself(home: Path) -> None:
    found = compare(home, home / "model")
    assert (found.cosine, found.cosine_least) == (pytest.approx(1), pytest.approx(1))
    assert (found.same_nearest, found.rank_correlation) == (1, pytest.approx(1))
    assert (found.speed, found.texts_per_s) == (None, None)


def test_vectors_of_two_sizes_and_vocabularies(home: Path) -> None:
    found = compare(home, home / "writer")
    assert (found.dimensions, found.cosine, found.cosine_least) == ((64, 32), None, None)
    assert found.rank_correlation is not None
    assert -1 <= found.rank_correlation < 1


def test_speed_is_of_texts_in_turns(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    honest = modelkit.Model.embed

    def watching(self: modelkit.Model, texts: Any, **options: Any) -> Any:
        asked.append((self.name, len(texts)))
        return honest(self, texts, **options)

    monkeypatch.setattr(modelkit.Model, "embed", watching)
    found = compare(home, "q4", speed=True)
    assert asked[:2] == [(str(home / "model"), 6), ("q4", 6)]
    turns = [name for name, count in asked[2:] if count == 1]
    assert turns.count("q4") == turns.count(str(home / "model")) == len(asked[2:]) / 2 >= 24
    assert all(one != other for one, other in zip(turns[::2], turns[1::2], strict=True))
    assert found.texts_per_s is not None
    assert found.speed is not None
    assert min(*found.texts_per_s, found.speed) > 0


def test_a_text_counts_once(home: Path) -> None:
    assert compare(home, "q4", [*TEXTS, "", "  ", *TEXTS]) == compare(home, "q4")


def test_texts_that_are_too_long_are_counted(home: Path, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m", "bert", pool="mean")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    assert compare(home, folder).cut == (0, 2)  # of three words and the two around them none


@pytest.mark.parametrize("texts", [[], ["a", "a", " ", "b"]])
def test_too_few_texts(home: Path, texts: list[str]) -> None:
    with pytest.raises(RequestError, match=f"to compare on: {len(set(texts) - {' '})}, expected 3 or more"):
        compare(home, "q4", texts)


def test_too_many_texts(home: Path) -> None:
    with pytest.raises(RequestError, match="to compare on: 1,001, expected 1,000 or fewer"):
        compare(home, "q4", [f"rain {number}" for number in range(1001)])


def test_equal_values_share_a_rank() -> None:
    ranks = getattr(room, "_ranks")  # noqa: B009 -- what is private to pyright
    assert ranks(np.array([0.5, 0.1, 0.5, 0.5])).tolist() == [3, 1, 3, 3]
    correlation = getattr(room, "_rank_correlation")  # noqa: B009
    assert correlation(np.ones(3), np.arange(3)) is None
    assert correlation(-np.arange(3), np.arange(3)) == pytest.approx(-1)


def test_with_an_adapter_it_is_the_fused_one(tmp_path: Path) -> None:
    reference = AdapterReference(AdapterReference.names("encoders/")[0])
    reference.write_base(tmp_path / "model")
    reference.write(tmp_path / "law")
    make(tmp_path, "it", "ADAPTER ./law")
    make(tmp_path, "fused", "ADAPTER ./law", fuse_adapters=True)
    with modelkit.load("it", home=tmp_path) as model:
        words = [model.decode([number, number + 1]) for number in range(10, 22)]
    found, fused = (compare(tmp_path, name, words) for name in ("it+law", "fused"))
    assert fused.cosine is not None
    assert fused.cosine < 0.999
    assert found.cosine == pytest.approx(fused.cosine, abs=1e-5)
    assert found.adapters == ((), (("law", 1.0),))
    assert compare(tmp_path, "it+law=0", words).cosine == pytest.approx(1)


def test_who_makes_no_embeddings_is_named(home: Path, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m", "bert", pool="mean")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "attention"}')
    with pytest.raises(RequestError, match=r"/m: this model makes no embeddings: "):
        compare(home, folder)


def run(home: Path, *arguments: str) -> Result:
    given = ["compare", *(str(home / one[2:]) if one.startswith("./") else one for one in arguments)]
    return CliRunner().invoke(cli, given, catch_exceptions=False, env={"MODELKIT_HOME": str(home)})


def test_encoders_are_compared_so_by_themselves(home: Path) -> None:
    shown = run(home, "./model", "q4", "--text", "./texts.txt").stdout
    firsts = [line.split("  ")[0].strip() for line in shown.splitlines()]
    assert firsts[1:] == [
        "size",
        "elements of a vector",
        "cosine",
        "its least",
        "same nearest text",
        "rank correlation",
        "texts per second",
        "speed",
        "6 texts",
    ]
    found = json.loads(run(home, "./model", "q4", "--text", "./texts.txt", "--json").stdout)
    assert (found["b"], found["texts"], found["cut"]) == ("q4", 6, [0, 0])
    assert found["cosine"] == pytest.approx(compare(home, "q4").cosine)


def test_whoever_writes_is_when_asked(home: Path) -> None:
    found = run(home, "./writer", "./writer", "--embeddings", "--text", "./texts.txt", "--json")
    assert json.loads(found.stdout)["same_nearest"] == 1
    assert "kl" in json.loads(run(home, "./writer", "./writer", "--text", "./texts.txt", "--json").stdout)


def test_nobody_writes_texts_for_them(home: Path) -> None:
    result = run(home, "./model", "q4")
    assert (result.exit_code, "give --text FILE, one text per line" in result.stderr) == (2, True)


def test_one_that_writes_beside_one_that_does_not(home: Path) -> None:
    result = run(home, "./writer", "./model", "--text", "./texts.txt")
    assert result.exit_code == 1
    assert "makes embeddings and writes no text" in result.stderr
    assert "compare --embeddings" in result.stderr
    with pytest.raises(LoadError, match="makes embeddings and writes no text"):
        modelkit.compare(home / "model", home / "model", home=home)
