"""Every value that the table of parameters allows, down to its ends, runs."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.modelfile import PARAMETERS, Parameter, Parameters, ParameterValue
from modelkit.modelfile.parameter_table import MAX_STOP_CHARACTERS, MAX_STOPS
from tests.support.tiny import TEMPLATE, write_model

REQUEST: dict[str, Any] = {"num_predict": 2, "seed": 1}
# A model that thinks unless it is told not to, and how much.
THINKS = (
    TEMPLATE + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% if reasoning_effort is defined %}{{ reasoning_effort }}{% endif %}"
)
OF_CONVERSATIONS = ("think", "think_tokens")


def ends(row: Parameter) -> Iterator[ParameterValue]:
    """The lowest and the highest value, or all words; of texts, the shortest and the most."""
    if row.kind == "word":  # they suit a model's vocabulary, or are refused
        return
    if row.kind == "choice":
        yield from row.choices
    elif row.kind == "strings":
        yield ()
        yield tuple(chr(65 + place) for place in range(MAX_STOPS))
        yield tuple(chr(65 + place) * MAX_STOP_CHARACTERS for place in range(MAX_STOPS))
    else:
        number = int if row.kind == "int" else float
        yield number(math.nextafter(row.minimum, math.inf) if row.above else row.minimum)
        yield number(row.maximum)


CASES = [(row.name, value) for row in PARAMETERS.values() for value in ends(row)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("ends") / "model", template=THINKS)


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[modelkit.Model]:
    with modelkit.load(folder) as loaded:
        yield loaded


def runs(model: modelkit.Model, **parameters: Any) -> None:
    given = {**REQUEST, **parameters}
    raw = not any(name in OF_CONVERSATIONS for name in parameters)
    answer = model.generate("A", raw=raw, **given)
    assert len(answer.ids) <= 256
    assert all(0 <= token < 320 for token in answer.ids)


@pytest.mark.parametrize(("name", "value"), CASES)
def test_the_ends_of_its_range(name: str, value: ParameterValue, model: modelkit.Model, folder: Path) -> None:
    if PARAMETERS[name].scope in ("context", "machine"):
        given: dict[str, Any] = {name: value}
        with modelkit.load(folder, **given) as loaded:
            runs(loaded)
    else:
        runs(model, **{name: value})


@pytest.mark.parametrize("end", [0, -1])
def test_all_at_once_in_a_modelfile(end: int, folder: Path, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        row.name: found[end]
        for row in PARAMETERS.values()
        if row.name != "num_predict" and (found := list(ends(row)))
    }
    if end:
        values["num_keep"] = 255  # of a context of 256: the most that `create` takes
    given = Parameters(values)
    lines = "".join(f"PARAMETER {name} {text}\n" for name, text in given.texts())
    made = modelkit.create(modelkit.Modelfile.parse(f"FROM {folder}\n{lines}"), name="ends", home=tmp_path)
    with modelkit.load(str(made.name), home=tmp_path) as loaded:
        runs(loaded)


AUTHORS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")


@pytest.mark.parametrize("name", AUTHORS)
def test_what_authors_write_in_generation_config(name: str, tmp_path: Path) -> None:
    row = PARAMETERS[{"repetition_penalty": "repeat_penalty"}.get(name, name)]
    beyond = (row.maximum * 2 + 1, row.minimum if row.above else row.minimum - 1, "much", None, [0.5], True)
    for place, value in enumerate((*ends(row), *beyond, 1e-300, math.nan)):
        folder = write_model(tmp_path / str(place))
        (folder / "generation_config.json").write_text(json.dumps({name: value}))
        with modelkit.load(folder) as loaded:
            runs(loaded)
