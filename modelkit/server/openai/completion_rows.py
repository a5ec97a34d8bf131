"""Rows of plain completions: their prompts as the model gets them, and given back where that is asked for."""

from typing import Any

import numpy as np

from modelkit.answers.streams import GenerationStream
from modelkit.errors import RequestError
from modelkit.model import Model
from modelkit.server.faults import refused
from modelkit.server.logprobs import Tokens
from modelkit.server.openai.completion_request import CompletionRequest, Prompt
from modelkit.server.openai.completion_writer import Echo, Lists
from modelkit.server.openai.sampling import seeds
from runtime.engine.request import TokenLogprob

MOST_SCORE_BYTES = 1024 * 1024 * 1024


class Rows:
    """One request's."""

    def __init__(self, asked: CompletionRequest) -> None:
        self._asked = asked
        self._echoes: dict[int, Echo] = {}

    def start(self, model: Model, row: int) -> GenerationStream:
        """In a worker thread."""
        asked, number = self._asked, row // self._asked.each
        prompt = asked.prompts[number]
        if asked.suffix is not None and isinstance(prompt, str):
            prompt = _infilled(model, prompt, asked.suffix)
        if asked.echo and number not in self._echoes:
            self._echoes[number] = self._echo(model, asked.prompts[number])
        return model.generate(prompt, raw=True, stream=True, **seeds(asked.options, row))

    def echo(self, number: int) -> Echo:
        """Of a prompt whose first row has been started."""
        return self._echoes[number]

    def _echo(self, model: Model, prompt: Prompt) -> Echo:
        text = prompt if isinstance(prompt, str) else model.decode(prompt, skip_special=False)
        top = self._asked.options.get("top_logprobs")
        if top is None:
            return Echo(text)
        ids = model.encode(prompt) if isinstance(prompt, str) else prompt
        if not ids:
            return Echo(text)  # who answers says what is wrong with it
        if model.start_id is not None:
            why = f"{model.name} has an encoder, which gives no log-probabilities to what it reads"
            raise refused("invalid_request", f"echo with logprobs: {why}", "echo")
        chosen = {name: own for name, own in self._asked.options.items() if name == "adapters"}
        scores = _scores(model, ids, top, chosen)
        # BOS in front of a text, and EOS behind it, are no part of it; the next token is told after BOS.
        plain = model.encode(prompt, add_special=False) if isinstance(prompt, str) else ids
        framed = ids[: len(plain)] != plain
        lists, spell = Lists(), model.token_bytes
        for place, told in enumerate(Tokens(spell, every=True).add(text, scores[framed:][: len(plain)])):
            lists.add(told, told.start, spell, known=place > 0 or framed)
        return Echo(text, lists)


def _infilled(model: Model, before: str, behind: str) -> list[int]:
    try:
        return model.infill(before, behind)
    except RequestError as error:
        raise refused("invalid_request", f"suffix: {error.message}", "suffix") from error


def _scores(model: Model, ids: list[int], top: int, chosen: dict[str, Any]) -> list[TokenLogprob]:
    """What the model gave to each token of a prompt; nothing is known of the first. chosen: adapters, if any
    are.
    """
    vocabulary = model.logits(ids[:1]).shape[-1]
    if len(ids) * vocabulary * 4 > MOST_SCORE_BYTES:
        most = MOST_SCORE_BYTES // (vocabulary * 4)
        said = f"echo with logprobs takes prompts of at most {most:,} tokens of this model; this one has"
        raise refused("invalid_request", f"{said} {len(ids):,}", "echo")
    logits = model.logits(ids, **chosen)
    logits -= logits.max(axis=-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    scores = [TokenLogprob(ids[0], 0.0)]
    for row, token in zip(logits, ids[1:], strict=False):
        best = tuple((int(one), float(row[one])) for one in likeliest(row, top))
        scores.append(TokenLogprob(token, float(row[token]), best))
    return scores


def likeliest(row: np.ndarray, count: int) -> np.ndarray:
    """The ids of the `count` largest of a row [V], best first, and of equal ones the lowest first. To sort
    all of a large vocabulary takes 17 times as long, for each token of a prompt.
    """
    count = min(count, len(row))
    if not count:
        return np.zeros(0, int)
    ids = np.flatnonzero(~(row < np.partition(row, -count)[-count]))
    return ids[np.argsort(-row[ids], kind="stable")][:count]
