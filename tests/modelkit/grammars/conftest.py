from collections.abc import Iterator

import pytest

import modelkit
from modelkit.model import Model
from tests.support.tiny import TEMPLATE, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE, max_position_embeddings=4096)
    with modelkit.load(folder) as model:
        yield model
