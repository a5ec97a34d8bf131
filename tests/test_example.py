"""The shipped example: what `make demo` does, and that its text is worth reading."""

from pathlib import Path

import pytest

import modelkit

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
