"""Ids that a model's authors never want drawn."""

from pathlib import Path

import pytest

import modelkit
from modelkit.errors import ModelkitError
from modelkit.pack.authors import read_generation_config, read_suppressed
from tests.support.tiny import write_model


def test_suppressed_ids_are_never_drawn(tmp_path: Path) -> None:
    free = write_model(tmp_path / "free")
    with modelkit.load(free) as model:
        wanted = model.generate("hello", raw=True, seed=1, num_predict=40, temperature=3).ids
    common = max(set(wanted), key=wanted.count)
    bound = write_model(tmp_path / "bound", generation={"suppress_tokens": [common, 300]})
    with modelkit.load(bound) as model:
        assert not any("suppress_tokens" in note for note in model.notes)
        for temperature in (0, 3):
            ids = model.generate("hello", raw=True, seed=1, num_predict=40, temperature=temperature).ids
            assert not {common, 300} & set(ids)


@pytest.mark.parametrize("bias", [None, {300: 5.0}])
def test_a_form_of_suppressed_ids_alone_is_told_so(tmp_path: Path, bias: dict[int, float] | None) -> None:
    """It "could not go on behind token 0", which nobody had drawn."""
    with modelkit.load(write_model(tmp_path / "free")) as model:
        ids = model.generate("hello", raw=True, seed=1, num_predict=4, regex="x{3}").ids
    bound = write_model(tmp_path / "bound", generation={"suppress_tokens": list(ids)})
    with modelkit.load(bound) as model:
        for text in ("x+", "abx+"):
            with pytest.raises(
                ModelkitError, match=r"cannot go on: of the tokens that it allows here .* none"
            ):
                model.generate("hello", raw=True, seed=1, num_predict=9, regex=text, logit_bias=bias)
        assert model.generate("hello", raw=True, seed=1, num_predict=9, regex="abx?").text == "ab"


@pytest.mark.parametrize(
    ("config", "ids", "words"),
    [
        ({}, (), None),
        ({"suppress_tokens": None}, (), None),
        ({"suppress_tokens": [5, 2, 5]}, (2, 5), None),
        ({"suppress_tokens": 7}, (7,), None),
        ({"suppress_tokens": [1, 10]}, (1,), "suppress_tokens has 10, expected ids below 10"),
        ({"suppress_tokens": ["x"]}, (), "suppress_tokens has 'x'"),
        ({"suppress_tokens": list(range(10))}, (), "every id there is"),
    ],
)
def test_what_can_be_suppressed_is_and_the_rest_is_noted(
    config: dict[str, object], ids: tuple[int, ...], words: str | None
) -> None:
    found, notes = read_suppressed(config, 10)
    assert found == ids
    assert (words is None) is (notes == ())
    assert words is None or words in notes[0]


def test_what_acts_in_transformers_alone_is_noted() -> None:
    idle = {"num_beams": 1, "no_repeat_ngram_size": 0, "min_length": None, "bad_words_ids": []}
    idle |= {"token_healing": False, "watermarking_config": None}
    assert read_generation_config(idle)[1] == ()
    acting = {
        "begin_suppress_tokens": [3],
        "forced_bos_token_id": 0,
        "no_repeat_ngram_size": 3,
        "num_beams": 4,
        "token_healing": True,
        "watermarking_config": {"bias": 2.0},
    }
    assert read_generation_config(acting)[1] == tuple(
        f"generation_config.json: {name} is not applied" for name in acting
    )
