"""How often the last stage answers, of an engine that leads stages."""

from collections.abc import Mapping
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
from runtime.ranks.load import load_share
from runtime.ranks.parts import parts_of
from runtime.ranks.plan import Host, decide
from runtime.sampling.params import SamplingParams
from tests.support.checkpoints import random_state
from tests.support.parity import Reference
from tests.support.sharing import NAMES


def answers(group: Group, prompt: int, chunk: int, tokens: int) -> int:
    """Rank 0: tokens that came. The last one: messages of the stream that it has sent to rank 0."""
    record = Reference("llama").record
    weights = {key: mx.array(value) for key, value in random_state(record["tensors"]).items()}
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        mx.save_safetensors(str(file), weights)
        headers: Mapping[str, Any] = {key: (NAMES[one.dtype], one.shape) for key, one in weights.items()}
        plan = decide(parts_of(record["config"], headers, shards=1, on=None), [Host("")] * group.size)
        model = load_share(record["config"], [file], plan, group)
        if group.rank:
            return _sent(group, lambda: Follower(group, model).run())
        engine = Engine(lambda: model, Options(128, budget_tokens=chunk), crew=Leading(group))
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
