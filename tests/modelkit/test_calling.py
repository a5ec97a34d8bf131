"""Tools, forms and thinking of one small model of random weights: what fits, the grammar alone has made."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import modelkit
from modelkit.errors import PlanError, RequestError
from modelkit.model import Model
from tests.support.tiny import write_model

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"enum": ["celsius", "kelvin"]}},
    "required": ["city", "unit"],
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
ASKED = [{"role": "user", "content": "Weather?"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE, max_position_embeddings=4096)
    with modelkit.load(folder) as model:
        yield model


def test_a_required_call_fits_and_is_the_same_however_far_is_guessed(model: Model) -> None:
    asked: dict[str, Any] = {
        "tools": TOOLS,
        "tool_choice": "get_weather",
        "temperature": 1.1,
        "num_predict": 400,
    }
    for seed in range(4):
        plain = model.chat(ASKED, seed=seed, draft_num_predict=0, **asked)
        guessing = model.chat(ASKED, seed=seed, **asked)
        assert (guessing.ids, guessing.tool_calls[0].arguments) == (plain.ids, plain.tool_calls[0].arguments)
        assert plain.complete
        jsonschema.validate(dict(plain.tool_calls[0].arguments), SCHEMA)
        assert (len(plain.tool_calls), plain.text) == (1, "")
    drafts = {one.drafter: one for one in guessing.usage.drafts}  # pyright: ignore[reportPossiblyUnboundVariable]
    assert drafts["grammar"].accepted_tokens == drafts["grammar"].drafted_tokens > 0


def test_rows_of_all_kinds_share_a_batch(model: Model) -> None:
    kinds: list[dict[str, Any]] = [
        {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
        {},
        {"format": SCHEMA},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "none"},
    ]
    common: dict[str, Any] = {"seed": 3, "num_predict": 150}
    alone = [model.chat(ASKED, **kind, **common) for kind in kinds]
    streams = [model.chat(ASKED, stream=True, **kind, **common) for kind in kinds]
    together = [stream.whole() for stream in streams]
    assert [one.ids for one in together] == [one.ids for one in alone]
    assert together[0].tool_calls
    assert together[2].parsed is not None
    assert not together[4].tool_calls


def test_thinking_ends_where_its_budget_does(tmp_path: Path) -> None:
    template = TEMPLATE.replace("<assistant>{%", "<assistant><think>\n{%")
    folder = write_model(tmp_path, template=template, max_position_embeddings=4096)
    common: dict[str, Any] = {"seed": 3, "num_predict": 80, "format": SCHEMA}
    with modelkit.load(folder, think_tokens=9) as model:
        answer = model.chat(ASKED, **common)
        plain = model.chat(ASKED, draft_num_predict=0, **common)
        free = model.chat(ASKED, think_tokens=-1, **common)
        none = model.chat(ASKED, think_tokens=0, **common)
    assert answer.ids == plain.ids
    assert answer.notes == ()
    assert answer.text.startswith("{")
    assert len(free.thinking or "") > len(answer.thinking or "") > 0
    assert not none.thinking


@pytest.mark.parametrize(
    ("think", "end", "said"),
    [
        ("on", "", "think cannot be on: .* does not think"),
        ("high", "", "think cannot be on: .* does not think"),
        ("off", "", None),
        ("off", "<think>\n", "think cannot be off: .* has no switch"),
        ("on", "<think>\n", None),
    ],
)
def test_create_refuses_a_think_with_which_no_answer_would_come(
    tmp_path: Path, think: str, end: str, said: str | None
) -> None:
    write_model(tmp_path / "model", template=TEMPLATE.replace("<assistant>{%", f"<assistant>{end}{{%"))
    (tmp_path / "Modelfile").write_text(f"FROM ./model\nPARAMETER think {think}\n")
    if said is None:
        modelkit.create(tmp_path / "Modelfile", name="story", home=tmp_path / "home")
        return
    with pytest.raises(PlanError, match=f"Modelfile:2:1: {said}"):
        modelkit.create(tmp_path / "Modelfile", name="story", home=tmp_path / "home")


def test_a_model_that_does_not_think_is_given_no_budget(tmp_path: Path) -> None:
    small: dict[str, Any] = {"num_predict": 4, "seed": 1}
    folder = write_model(tmp_path / "model", template=TEMPLATE)
    with modelkit.load(folder, think_tokens=9) as model:
        assert model.chat(ASKED, **small).notes == ()  # a default means no more than "if it thinks"
        assert any("think_tokens 9 has no effect" in note for note in model.notes)
        model.chat(ASKED, think_tokens=0, **small)
        for asks in (lambda: model.chat(ASKED, think_tokens=5), lambda: model.generate("Hi", think_tokens=5)):
            with pytest.raises(RequestError, match=r"think_tokens cannot be 5: .* does not think"):
                asks()
        with pytest.raises(RequestError, match="think_tokens has no effect"):
            model.generate("Hi", raw=True, think_tokens=5)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("think_tokens 9", "think_tokens 9 has no effect"),
        ("think_tokens 0", None),
        ("num_ctx 100000", "num_ctx 100000 is more than the model's"),
        ("num_ctx 16", None),
    ],
)
def test_a_parameter_beyond_the_model_is_noted_when_the_package_is_made(
    line: str, said: str | None, tmp_path: Path
) -> None:
    write_model(tmp_path / "model", template=TEMPLATE)
    (tmp_path / "Modelfile").write_text(f"FROM ./model\nPARAMETER {line}\n")
    notes = modelkit.create(tmp_path / "Modelfile", name="story", home=tmp_path / "home").notes
    found = [note for note in notes if line.split()[0] in note]
    assert (said is not None) == bool(found)
    assert (said or "") in "".join(found)


def test_thinking_is_told_to_have_no_place_where_there_is_no_template(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "Modelfile").write_text("FROM ./model\nPARAMETER think on\nPARAMETER think_tokens 9\n")
    made = modelkit.create(tmp_path / "Modelfile", name="story", home=tmp_path / "home")
    said = "think and think_tokens have no effect: without a chat template there is no place for that"
    with modelkit.load("story", home=tmp_path / "home") as model:
        assert said in made.notes
        assert said in model.notes


def test_a_budget_that_cannot_hold_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkit.grammars.answers.thinking_budget._written", lambda *_: ())
    folder = write_model(tmp_path, template=TEMPLATE.replace("<assistant>{%", "<assistant><think>\n{%"))
    with modelkit.load(folder) as model:
        (note,) = model.chat(ASKED, think_tokens=5, num_predict=4).notes
        assert note.startswith("think_tokens does not hold: ")
