"""What is exchanged for a prompt, by an engine that leads."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx

from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.engine.request import Request
from runtime.ranks.follow import Follower
from runtime.ranks.group import Group
from runtime.ranks.lead import Leading
from runtime.ranks.load import Assignment, load_share
from runtime.ranks.parts import parts_of
from runtime.ranks.plan import Host, decide
from runtime.sampling.params import SamplingParams
from tests.support.checkpoints import random_state
from tests.support.parity import Reference
from tests.support.sharing import NAMES


def answers(group: Group, prompt: int, chunk: int, tokens: int) -> int:
    """In stages. Rank 0: tokens that came. The last one: messages of the stream that it has sent back."""
    return _led(group, 1, prompt, chunk, tokens, lambda do: _sent(group, do))


def sums(group: Group, prompt: int, chunk: int, tokens: int) -> int:
    """In shards: sums that this rank took part in."""
    assert group.ring is not None
    before = group.ring.summed
    _led(group, group.size, prompt, chunk, tokens, lambda do: do())
    return group.ring.summed - before


def _led(group: Group, shards: int, prompt: int, chunk: int, tokens: int, follow: Callable[..., Any]) -> Any:
    """Rank 0: tokens that came; others what `follow` says, given what they do."""
    record = Reference("llama").record
    weights = {key: mx.array(value) for key, value in random_state(record["tensors"]).items()}
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        mx.save_safetensors(str(file), weights)
        headers: Mapping[str, Any] = {key: (NAMES[one.dtype], one.shape) for key, one in weights.items()}
        plan = decide(parts_of(record["config"], headers, shards=shards, on=None), [Host("")] * group.size)
        model = load_share(record["config"], [file], Assignment(plan, group))
        if group.rank:
            return follow(Follower(group, model).run)
        engine = Engine(lambda: model, Options(128, budget_tokens=chunk), leading=Leading(group))
        request = Request(tuple(3 + place % 50 for place in range(prompt)), tokens, SamplingParams())
        try:
            return sum(len(delta.ids) for delta in engine.submit(request))
        finally:
            engine.close()


def _sent(group: Group, do: Any) -> int:
    """How often the stream is handed on meanwhile."""
    sent, send_on = list[Any](), group.send_on
    vars(group)["send_on"] = lambda x: [sent.append(x.shape), send_on(x)][1]
    try:
        do()
    finally:
        del vars(group)["send_on"]
    return len(sent)
