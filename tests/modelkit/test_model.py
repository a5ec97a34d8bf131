"""The Python API on a tiny model of random weights."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import modelkit
from modelkit.errors import (
    LoadError,
    ModelNotFound,
    ParameterError,
    RequestError,
    TemplateError,
    UnsupportedSource,
)
from tests.support.drafting import always_drafting
from tests.support.standing import standing
from tests.support.tiny import TEMPLATE, write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("api") / "model", template=TEMPLATE)


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[modelkit.Model]:
    with modelkit.load(folder) as loaded:
        yield loaded


def test_same_seed_same_text(model: modelkit.Model) -> None:
    first, second = (
        model.generate("Once", raw=True, seed=3, temperature=3, num_predict=20) for _ in range(2)
    )
    other = model.generate("Once", raw=True, seed=4, temperature=3, num_predict=20)
    assert first.ids == second.ids
    assert first.text == second.text
    assert first.seed == 3
    assert other.ids != first.ids


def test_without_a_seed_the_result_tells_which_was_drawn(model: modelkit.Model) -> None:
    free = model.generate("Once", raw=True, num_predict=12)
    assert model.generate("Once", raw=True, num_predict=12, seed=free.seed).ids == free.ids


def test_pieces_make_the_whole(model: modelkit.Model) -> None:
    whole = model.generate("Once", raw=True, seed=1, num_predict=40)
    with model.generate("Once", raw=True, seed=1, num_predict=40, stream=True) as pieces:
        assert "".join(pieces) == whole.text
    assert pieces.result.ids == whole.ids
    assert pieces.result.reason == "length"


def test_leaving_a_stream_cancels(model: modelkit.Model) -> None:
    with standing(model), model.generate("Once", raw=True, seed=1, num_predict=200, stream=True) as pieces:
        next(iter(pieces))
    assert pieces.result.reason == "cancelled"
    assert len(pieces.result.ids) < 200


def test_a_prompt_may_be_ids(model: modelkit.Model) -> None:
    ids = model.encode("Once")
    assert model.generate(ids, temperature=0, num_predict=9).ids == (
        model.generate("Once", raw=True, temperature=0, num_predict=9).ids
    )


def test_a_text_prompt_goes_through_the_template(model: modelkit.Model) -> None:
    assert model.prompt([{"role": "user", "content": "Hi"}]) == "<user>Hi<assistant>"
    chat = model.chat([{"role": "user", "content": "Hi"}], temperature=0, num_predict=9)
    assert model.generate("Hi", temperature=0, num_predict=9).ids == chat.ids
    assert model.generate("<user>Hi<assistant>", raw=True, temperature=0, num_predict=9).ids == chat.ids


def test_an_answer_goes_on_where_the_last_message_stops(model: modelkit.Model) -> None:
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}]
    more = model.chat(talk, continue_final=True, temperature=0, num_predict=9)
    bare = model.generate("<user>Hi<assistant>Well, ", raw=True, temperature=0, num_predict=9)
    assert (more.ids, more.text) == (bare.ids, bare.text)
    with pytest.raises(RequestError, match="no last assistant message"):
        model.chat(talk[:1], continue_final=True)


def test_a_bias_makes_a_token_likelier_or_never_drawn(model: modelkit.Model) -> None:
    plain = model.generate("Once", raw=True, temperature=0, num_predict=4)
    never = model.generate("Once", raw=True, temperature=0, num_predict=4, logit_bias={plain.ids[0]: -100})
    assert never.ids[0] != plain.ids[0]
    always = model.generate("Once", raw=True, temperature=0, num_predict=4, logit_bias={7: 100})
    assert always.ids == (7, 7, 7, 7)


@pytest.mark.parametrize(
    ("bias", "says"),
    [
        ([7], "logit_bias"),
        ({"7": 1.0}, "'7'"),
        ({7: "a"}, r"logit_bias\[7\]"),
        ({7: float("nan")}, "nan"),
        ({999: 1.0}, "999"),
        ({-1: 1.0}, "-1"),
    ],
)
def test_a_bias_that_is_none(model: modelkit.Model, bias: object, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        model.generate("Once", raw=True, logit_bias=bias, num_predict=1)  # pyright: ignore


def test_stop_strings_cut_the_text_and_say_so(model: modelkit.Model) -> None:
    whole = model.generate("Once", raw=True, seed=1, num_predict=60)
    stop = whole.text[10:12]
    cut = model.generate("Once", raw=True, seed=1, num_predict=60, stop=[stop])
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert (cut.reason, cut.stop) == ("stop", stop)


def test_logits_do_not_depend_on_chunks(model: modelkit.Model) -> None:
    ids = model.encode("A little text to score.")
    whole, pieces = model.logits(ids), model.logits(ids, chunk=5)
    assert whole.shape == (len(ids), 320)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole, pieces, atol=1e-4)


@pytest.mark.parametrize(
    ("prompt", "parameters", "error", "says"),
    [
        ("Hi", {"temprature": 1}, ParameterError, "temperature"),
        ("Hi", {"temperature": -1}, ParameterError, "temperature"),
        ("Hi", {"num_ctx": 64}, ParameterError, "when the model is loaded"),
        ([], {}, RequestError, "no tokens"),
        ([320], {}, RequestError, "320"),
        ([-1], {}, RequestError, "-1"),
        ([5] * 256, {}, RequestError, "context"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    model: modelkit.Model, prompt: object, parameters: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        model.generate(prompt, **parameters)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_unknown_template_variables_are_refused(model: modelkit.Model) -> None:
    with pytest.raises(RequestError, match="enable_thinking"):
        model.chat([{"role": "user", "content": "Hi"}], variables={"enable_thinking": True})


def test_a_conversation_needs_a_template(tmp_path: Path) -> None:
    with modelkit.load(write_model(tmp_path / "plain")) as model:
        assert any("no chat template" in note for note in model.notes)
        with pytest.raises(TemplateError, match="no chat template"):
            model.chat([{"role": "user", "content": "Hi"}])


def test_the_authors_sampling_holds_until_somebody_says_otherwise(tmp_path: Path) -> None:
    folder = write_model(
        tmp_path / "m",
        generation={"do_sample": True, "temperature": 0.3, "top_k": 7, "top_p": 1.7, "eos_token_id": 256},
    )
    with modelkit.load(folder, top_k=9) as model:
        assert dict(model.defaults) == {"temperature": 0.3, "top_k": 9}
        assert any("top_p" in note for note in model.notes)


def test_do_sample_false_is_greedy(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", generation={"do_sample": False})
    with modelkit.load(folder) as model:
        assert model.defaults["temperature"] == 0.0


def test_a_larger_context_than_the_model_has_is_noted(folder: Path) -> None:
    with modelkit.load(folder, num_ctx=100_000) as model:
        assert model.context_length == 256
        assert any("100000" in note for note in model.notes)


def test_a_smaller_context_holds(folder: Path) -> None:
    with modelkit.load(folder, num_ctx=16) as model:
        assert len(model.generate([5] * 10, temperature=0, num_predict=50).ids) <= 6


def test_a_package_keeps_system_and_messages(tmp_path: Path, folder: Path) -> None:
    modelfile = tmp_path / "pack" / "Modelfile"
    modelfile.parent.mkdir()
    modelfile.write_text(
        f"FROM {folder}\nSYSTEM Be brief.\nMESSAGE user a\nMESSAGE assistant b\nPARAMETER seed 5\n"
    )
    created = modelkit.create(modelfile, home=tmp_path)
    assert str(created.name) == "pack"
    with modelkit.load("pack", home=tmp_path) as model:
        assert (
            model.prompt([{"role": "user", "content": "x"}])
            == "<system>Be brief.<user>a<assistant>b<user>x<assistant>"
        )
        own = [{"role": "system", "content": "Own."}, {"role": "user", "content": "x"}]
        assert model.prompt(own).startswith("<system>Own.<user>a")
        assert model.generate("x", num_predict=3).seed == 5


def test_a_packaged_draft_changes_no_token(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_drafting(monkeypatch)
    draft = write_model(tmp_path / "draft", seed=1, num_hidden_layers=1)
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text(f"FROM {folder}\nDRAFT {draft}\n")
    modelkit.create(modelfile, name="pair", quantize_draft="q4", home=tmp_path)
    with modelkit.load("pair", home=tmp_path) as pair, modelkit.load(folder) as alone:
        for parameters in ({"temperature": 0}, {"seed": 9, "repeat_penalty": 1.2}):
            got = pair.generate("Once", raw=True, num_predict=120, **parameters)
            assert got.ids == alone.generate("Once", raw=True, num_predict=120, **parameters).ids
            assert got.usage.drafted_tokens > 0


def test_a_file_of_weights_is_what_from_takes_it_for(folder: Path, tmp_path: Path) -> None:
    with modelkit.load(folder / "model.safetensors") as one, modelkit.load(folder) as whole:
        assert np.array_equal(one.logits([1, 2]), whole.logits([1, 2]))
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(UnsupportedSource, match="Python pickles"):
        modelkit.load(tmp_path / "pytorch_model.bin")


def test_an_unknown_name_offers_close_ones(tmp_path: Path, folder: Path) -> None:
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text(f"FROM {folder}\n")
    modelkit.create(modelfile, name="island", home=tmp_path)
    with pytest.raises(ModelNotFound, match="island"):
        modelkit.load("islnd", home=tmp_path)


def test_a_model_that_cannot_run_is_a_load_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="hidden_act"):
        modelkit.load(write_model(tmp_path / "odd", hidden_act="snake"))


def test_a_second_turn_reads_only_what_is_new(model: modelkit.Model) -> None:
    talk = [{"role": "user", "content": "A question of some length, to be answered."}]
    first = model.chat(talk, temperature=0, num_predict=8)
    talk += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And now?"}]
    second = model.chat(talk, temperature=0, num_predict=8)
    assert second.usage.cached_tokens >= first.usage.prompt_tokens - len("<assistant>")
    fresh = model.generate(model.prompt(talk), raw=True, temperature=0, num_predict=8)
    assert second.ids == fresh.ids


def test_without_cache_memory_nothing_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_CACHE_MEMORY", "0")
    with modelkit.load(folder) as model:
        assert all(model.generate("Once", raw=True, num_predict=3).usage.cached_tokens == 0 for _ in range(2))
    monkeypatch.setenv("MODELKIT_CACHE_MEMORY", "lots")
    with pytest.raises(modelkit.errors.ModelkitError, match="MODELKIT_CACHE_MEMORY"):
        modelkit.load(folder)


def test_log_probabilities_come_when_asked_for(model: modelkit.Model) -> None:
    plain = model.generate("Once", raw=True, temperature=0, num_predict=6)
    told = model.generate("Once", raw=True, temperature=0, num_predict=6, top_logprobs=2)
    assert plain.logprobs == ()
    assert tuple(one.id for one in told.logprobs) == told.ids == plain.ids
    assert all(len(one.top) == 2 and one.logprob <= 0 for one in told.logprobs)
    with pytest.raises(RequestError, match="top_logprobs"):
        model.chat([{"role": "user", "content": "Hi"}], top_logprobs=21)


def test_num_parallel_is_how_many_answers_are_written_at_once(tmp_path: Path) -> None:
    with modelkit.load(write_model(tmp_path / "model"), num_parallel=3) as model:
        assert model.activity.places == 3
        streams = [model.generate("x", stream=True, num_predict=400) for _ in range(5)]
        for stream in streams[:3]:
            next(iter(stream))
        assert model.activity.running <= 3
        for stream in streams:
            stream.close()
