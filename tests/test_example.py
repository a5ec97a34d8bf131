"""The shipped example: what `make demo` does, and that its text is worth reading."""

from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

import modelkit
from runtime.nn.operations import ops

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("island")
    modelkit.create(ROOT / "Modelfile.example", name="island", quantize_draft="q4", home=root)
    modelkit.create(ROOT / "Modelfile.example", name="small", quantize="q8", quantize_draft="q4", home=root)
    return root


def test_the_same_recipe_gives_the_same_package(home: Path, tmp_path: Path) -> None:
    def digest(folder: Path) -> str:
        made = modelkit.create(ROOT / "Modelfile.example", name="again", quantize_draft="q4", home=folder)
        return str(made.digest)

    assert digest(home) == digest(tmp_path)


def test_it_answers_in_sentences_and_ends_by_itself(home: Path) -> None:
    with modelkit.load("island", home=home) as model:
        answer = model.generate("Tell me a story.", temperature=0)
        assert answer.reason == "stop"
        sentences = [
            part for part in answer.text.replace("?", ".").replace("!", ".").split(".") if part.strip()
        ]
        assert len(sentences) >= 3
        assert answer.text[0].isupper() or answer.text[0] == '"'


def test_the_draft_is_often_right_and_changes_nothing(home: Path) -> None:
    with (
        modelkit.load("island", home=home) as model,
        modelkit.load("island", home=home, draft_num_predict=0) as plain,
    ):
        drafted = accepted = 0
        for seed, prompt in enumerate(
            ("Tell me a story.", "Who lives in the lighthouse?", "Tell me about Pip.")
        ):
            fast, slow = (one.generate(prompt, seed=seed) for one in (model, plain))
            assert fast.ids == slow.ids
            drafted += fast.usage.drafted_tokens
            accepted += fast.usage.accepted_tokens
        assert drafted > 0
        assert accepted > 0.4 * drafted


def test_quantized_to_8_bits_it_still_tells_stories(home: Path) -> None:
    with modelkit.load("small", home=home) as model:
        assert model.generate("Tell me a story.", temperature=0).reason == "stop"


def test_it_can_be_trained_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """examples/train.py: every weight has a gradient, and evaluation goes on token by token."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    network: Any = import_module("network")
    tokens = mx.array([[5, 6, 7, 8]])
    with ops.using(ops.table):  # which is what holds again afterwards
        network.settle()
        model = network.build(network.DRAFT)

        def loss(model: Any) -> mx.array:
            return mx.logsumexp(model.logits(network.hidden(model, tokens)), axis=-1).mean()

        _, gradients = nn.value_and_grad(model, loss)(model)
        assert all(mx.any(one).item() for _, one in tree_flatten(gradients))
        assert len(list(network.greedy(model, [5, 6], 3))) <= 3
