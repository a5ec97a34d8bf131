"""llama.cpp loads what is exported and gives the same greedy text; only where MODELKIT_LLAMA_CPP names it."""

from pathlib import Path

import pytest

import modelkit
from tests.support.llama_cpp_check import VARIABLE, ask, interpreter

ROOT = Path(__file__).resolve().parents[4]
ISLAND = ROOT / "examples" / "island"
STORIES = ROOT.parent / "shared" / "data" / "stories260k"

MODELS = [
    (ISLAND / "target", None, "Pip went to the"),
    (ISLAND / "target", "q4", "One morning Tam"),
    (STORIES, "nvfp4", "Once upon a time"),  # the island's numbers are too small for it
    (ISLAND / "target", "mxfp4", "One morning Tam"),
    (ISLAND / "draft", None, "One windy evening"),
    (STORIES, None, "Once upon a time"),
    (STORIES, None, "The dog was"),
]


@pytest.mark.parametrize(("folder", "quantize", "prompt"), MODELS)
def test_the_greedy_text_is_the_same(folder: Path, quantize: str | None, prompt: str, tmp_path: Path) -> None:
    if interpreter() is None:
        pytest.skip(f"{VARIABLE} names no Python with llama-cpp-python")
    if not folder.exists():
        pytest.skip(f"there is no {folder}")
    recipe = modelkit.Modelfile.parse(f"FROM {folder}")
    modelkit.create(recipe, name="it", quantize=quantize, home=tmp_path)
    modelkit.export_gguf("it", tmp_path / "it.gguf", home=tmp_path)
    theirs = ask(tmp_path / "it.gguf", prompt=prompt, count=60)
    with modelkit.load("it", home=tmp_path) as model:
        ours = model.generate(prompt, raw=True, temperature=0, num_predict=60)
    assert list(ours.ids) == theirs["ids"]
