"""The official clients, each of the server whose `address` a module has."""

import inspect
from collections.abc import Iterator

import anthropic
import httpx
import ollama
import openai
import pytest

# What httpx is not told it waits for five seconds, which an answer takes where twenty other processes run.
_WAITED = inspect.signature(httpx.Client).parameters["timeout"].default
_WAITED.connect = _WAITED.read = _WAITED.write = _WAITED.pool = 120.0
assert httpx.Client().timeout == httpx.Timeout(120)


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
