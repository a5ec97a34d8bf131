"""A server with a store of one package, for Ollama's own client. A module that needs another has its own."""

from collections.abc import Iterator
from pathlib import Path

import ollama
import pytest

import modelkit
from modelkit.server.models.model_source import StoredModels
from modelkit.settings import Settings
from tests.support.served import served
from tests.support.tiny import TEMPLATE, write_model


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    write_model(folder / "model", template=TEMPLATE)
    lines = "FROM ./model", "SYSTEM Be brief.", "PARAMETER top_k 7", "PARAMETER stop </s>"
    (folder / "Modelfile").write_text("\n".join(lines))
    modelkit.create(folder / "Modelfile", name="amy/story:q4", home=folder / "home")
    return folder / "home"


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    with served(StoredModels(Settings(home)), home) as url:
        yield url


@pytest.fixture
def client(ollamas: ollama.Client) -> ollama.Client:
    return ollamas
