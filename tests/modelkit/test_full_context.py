"""Conversations that have outgrown the context, on a tiny model whose tokens are bytes."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.errors import PlanError, PromptTooLong, RequestError
from tests.support.tiny import TEMPLATE, write_model

CONTEXT = 200


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[modelkit.Model]:
    folder = write_model(tmp_path_factory.mktemp("full") / "model", template=TEMPLATE)
    with modelkit.load(folder, num_ctx=CONTEXT, temperature=0, num_predict=4) as loaded:
        yield loaded


def conversation(turns: int) -> list[dict[str, str]]:
    talk = [{"role": "system", "content": "Be brief."}]
    for number in range(turns):
        talk.append({"role": "user", "content": f"question {number}"})
        talk.append({"role": "assistant", "content": f"answer {number}"})
    return [*talk, {"role": "user", "content": "and now?"}]


def test_a_conversation_goes_on_when_the_context_is_full(model: modelkit.Model) -> None:
    dropped: list[int] = []
    for turns in range(30):
        answer = model.chat(conversation(turns))
        assert answer.reason in ("stop", "length")
        assert answer.usage.prompt_tokens <= CONTEXT - 4
        dropped.append(answer.dropped_messages)
    assert dropped[0] == 0
    assert dropped == sorted(dropped)
    assert dropped[-1] > 40
    # Each time about half goes, so that what is left is not read anew at every question.
    assert len(set(dropped)) < 20


def test_a_stream_knows_its_prompt(model: modelkit.Model) -> None:
    with model.chat(conversation(1), stream=True) as pieces:
        text = model.prompt(conversation(1))
        assert model.decode(pieces.prompt_ids) == text
        assert list(pieces.prompt_ids) == model.encode(text, add_special=False)


def test_a_request_may_have_less_than_all_of_the_context(model: modelkit.Model) -> None:
    answer = model.chat(conversation(12), context_length=100)
    assert answer.usage.prompt_tokens <= 100 - 4
    whole = model.generate("a" * 40, raw=True, context_length=50, num_predict=90)
    assert len(whole.ids) == 10
    assert whole.cut == "context"
    with pytest.raises(PromptTooLong, match="the context is 30"):
        model.generate("a" * 40, raw=True, context_length=30)
    assert model.generate("a", raw=True, context_length=10**9).usage.prompt_tokens == 1


@pytest.mark.parametrize("truncate", [True, False])
def test_a_prompt_that_is_refused_becomes_tokens_once(
    model: modelkit.Model, monkeypatch: pytest.MonkeyPatch, truncate: bool
) -> None:
    """For a text of megabytes that takes seconds each time."""
    tokenizer: Any = model._running.tokenizer  # type: ignore[union-attr]
    encode, read = tokenizer.encode, list[str]()

    def counted(text: str, *, add_special: bool) -> list[int]:
        read.append(text)
        return encode(text, add_special=add_special)

    monkeypatch.setattr(tokenizer, "encode", counted)
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a" * CONTEXT}]
    with pytest.raises(PromptTooLong, match="the context is 200"):
        model.chat(talk, truncate=truncate)
    assert len(read) == 1
    assert model.chat([*talk[:1], {"role": "user", "content": "a"}]).usage.prompt_tokens < CONTEXT
    assert len(read) > 2  # as marks are looked for


@pytest.fixture
def chars_read(model: modelkit.Model, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many characters became tokens, by their kind."""
    tokenizer: Any = model._running.tokenizer  # type: ignore[union-attr]
    encode, read = tokenizer.encode, Counter[str]()

    def counted(text: str, *, add_special: bool) -> list[int]:
        read.update(text)
        return encode(text, add_special=add_special)

    monkeypatch.setattr(tokenizer, "encode", counted)
    return read


@pytest.mark.parametrize("truncate", [True, False])
def test_of_what_is_far_too_long_only_the_beginning_is_read(
    model: modelkit.Model, chars_read: Counter[str], truncate: bool
) -> None:
    """However often it is asked what could be left out."""
    talk = [*conversation(1)[:-1], {"role": "user", "content": "z" * 3_000_000}]
    with pytest.raises(PromptTooLong, match=r"the prompt has about [23],\d{3},\d{3} tokens") as raised:
        model.chat(talk, truncate=truncate)
    assert raised.value.prompt_tokens == pytest.approx(3_000_000, rel=0.1)
    with pytest.raises(PromptTooLong, match="about"):
        model.generate(talk[-1]["content"], raw=True)
    assert chars_read["z"] < 600_000


