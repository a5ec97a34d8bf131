"""Samplers that look at more than the odds of a place, as PARAMETERs of a loaded model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit import Model
from modelkit.modelfile import Parameters
from modelkit.requests.options import idle_samplers
from tests.support.tiny import write_model

WARM: dict[str, Any] = {"raw": True, "seed": 1, "num_predict": 60, "top_p": 1.0, "top_k": 0, "temperature": 3}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with modelkit.load(write_model(tmp_path_factory.mktemp("tiny"))) as loaded:
        yield loaded


@pytest.mark.parametrize(
    "one",
    [
        {"xtc_probability": 1.0, "xtc_threshold": 0.001},
        {"top_n_sigma": 0.5},
        {"dynatemp_range": 0.7},
        {"dry_multiplier": 50.0, "dry_allowed_length": 0},
    ],
    ids=lambda one: next(iter(one)),
)
def test_each_changes_the_text_and_a_seed_still_names_it(model: Model, one: dict[str, Any]) -> None:
    plain = model.generate("hello", **WARM).ids
    changed = model.generate("hello", **WARM, **one)
    assert changed.ids != plain
    assert model.generate("hello", **WARM, **one).ids == changed.ids
    assert changed.notes == ()


def test_dry_ends_a_loop_and_a_breaker_lets_it_go_on(model: Model) -> None:
    """A greedy answer that a bias holds to two tokens."""
    ids = model.encode("ab")[-2:]
    held: dict[str, Any] = {
        "raw": True,
        "temperature": 0.0,
        "num_predict": 30,
        "logit_bias": dict.fromkeys(ids, 50.0),
    }
    strong: dict[str, Any] = {"dry_multiplier": 100.0, "dry_base": 2.0}
    loop = model.generate("ab" * 8, **held)
    freed = model.generate("ab" * 8, **held, **strong)
    text = model.decode(ids[:1])
    broken = model.generate("ab" * 8, **held, **strong, dry_sequence_breakers=[text, model.decode(ids[1:])])
    assert set(loop.ids) <= set(ids)
    assert not set(freed.ids) <= set(ids)
    assert broken.ids == loop.ids


def test_an_answer_has_the_tokens_that_it_must_have(tmp_path: Path) -> None:
    """Every id but one ends the text, so an answer would end at once."""
    with modelkit.load(write_model(tmp_path / "plain")) as free:
        likeliest = free.generate("hello", raw=True, temperature=0, num_predict=1).ids[0]
    ending = write_model(tmp_path / "ending", generation={"eos_token_id": [likeliest]})
    with modelkit.load(ending) as model:
        asked: dict[str, Any] = {"raw": True, "temperature": 0, "num_predict": 8}
        assert model.generate("hello", **asked).ids == ()
        least = model.generate("hello", **asked, min_tokens=3).ids
        assert len(least) >= 3
        assert likeliest not in least[:3]
        assert len(model.generate("hello", **asked, min_tokens=2**31 - 1).ids) == 8


def test_a_form_that_is_complete_ends_an_answer_sooner(model: Model) -> None:
    asked: dict[str, Any] = {"raw": True, "seed": 1, "num_predict": 60, "min_tokens": 50}
    assert model.generate("hello", **asked, regex="abc").text == "abc"


def test_log_probabilities_are_the_models_own(model: Model) -> None:
    """Of the same first place, whatever is drawn there."""
    plain = model.generate("hello", **WARM, top_logprobs=3).logprobs
    asked: dict[str, Any] = {"xtc_probability": 1.0, "xtc_threshold": 0.0, "dry_multiplier": 5.0}
    other = model.generate("hello", **WARM, **asked, top_logprobs=3).logprobs
    assert other[0].top == plain[0].top
    assert other[0].id != plain[0].id


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"xtc_probability": 0.5, "temperature": 0}, "temperature 0 always takes the likeliest"),
        ({"xtc_probability": 0.5, "top_k": 1}, "top_k 1 always takes the likeliest"),
        ({"xtc_probability": 0.5, "xtc_threshold": 0.6}, "no two tokens reach"),
        ({"dry_multiplier": 0.8, "dry_penalty_last_n": 0}, "dry_penalty_last_n is 0"),
        ({"xtc_probability": 0.5, "temperature": 0, "dynatemp_range": 0.5}, None),
        ({"temperature": 0, "dry_multiplier": 0.8}, None),
    ],
    ids=str,
)
def test_one_that_cannot_act_is_spoken_of(settings: dict[str, Any], said: str | None) -> None:
    notes = idle_samplers(Parameters(settings).resolved())
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]


def test_the_note_comes_with_the_answer(model: Model) -> None:
    answer = model.generate("hello", raw=True, temperature=0, num_predict=2, xtc_probability=0.5)
    assert answer.notes == ("xtc_probability does nothing: temperature 0 always takes the likeliest token",)
