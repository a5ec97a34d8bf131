"""Prompts that are given back with log-probabilities."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from modelkit.errors import RequestError
from modelkit.server.faults import Refused
from modelkit.server.fields import Fields
from modelkit.server.openai.completion_request import read_completion
from modelkit.server.openai.completion_rows import Rows


def start(prompt: str, start_id: int | None = None) -> Any:
    body = {"model": "m", "prompt": prompt, "echo": True, "logprobs": 1}

    def generate(*_: Any, **__: Any) -> Any:
        raise RequestError("the prompt is empty")

    model = SimpleNamespace(
        name="m", start_id=start_id, encode=lambda text: list(text.encode()), generate=generate
    )
    return Rows(read_completion(Fields(body), 8)).start(cast("Any", model), 0)


def test_what_an_encoder_reads_has_none() -> None:
    with pytest.raises(Refused, match=r"echo with logprobs: m has an encoder") as refused:
        start("ab", start_id=0)
    assert refused.value.fault.param == "echo"


def test_an_empty_one_is_refused_as_without() -> None:
    with pytest.raises(RequestError, match="the prompt is empty"):
        start("")