def test_what_is_far_too_long_is_left_out(model: modelkit.Model, chars_read: Counter[str]) -> None:
    talk = conversation(3)
    talk[2]["content"] = "z" * 3_000_000
    answer = model.chat(talk)
    assert 0 < answer.dropped_messages < 6
    assert chars_read["z"] < 600_000


def test_a_long_conversation_is_read_once(model: modelkit.Model, chars_read: Counter[str]) -> None:
    """Where others may part from it is found at its ends."""
    talk = [{"role": "user", "content": "z" * 100}, *conversation(1)[2:]]
    assert model.chat(talk).dropped_messages == 0
    assert chars_read["z"] == 100


def test_what_is_left_is_the_prompt_of_those_messages(model: modelkit.Model) -> None:
    talk = conversation(12)
    text = model.prompt(talk)
    assert text.startswith("<system>Be brief.<user>question 0<assistant>answer 0<user>question ")
    assert text.endswith("<assistant>answer 11<user>and now?<assistant>")
    assert "question 1<" not in text
    answer = model.chat(talk)
    assert answer.usage.prompt_tokens == len(text)
    count = text.count("question")
    assert answer.dropped_messages == 2 * (12 - count)
    left = [*talk[:3], *talk[-1 - 2 * (count - 1) :]]
    assert model.chat(left).ids == answer.ids


def test_the_stream_says_it_before_the_first_piece(model: modelkit.Model) -> None:
    with model.chat(conversation(12), stream=True) as pieces:
        assert pieces.dropped_messages > 0
    assert pieces.result.dropped_messages == pieces.dropped_messages


def test_what_is_kept_is_found_again(model: modelkit.Model) -> None:
    model.chat(conversation(12))
    again = model.chat(conversation(12))
    assert again.usage.cached_tokens == again.usage.prompt_tokens - 1


@pytest.mark.parametrize(("keep", "first"), [(0, 0), (-1, 1), (70, 2), (10**6, 6)])
def test_num_keep_protects_turns(model: modelkit.Model, keep: int, first: int) -> None:
    """The system message has 17 tokens, a turn 39."""
    with modelkit.load(model.name, num_ctx=260, num_predict=4, num_keep=keep) as other:
        text = other.prompt(conversation(12))
    kept = [number for number in range(12) if f"question {number}<" in text]
    assert kept[:first] == list(range(first))
    assert len(kept) == first or kept[first] > first
    asked = model.chat(conversation(12), num_keep=keep)
    assert asked.dropped_messages > 0


def test_a_conversation_can_be_left_whole(model: modelkit.Model) -> None:
    with pytest.raises(RequestError, match=f"tokens and the context is {CONTEXT}"):
        model.chat(conversation(12), truncate=False)
    assert model.chat(conversation(2), truncate=False).dropped_messages == 0


def test_what_cannot_fit_is_refused_with_numbers(model: modelkit.Model) -> None:
    talk = [*conversation(3)[:-1], {"role": "user", "content": "x" * 300}]
    with pytest.raises(RequestError) as caught:
        model.chat(talk)
    assert caught.value.message == (
        "the prompt has 334 tokens and the context is 200, answer included; 6 earlier messages were left out "
        "already; the system message and what came last stay"
    )
    assert caught.value.hint is not None
    with pytest.raises(RequestError, match="the prompt has 317 tokens") as caught:
        model.chat(talk[-1:])
    assert "left out" not in caught.value.message


def test_a_package_keeps_its_examples_longest(tmp_path: Path) -> None:
    write_model(tmp_path / "model", template=TEMPLATE)
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text("FROM ./model\nMESSAGE user example\nMESSAGE assistant of this kind\n")
    home = tmp_path / "home"
    modelkit.create(modelfile, name="story", home=home)
    with modelkit.load("story", home=home, num_ctx=130, num_predict=4) as model:
        text = model.prompt([*conversation(12)[1:3], {"role": "user", "content": "y" * 60}])
        assert text.startswith("<user>example<assistant>of this kind<user>yyy")


