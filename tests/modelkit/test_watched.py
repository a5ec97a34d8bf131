"""What somebody who looks after several models can see of one, and take from it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import modelkit
from modelkit.errors import ModelClosed, ModelNotFound, RequestError
from modelkit.store import Store
from tests.support.tiny import write_model

PROMPT = "Once upon a time there was an island in the sea. "


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[modelkit.Model]:
    folder = write_model(tmp_path_factory.mktemp("watched") / "model", max_position_embeddings=1 << 14)
    with modelkit.load(folder, cache_memory="64MB") as loaded:
        yield loaded


@pytest.fixture(autouse=True)
def room(model: modelkit.Model) -> None:
    model.limit_prefixes(64 * 10**6)


def read_something(model: modelkit.Model, text: str) -> None:
    model.generate(text + PROMPT, raw=True, num_predict=2, temperature=0)


def test_earlier_prompts_go_when_their_room_is_taken(model: modelkit.Model) -> None:
    for text in "abcdef":
        read_something(model, text)
    kept = model.activity.prefix_bytes
    assert 0 < kept == sum(node.size_bytes for node in model.prefixes())
    assert model.limit_prefixes(kept // 2) == kept // 2
    assert 0 < model.activity.prefix_bytes <= kept // 2 == model.activity.prefix_limit_bytes
    read_something(model, "g")
    assert model.activity.prefix_bytes <= kept // 2
    assert model.limit_prefixes(0) == 0
    assert model.prefixes() == []


def test_what_a_running_answer_stands_on_stays(model: modelkit.Model) -> None:
    read_something(model, "h")
    # So long that it is not over before its first tokens are read here.
    with model.generate(
        "h" + PROMPT + "And", raw=True, num_predict=15000, temperature=0, stream=True
    ) as stream:
        next(stream)
        held = model.limit_prefixes(0)
        assert held > 0
        assert model.activity.running == 1
    assert model.limit_prefixes(0) == 0


def test_a_model_that_keeps_nothing_goes_on_so(tmp_path: Path) -> None:
    with modelkit.load(write_model(tmp_path / "model"), cache_memory=0) as forgetful:
        assert forgetful.limit_prefixes(10**6) == 0
        read_something(forgetful, "")
        assert forgetful.activity.prefix_bytes == 0
        assert forgetful.alive
    assert not forgetful.alive
    with pytest.raises(ModelClosed):
        _ = forgetful.activity


@pytest.mark.parametrize("limit", [-1, 1.5, "1GB", None])
def test_a_limit_is_a_number_of_bytes(model: modelkit.Model, limit: object) -> None:
    with pytest.raises(RequestError, match="limit_bytes is"):
        model.limit_prefixes(limit)  # pyright: ignore[reportArgumentType]


def test_a_package_is_told_by_its_digest(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (tmp_path / "Modelfile").write_text(f"FROM {folder}\n")
    modelkit.create(tmp_path / "Modelfile", name="story", home=tmp_path)
    store = Store(tmp_path)
    digest = store.digest("Story:latest")
    assert digest == store.resolve("story").digest
    with modelkit.load("story", home=tmp_path) as loaded:
        assert loaded.digest == str(digest)
    with pytest.raises(ModelNotFound):
        store.digest("another")
    with modelkit.load(folder) as loaded:
        assert loaded.digest is None


def test_running_requests_take_no_more_than_they_may(tmp_path: Path) -> None:
    with modelkit.load(write_model(tmp_path / "model"), cache_memory=0) as fresh:
        fresh.limit_layers(1000)
        with pytest.raises(RequestError, match="may take 1,000"):
            fresh.generate("A" * 200, raw=True, num_predict=50)
        fresh.limit_layers(8 * fresh.memory.cache_bytes)
        assert fresh.generate("A" * 200, raw=True, num_predict=50).usage.generated_tokens
        assert 1000 < fresh.activity.layer_bytes <= 8 * fresh.memory.cache_bytes


def test_a_model_that_is_being_closed_says_so(tmp_path: Path) -> None:
    """What drafts have taught is written down when the engine has gone and the model is not closed yet."""
    with modelkit.load(write_model(tmp_path / "model")) as fresh:
        fresh._running.engine.close()  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        with pytest.raises(ModelClosed):
            _ = fresh.activity
