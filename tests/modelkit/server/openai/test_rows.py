"""Prompts that are given back with log-probabilities."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from modelkit.errors import RequestError
from modelkit.server.faults import Refused
from modelkit.server.fields import Fields
from modelkit.server.openai.completion_request import read_completion
from modelkit.server.openai.completion_rows import Rows, likeliest
from modelkit.tokenizer import load_tokenizer

PIECES = ["<unk>", "<s>", "<|end|>", "▁", "▁▁", "▁▁▁", "a", "▁a", "\n", "<0xE2>", "<0x61>", "<|user|>"]
MERGES = [("▁", "▁"), ("▁▁", "▁"), ("▁", "a")]


def rows(prompt: str | list[int]) -> Rows:
    return Rows(read_completion(Fields({"model": "m", "prompt": prompt, "echo": True, "logprobs": 1}), 8))


@pytest.fixture(params=[True, False], ids=["BOS", "no BOS"])
def sentencepiece(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A model whose tokenizer has texts begin with a blank, as Llama 2's has."""
    vocabulary = {piece: place for place, piece in enumerate(PIECES)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    stages = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(stages)
    made.add_special_tokens(["<s>", "<|end|>", AddedToken("<|user|>", rstrip=True)])
    made.save(str(tmp_path / "tokenizer.json"))
    bos = str(request.param).lower()
    config = f'{{"bos_token": "<s>", "eos_token": "<|end|>", "add_bos_token": {bos}}}'
    (tmp_path / "tokenizer_config.json").write_text(config)
    tokenizer = load_tokenizer({one.name: one for one in tmp_path.iterdir()})
    return SimpleNamespace(
        name="m",
        start_id=None,
        encode=lambda text, add_special=True: tokenizer.encode(text, add_special=add_special),
        decode=lambda ids, skip_special=True: tokenizer.decode(ids, skip_special=skip_special),
        token_bytes=tokenizer.bytes_of,
        logits=lambda ids: np.zeros((len(ids), len(PIECES)), np.float32),
        generate=lambda *_, **__: None,
    )


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("a a", ["a", " a"]),
        ("  a", ["  ", "a"]),
        ("   a", [" ", "  ", "a"]),
        (" \na", [" ", "\n", "a"]),
        ("\na", ["", "\n", "a"]),
        ("<|end|>", ["<|end|>"]),
        ("a<|end|>\na", ["a", "<|end|>", "", "\n", "a"]),
        ("a<|end|> a", ["a", "<|end|>", " ", "a"]),
        ("a<|end|>   \na<|end|>\n", ["a", "<|end|>", "  ", " ", "\n", "a", "<|end|>", "", "\n"]),
        ("<|end|>  <|end|>a", ["<|end|>", "  ", "<|end|>", "a"]),
        ("<|end|>a<|user|>\n a<|user|>  \n", ["<|end|>", "a", "<|user|>\n", " a", "<|user|>  \n"]),
        ([7, 2, 7], ["a", "<|end|>", " a"]),
        ([1, 7, 2], ["<s>", " a", "<|end|>"]),
        ([3, 8, 6], ["", "\n", "a"]),
    ],
)
def test_each_token_of_a_prompt_is_told_where_its_text_begins(
    sentencepiece: Any, prompt: str | list[int], tokens: list[str]
) -> None:
    asked = rows(prompt)
    asked.start(sentencepiece, 0)
    echo = asked.echo(0)
    assert "".join(tokens) == echo.text
    assert echo.lists.tokens == [one.rstrip() if "user" in one else one for one in tokens]
    assert echo.lists.text_offset == [len("".join(tokens[:place])) for place in range(len(tokens))]


def test_ids_that_are_no_text_are_told_each(sentencepiece: Any) -> None:
    ids = [9, 10, 10, 10, 9, 10, 9]
    asked = rows(ids)
    asked.start(sentencepiece, 0)
    assert asked.echo(0).text == "\ufffd" * 7
    assert len(asked.echo(0).lists.tokens) == 7


def start(prompt: str, start_id: int | None = None) -> Any:
    def generate(*_: Any, **__: Any) -> Any:
        raise RequestError("the prompt is empty")

    model = SimpleNamespace(
        name="m", start_id=start_id, encode=lambda text: list(text.encode()), generate=generate
    )
    return rows(prompt).start(cast("Any", model), 0)


def test_what_an_encoder_reads_has_none() -> None:
    with pytest.raises(Refused, match=r"echo with logprobs: m has an encoder") as refused:
        start("ab", start_id=0)
    assert refused.value.fault.param == "echo"


def test_an_empty_one_is_refused_as_without() -> None:
    with pytest.raises(RequestError, match="the prompt is empty"):
        start("")


@pytest.mark.parametrize("count", [0, 1, 3, 20, 60, 90])
def test_the_likeliest_are_those_of_the_whole_order(count: int) -> None:
    row = np.random.default_rng(0).integers(0, 9, 60).astype(np.float32)
    assert likeliest(row, count).tolist() == np.argsort(-row, kind="stable")[:count].tolist()
