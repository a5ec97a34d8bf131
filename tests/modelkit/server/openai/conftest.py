"""One server with one tiny model, for OpenAI's own client."""

import asyncio
from collections.abc import Iterator

import openai
import pytest

import modelkit
from modelkit.errors import ModelNotFound
from modelkit.model import Model
from modelkit.server.app import make_app
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.served import Quiet, listening
from tests.support.tiny import TEMPLATE, write_model


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    home = tmp_path_factory.mktemp("home")
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE, max_position_embeddings=1024)

    def opened(name: str) -> Model:
        if name != "tiny":
            raise ModelNotFound(f"there is no model {name!r}")
        return modelkit.load(folder, home=home)

    pool = Pool(opened)
    yield Serving(pool, Settings.from_environment({"MODELKIT_HOME": str(home)}), log=Quiet())
    asyncio.run(pool.close())


@pytest.fixture(scope="module")
def url(serving: Serving) -> Iterator[str]:
    with listening(make_app(serving)) as address:
        yield f"{address}/v1"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        api_key="x", base_url=url, max_retries=0, timeout=60, _strict_response_validation=True
    ) as made:
        yield made
