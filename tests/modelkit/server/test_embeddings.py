"""Embeddings through the official clients of OpenAI and Ollama, and from the command line."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import ollama
import openai
import pytest
from click.testing import CliRunner

import modelkit
from modelkit.cli.main import cli
from modelkit.model import Model
from modelkit.server.http.own_headers import IGNORED
from tests.support.served import served
from tests.support.tiny import write_model

TEXTS = ["Once upon a time", "rain"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def vectors(folder: Path) -> np.ndarray:
    with modelkit.load(folder) as model:
        return model.embed(TEXTS).vectors


@pytest.fixture(scope="module")
def address(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("home")

    def opened(name: str) -> Model:
        return modelkit.load(folder, home=home)

    with served(opened, home) as url:
        yield url


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_openai(openais: openai.OpenAI, vectors: np.ndarray, encoding: str | None) -> None:
    """Without an encoding the client asks for base64, and decodes it."""
    more = {} if encoding is None else {"encoding_format": encoding}
    said = openais.embeddings.create(model="tiny", input=TEXTS, **more)  # pyright: ignore[reportArgumentType, reportCallIssue]
    found = [one.embedding for one in said.data]
    if encoding == "base64":
        found = [np.frombuffer(base64.b64decode(str(one)), "<f4") for one in found]
    assert np.abs(np.array(found) - vectors).max() < 1e-6
    assert [one.index for one in said.data] == [0, 1]
    assert said.usage.prompt_tokens == said.usage.total_tokens == sum(map(len, TEXTS))


def test_openai_ids_and_dimensions(openais: openai.OpenAI, folder: Path, vectors: np.ndarray) -> None:
    with modelkit.load(folder) as model:
        ids = [model.encode(text) for text in TEXTS]
        short = model.embed(TEXTS, dimensions=7).vectors
    several = openais.embeddings.create(model="tiny", input=ids, dimensions=7)
    assert np.abs(np.array([one.embedding for one in several.data]) - short).max() < 1e-6
    single = openais.embeddings.create(model="tiny", input=ids[1])
    assert np.abs(np.array(single.data[0].embedding) - vectors[1]).max() < 1e-6


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({}, "input"),
        ({"input": ["a", 5]}, r"input\[1\]"),
        ({"input": ["a"] * 2049}, "2048"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 65}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "task": "query"}, "task"),
        ({"input": [99999]}, "99999"),
        ({"input": "a" * 300}, "300"),
    ],
)
def test_openai_refusals(address: str, body: dict[str, object], said: str) -> None:
    response = httpx.post(f"{address}/v1/embeddings", json={"model": "tiny", **body})
    assert response.status_code == 400
    assert re.search(said, response.json()["error"]["message"])


def test_ollama(ollamas: ollama.Client, address: str, vectors: np.ndarray) -> None:
    said = ollamas.embed(model="tiny", input=TEXTS, options={"num_ctx": 8, "temperature": 0}, keep_alive="1m")
    assert np.abs(np.array(said.embeddings) - vectors).max() < 1e-6
    assert said.prompt_eval_count == sum(map(len, TEXTS))
    assert np.array(ollamas.embed(model="tiny", input="rain", dimensions=3).embeddings).shape == (1, 3)
    assert ollamas.embed(model="tiny", input="").embeddings == []
    assert ollamas.embed(model="tiny", input="a" * 300).prompt_eval_count == 256
    with pytest.raises(ollama.ResponseError, match="the input length exceeds the context length") as raised:
        ollamas.embed(model="tiny", input="a" * 300, truncate=False)
    assert raised.value.status_code == 400
    said_again = httpx.post(f"{address}/api/embed", json={"model": "tiny", "input": "a", "keep_alive": ""})
    assert said_again.status_code == 200  # as where text is asked for: nothing is said
    odd = httpx.post(f"{address}/api/embed", json={"model": "tiny", "input": ["a", 5]})
    assert (odd.status_code, "input[1]" in odd.json()["error"]) == (400, True)


def test_ollamas_older_path(ollamas: ollama.Client, address: str, vectors: np.ndarray) -> None:
    """Its vector is not brought to length 1."""
    found = np.array(ollamas.embeddings(model="tiny", prompt="rain").embedding)
    length = np.linalg.norm(found)
    assert length > 1.5
    assert np.abs(found / length - vectors[1]).max() < 1e-6
    body = {"model": "tiny", "prompt": "", "options": {"seed": 1}}
    response = httpx.post(f"{address}/api/embeddings", json=body)
    assert response.json() == {"embedding": []}
    assert response.headers[IGNORED] == "options.seed"


def test_command(folder: Path, vectors: np.ndarray) -> None:
    done = CliRunner().invoke(cli, ["embed", str(folder), *TEXTS])
    found = np.array([json.loads(line) for line in done.stdout.splitlines()])
    assert np.abs(found - vectors).max() < 1e-6
    piped = CliRunner().invoke(cli, ["embed", str(folder), "--json", "--dimensions=4"], "rain\n" + "a" * 300)
    said = json.loads(piped.stdout)
    assert said["pooling"] == "last token, by default"
    assert [len(one["embedding"]) for one in said["embeddings"]] == [4, 4]
    assert [one["dropped_tokens"] for one in said["embeddings"]] == [0, 44]
    assert "1 of the texts was too long" in piped.stderr
    refused = CliRunner().invoke(cli, ["embed", str(folder), "--no-truncate", "a" * 300])
    assert refused.exit_code == 1