def test_create_refuses_to_keep_more_than_there_is(tmp_path: Path) -> None:
    write_model(tmp_path / "model", template=TEMPLATE)
    modelfile = tmp_path / "Modelfile"
    for lines in ("PARAMETER num_keep 256", "PARAMETER num_ctx 100\nPARAMETER num_keep 100"):
        modelfile.write_text(f"FROM ./model\n{lines}\n")
        place = rf"Modelfile:{2 + lines.count(chr(10))}:1: "
        with pytest.raises(PlanError, match=place + r"num_keep is \d+ and the context of .* is \d+ tokens"):
            modelkit.create(modelfile, name="story", home=tmp_path / "home")
    modelfile.write_text("FROM ./model\nPARAMETER num_ctx 100\nPARAMETER num_keep 99\n")
    modelkit.create(modelfile, name="story", home=tmp_path / "home")


def test_an_answer_ends_with_the_context_unless_it_may_forget(model: modelkit.Model) -> None:
    ended = model.generate("Once", raw=True, num_predict=-1)
    assert (ended.reason, ended.cut, ended.usage.dropped_tokens) == ("length", "context", 0)
    assert len(ended.ids) == CONTEXT - 4
    on: dict[str, Any] = {"context_shift": "on"}
    longer = model.generate("Once", raw=True, num_predict=450, **on)
    assert (longer.reason, longer.cut, len(longer.ids)) == ("length", "num_predict", 450)
    assert longer.ids[: CONTEXT - 4] == ended.ids
    # The prompt's 4 tokens stay, and half of the rest goes, three times.
    assert longer.usage.dropped_tokens == 3 * 98
    assert longer.usage.generated_tokens == 450
    exact = model.generate("Once", raw=True, num_predict=CONTEXT - 4, **on)
    assert (exact.reason, exact.cut, exact.ids) == ("length", "num_predict", ended.ids)


@pytest.mark.parametrize(("keep", "drop"), [(0, 99), (1, 99), (20, 90), (-1, 60), (10**9, 60), (None, 60)])
def test_num_keep_says_what_an_answer_never_forgets(
    model: modelkit.Model, keep: int | None, drop: int
) -> None:
    given: dict[str, Any] = {} if keep is None else {"num_keep": keep}
    answer = model.generate("x" * 80, raw=True, num_predict=121, context_shift="on", **given)
    assert answer.usage.dropped_tokens == 0
    answer = model.generate("x" * 80, raw=True, num_predict=122, context_shift="on", **given)
    assert answer.usage.dropped_tokens == drop


def test_what_was_forgotten_ahead_of_a_stop_string_does_not_count(model: modelkit.Model) -> None:
    on: dict[str, Any] = {"context_shift": "on", "raw": True, "num_predict": 400, "seed": 5, "temperature": 2}
    shaped = model.generate("x" * 80, regex="[a-z]{300}!", **on)
    for place in range(20, 220, 40):
        stop = shaped.text[place : place + 4]
        stopped = model.generate("x" * 80, regex="[a-z]{300}!", stop=stop, **on)
        assert stopped.stop == stop
        full = len(stopped.ids) - (CONTEXT - 80) - 1
        assert stopped.usage.dropped_tokens == max(-(-full // 60), 0) * 60


def test_unset_no_more_than_half_of_the_context_stays(model: modelkit.Model) -> None:
    answer = model.generate("x" * 180, raw=True, num_predict=30, context_shift="on")
    assert answer.usage.dropped_tokens == 50


def test_an_answer_without_an_end_has_one(model: modelkit.Model) -> None:
    answer = model.generate("Once", raw=True, num_predict=-1, context_shift="on", temperature=0)
    assert (answer.reason, len(answer.ids)) == ("length", 10 * CONTEXT)


def test_forms_stops_and_probabilities_go_on_with_it(model: modelkit.Model) -> None:
    on: dict[str, Any] = {"context_shift": "on", "raw": True, "num_predict": 400, "seed": 5, "temperature": 2}
    shaped = model.generate("Once", regex="[a-z]{300}!", **on)
    assert shaped.complete
    assert len(shaped.text) == 301
    assert shaped.usage.dropped_tokens > 0
    far = shaped.text[280:284]
    assert shaped.text.index(far) > CONTEXT
    stopped = model.generate("Once", regex="[a-z]{300}!", stop=far, **on)
    assert (stopped.reason, stopped.text) == ("stop", shaped.text[: shaped.text.index(far)])
    noted = model.generate("Once", top_logprobs=1, **on)
    assert len(noted.logprobs) == len(noted.ids)
    with model.generate("Once", stream=True, **on) as pieces:
        assert "".join(pieces) == noted.text
