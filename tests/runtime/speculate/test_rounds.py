"""Every kind of draft proposes what transformers' proposes, round by round of a whole answer, so as much of
it is accepted (tests/data/special/rounds.json, made by make_round_references).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.sampling.params import SamplingParams
from runtime.speculate.drafter import Proposal, Rows
from runtime.speculate.pair import drafters_for
from tests.support.assistants import load_assistant
from tests.support.checkpoints import write_checkpoint
from tests.support.drafting import always_drafting
from tests.support.engines import ids_of
from tests.support.half import Half
from tests.support.heads import HeadReference
from tests.support.parity import SPECIAL, Reference

ROUNDS: dict[str, Any] = json.loads((SPECIAL / "rounds.json").read_text(encoding="utf-8"))
DEPTHS = {"deepseek_v3": 1, "glm4_moe": 1, "qwen3_5": 1, "llama": 3, "dflash": 4, "plain": 3, "clustered": 3}
FREE = ("plain", "clustered")
"""Pairs whose target may say any token."""
Pair = tuple[LoadedModel, LoadedModel | None]


def block_pair(folder: Path) -> Pair:
    """With the target's last layer among those that the draft reads."""
    record = ROUNDS["dflash"]
    config = {**record["config"], "architectures": ["MuseGlimmerAssistantModel"]}
    assert 3 in config["target_layer_ids"]
    write_checkpoint(folder / "draft", config, record["tensors"])
    draft = load_model(config, [folder / "draft" / "model.safetensors"])
    return Reference("muse_glimmer").load(folder / "target"), draft


def pair(name: str, folder: Path) -> Pair:
    match name:
        case "llama":
            return Reference("llama").load(folder), Half("llama", "bf16").load(folder / "draft")
        case "dflash":
            return block_pair(folder)
        case "plain" | "clustered":
            return load_assistant("target", folder), load_assistant(name, folder)
        case _:
            return HeadReference(name).load(folder), None


def noting(ask: Callable[[Rows, int], Proposal | None], seen: list[Any]) -> Callable[[Rows, int], Any]:
    def propose(rows: Rows, depth: int) -> Proposal | None:
        found = ask(rows, depth)
        if found is not None:
            drafts: Any = found.tokens.tolist()
            seen.append([len(rows.ids[0]), drafts[0][: found.counts[0]]])
        return found

    return propose


@pytest.mark.parametrize("name", sorted(DEPTHS))
def test_rounds_are_those_of_transformers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always_drafting(monkeypatch, range(DEPTHS[name], DEPTHS[name] + 1))
    told, seen = ROUNDS[name], []

    def drafters(target: LoadedModel, memory: Any) -> dict[str, Any]:
        made: Any = next(iter(drafters_for(target, pair(name, tmp_path)[1], memory).values()))
        made.propose = noting(made.propose, seen)
        return {"it": made}

    engine = Engine(lambda: pair(name, tmp_path)[0], Options(context_length=128), drafters)
    only = () if name in FREE else tuple(set(range(engine.model.vocab_size)) - {*ROUNDS["left"]})
    greedy = SamplingParams(temperature=0, suppressed=only)
    stream = engine.submit(Request(tuple(told["prompt"]), len(told["answer"]), greedy))
    assert ids_of(stream) == told["answer"]
    engine.close()
    # Near the end fewer drafts are of use.
    whole = len(told["prompt"]) + len(told["answer"]) - DEPTHS[name]
    wanted = [one for one in told["rounds"] if one[0] < whole]
    assert len(wanted) > 5
    assert [one for one in seen if one[1] and one[0] < whole] == wanted
