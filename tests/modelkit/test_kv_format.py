"""Keys and values in another format: near enough, the same in every way to compute them, and smaller."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import modelkit
from modelkit.errors import LoadError, ParameterError, PlanError
from modelkit.modelfile import Parameters
from tests.support.drafting import always_drafting
from tests.support.tiny import write_model

TEXT = "A little text about a fox, an island and the sea around it. " * 2
# Root mean square distance of logits, of their spread. An element loses 2^-12 (f16), 2^-9 (bf16), and at most
# 1/510 (q8) and 1/30 (q4) of its group's range; random weights attend sharply, which makes it a little more.
TOLERANCE = {"f32": 1e-6, "f16": 2e-3, "bf16": 1e-2, "q8": 3e-2, "q4": 4e-1}
STEPS = 1e-3  # a rounding more or less may move a code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("kv") / "model")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[modelkit.Model]:
    with modelkit.load(folder) as model:
        yield model


@pytest.mark.parametrize("name", TOLERANCE)
def test_logits_stay_near(folder: Path, plain: modelkit.Model, name: str) -> None:
    ids = plain.encode(TEXT)
    wanted = plain.logits(ids, chunk=16)
    with modelkit.load(folder, kv_format=name) as model:
        got = model.logits(ids, chunk=16)
        again = model.logits(ids, chunk=1)
    assert distance(got, wanted) <= TOLERANCE[name]
    assert distance(got, again) <= STEPS
    if name != "f32":
        assert distance(got, wanted) > 1e-6, "the format was not used"


def distance(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.sqrt(((got - wanted) ** 2).mean()) / wanted.std())


def answers(model: modelkit.Model, *prompts: str, **options: object) -> list[tuple[int, ...]]:
    """All at once, so that they share batches."""
    streams = [
        model.generate(prompt, raw=True, temperature=0, num_predict=24, stream=True, **options)
        for prompt in prompts
    ]
    return [stream.whole().ids for stream in streams]


@pytest.mark.parametrize("name", ["q8", "q4", "f16"])
def test_batches_and_known_beginnings_change_no_token(folder: Path, name: str) -> None:
    prompts = ["Once upon a time", "The sea", "Foxes of the island live"]
    with modelkit.load(folder, kv_format=name) as model:
        alone = [answers(model, prompt)[0] for prompt in prompts]
    with modelkit.load(folder, kv_format=name) as model:
        assert answers(model, *prompts) == alone
        again = model.generate(prompts[0], raw=True, temperature=0, num_predict=24)
        assert again.usage.cached_tokens == len(prompts[0]) - 1
        assert again.ids == alone[0]


@pytest.mark.parametrize("name", ["q8", "q4"])
def test_speculation_gives_the_tokens_of_plain_decoding(
    tmp_path: Path, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_drafting(monkeypatch)
    draft = write_model(tmp_path / "draft", seed=0, num_hidden_layers=2)  # the target again: most is accepted
    (tmp_path / "Modelfile").write_text(f"FROM {folder}\nDRAFT {draft}\nPARAMETER kv_format {name}\n")
    modelkit.create(tmp_path / "Modelfile", name="pair", quantize_draft="q8", home=tmp_path)
    with modelkit.load("pair", home=tmp_path) as model:
        plain = model.generate("Once", raw=True, temperature=0, num_predict=40, draft_num_predict=0)
        fast = model.generate("Once", raw=True, temperature=0, num_predict=40, draft_num_predict=4)
    assert fast.usage.accepted_tokens > 0
    assert fast.ids == plain.ids


def test_memory_is_foreseen_in_the_format(folder: Path, plain: modelkit.Model) -> None:
    with modelkit.load(folder, kv_format="q8") as model:
        # A head's 32 elements take 32 bytes, and a scale and a bias in f32, in place of 128.
        assert model.memory.cache_bytes == plain.memory.cache_bytes * 40 // 128


def test_what_is_held_is_in_the_format(folder: Path) -> None:
    held: dict[str, int] = {}
    for name in ("f32", "q8"):
        with modelkit.load(folder, kv_format=name) as model:
            model.generate("Once upon a time", raw=True, temperature=0, num_predict=4)
            held[name] = sum(node.size_bytes for node in model.prefixes())
    assert held["q8"] == held["f32"] * 40 // 128


def test_heads_that_a_format_cannot_hold_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "odd", head_dim=24)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(LoadError, match=r"kv_format q8 .*layer 0 \(full\) has keys of 24 elements"):
        modelkit.load(folder, kv_format="q8")
    with modelkit.load(folder, kv_format="f16") as model:
        assert model.generate("Once", raw=True, num_predict=2).ids
    (tmp_path / "Modelfile").write_text(f"FROM {folder}\nPARAMETER top_k 7\nPARAMETER kv_format q8\n")
    with pytest.raises(PlanError, match=r"Modelfile:3:1: kv_format q8 does not suit"):
        modelkit.create(tmp_path / "Modelfile", home=tmp_path / "home")


@pytest.mark.parametrize(("given", "meant"), [("q8_0", "q8"), ("q4_0", "q4"), ("fp16", "f16")])
def test_the_names_of_others_are_refused_with_ours(given: str, meant: str) -> None:
    with pytest.raises(ParameterError, match="expected one of auto, f32") as caught:
        Parameters({"kv_format": given})
    assert caught.value.hint == f"Did you mean {meant}?"


def test_it_is_settled_when_the_model_is_loaded(plain: modelkit.Model) -> None:
    with pytest.raises(ParameterError, match="kv_format cannot change for one request"):
        plain.generate("Once", raw=True, kv_format="q8")


def test_a_parameter_that_is_a_word_survives_the_modelfile_and_json() -> None:
    given = Parameters().added("kv_format", "q8")
    assert given.texts() == (("kv_format", "q8"),)
    assert Parameters.from_json(json.loads(json.dumps(given.to_json()))) == given
    assert given.resolved().kv_format == "q8"
