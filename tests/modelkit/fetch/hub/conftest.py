"""A hub that the commands under test ask, a cache of their own, and no other program's folders."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from modelkit.fetch.hub import transfer
from tests.support.hub import Hub, Repository, running
from tests.support.tiny import TEMPLATE, write_model

CARD = b"---\nlicense: apache-2.0\nlanguage: en\n---\n# Story\n"


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A small model as its repository has it, with what is not needed of it."""
    folder = write_model(tmp_path_factory.mktemp("story"), template=TEMPLATE)
    repository = Repository.of(folder)
    repository.files |= {
        "README.md": CARD,
        "LICENSE": b"Do as you like.\n",
        "consolidated.safetensors": b"the same again",
        "pytorch_model.bin": b"a pickle",
        "original/params.json": b"{}",
        "modeling_story.py": b"import os",
        "onnx/model.onnx": b"graph",
    }
    return repository


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HF_HOME",
        "HF_ENDPOINT",
        "LLAMA_CACHE",
        "XDG_CACHE_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(transfer, "_WAIT_S", 0.001)
    return tmp_path / "hub"


@pytest.fixture
def hub(story: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running(Hub({"Amy/Story": Repository(dict(story.files))})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub
