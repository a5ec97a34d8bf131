"""Engines of tiny references, and what they answer in ids."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.engine.request import Delta, Finish, Request
from runtime.engine.room import Drafters
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from tests.support.parity import Reference

GREEDY = SamplingParams(temperature=0)


Load = Callable[[Path], LoadedModel]
"""Puts a checkpoint into a folder and reads the model from there."""


def start(
    folder: Path, model: str | Load = "llama", drafters: Drafters | None = None, **options: Any
) -> Engine:
    """Of a reference by its name, or of what is loaded. options: fields of Options; by default steps are so
    short that most prompts take several.
    """
    load = Reference(model).load if isinstance(model, str) else model
    settings: dict[str, Any] = {"context_length": 256, "budget_tokens": 16, "max_rows": 4, **options}
    return Engine(lambda: load(folder), Options(**settings), drafters)


def prompt(number: int, length: int) -> tuple[int, ...]:
    """Ids of the vocabulary of all references, without its special ones; another number, another prompt."""
    return tuple((number * 7 + place * place + 3) % 150 + 3 for place in range(length))


def ids_of(stream: Iterable[Delta]) -> list[int]:
    """All that is left of a stream."""
    return [token for delta in stream for token in delta.ids]


def answer(engine: Engine, request: Request) -> list[int]:
    return ids_of(engine.submit(request))


def answers(engine: Engine, requests: Sequence[Request]) -> list[list[int]]:
    """Of requests that are there together."""
    return [ids_of(stream) for stream in [engine.submit(request) for request in requests]]


def finished(engine: Engine, request: Request) -> tuple[list[int], Finish]:
    """The answer, and how it ended."""
    (ids,), (finish,) = run(engine, [request])
    return ids, finish


def run(
    engine: Engine, requests: Sequence[Request], *, together: bool = True
) -> tuple[list[list[int]], list[Finish]]:
    """Answers, and how they ended, of requests that are there together, or else one after the other."""
    texts, finishes = list[list[int]](), list[Finish]()
    for batch in [requests] if together else [[request] for request in requests]:
        streams = [engine.submit(request) for request in batch]
        texts += [ids_of(stream) for stream in streams]
        finishes += [stream.finish for stream in streams if stream.finish]
    return texts, finishes
