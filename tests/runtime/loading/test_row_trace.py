"""What is asked of a network for tracing rows; that they arrive is tested with adapters and exports."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from runtime.loading.shapes import parameters
from runtime.models import Described
from tests.support.parity import described


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models whose networks were made since."""
    names: list[str] = []
    network: Callable[[Described], object] = Described.network
    monkeypatch.setattr(Described, "network", lambda self: [names.append(self.name), network(self)][1])
    return names


def test_a_network_is_made_once_for_all_questions_about_a_model(made: list[str]) -> None:
    model = described("olmo2")
    again = replace(model, layout=tuple(model.layout))
    assert again is not model
    assert parameters(model) == parameters(again)
    assert len(made) <= 1


def test_models_are_not_taken_for_each_other() -> None:
    """Whichever was asked about last, and though they differ in one number only."""
    model = described("olmo2")
    wider = replace(model, config=replace(model.config, vocab_size=model.vocab_size + 1))
    for _ in range(2):
        rows = [parameters(one)["model.embed_tokens.weight"][0] for one in (model, wider)]
        assert rows == [model.vocab_size, model.vocab_size + 1]


def test_nobody_changes_what_others_are_told() -> None:
    with pytest.raises(TypeError):
        parameters(described("olmo2"))["lm_head.weight"] = (1, 1)  # pyright: ignore[reportIndexIssue]
