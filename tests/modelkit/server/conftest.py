"""The official clients, each of the server whose `address` a module has."""

from collections.abc import Iterator

import anthropic
import ollama
import openai
import pytest


@pytest.fixture
def openais(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def ollamas(address: str) -> Iterator[ollama.Client]:
    with ollama.Client(host=address) as client:
        yield client


@pytest.fixture
def anthropics(address: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="x", base_url=address, max_retries=0) as client:
        yield client
