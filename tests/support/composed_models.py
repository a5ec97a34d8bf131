"""Models, drafters and adapters of random compositions (`composing`)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from runtime.cache.memory import LayerMemory
from runtime.device import device
from runtime.engine.adapters import AdapterSource
from runtime.errors import WeightMismatch
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.nn.adapters.low_rank import LowRanks
from runtime.speculate.drafter import Drafter, Proposal, Rows
from runtime.speculate.forced_tokens import ForcedDrafter
from runtime.speculate.ngram import NgramDrafter
from runtime.speculate.pair import drafters_for, pair_problem
from runtime.trunks.taps import taps_of
from tests.support.assistants import load_assistant
from tests.support.checkpoints import random_state
from tests.support.composed_cases import Case, record
from tests.support.dflash import block_config, block_shapes
from tests.support.drafting import Idle
from tests.support.low_ranks import pairs_of
from tests.support.sharing import FORMS

NAN = float("nan")


def load(case: Case, folder: Path, *, sound: bool = False) -> LoadedModel:
    """sound: all of it is numbers, whatever the case says."""
    if case.family.startswith("assisted"):
        model = load_assistant("target", folder)
    else:
        model = _of(case.family, case.form)
    if "word" in case.unsound and not sound:
        for module in model.network.modules():
            if isinstance(module, nn.Embedding) and module is not getattr(model.network, "tied_table", None):
                word = (mx.arange(module.weight.shape[0]) == case.jobs[0].request.ids[-1])[:, None]
                if module.weight.dtype in (mx.float32, mx.bfloat16):
                    module.weight = mx.where(word, mx.array(NAN, module.weight.dtype), module.weight)
                    mx.eval(module.weight)
    return model


def _of(family: str, form: str) -> LoadedModel:
    config, tensors = record(family)
    weights = {name: mx.array(value) for name, value in random_state(tensors).items()}
    on = None if form == "floats" else device()
    if form == "half":
        weights = {
            name: one.astype(mx.bfloat16) if one.dtype == mx.float32 else one for name, one in weights.items()
        }
    elif form != "floats":
        weights, config = FORMS[form](weights, config)
    try:
        return load_model(config, weights, on=on, with_head=family.startswith("head"))
    except WeightMismatch:  # this form is not for all families
        return _of(family, "floats")


def _block_draft(target: LoadedModel) -> LoadedModel | None:
    trunk = taps_of(target.network)
    if trunk is None:
        return None
    config = block_config(
        num_target_layers=trunk.depth,
        hidden_size=target.described.hidden_size,
        vocab_size=target.vocab_size,
        mask_token_id=target.vocab_size - 1,
        target_layer_ids=sorted({0, trunk.depth // 2, trunk.depth - 1}),
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=9,
    )
    weights = {name: mx.array(value) for name, value in random_state(block_shapes(config)).items()}
    return load_model(config, weights)


class Adversary(Idle):
    """Guesses what it likes, of any number."""

    def __init__(self, vocab: int) -> None:
        self.rng, self.vocab = np.random.default_rng(0), vocab

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        tokens = mx.array(self.rng.integers(0, self.vocab, (len(rows), depth)), dtype=mx.int32)
        return Proposal(tokens, tuple(self.rng.integers(0, depth + 1, len(rows)).tolist()))


class Knowing(Idle):
    """Knows the answers, mostly."""

    def __init__(self, texts: Sequence[Sequence[int]]) -> None:
        self.texts, self.rng = texts, np.random.default_rng(1)

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        guesses = [[*_rest(self.texts, ids), *[3] * depth][:depth] for ids in rows.ids]
        for guess in guesses:
            if self.rng.random() < 0.4:
                guess[int(self.rng.integers(depth))] = 2
        counts = self.rng.integers(0, depth + 1, len(rows)).tolist()
        return Proposal(mx.array(guesses, dtype=mx.int32), tuple(counts))


def _rest(texts: Sequence[Sequence[int]], ids: Sequence[int]) -> Sequence[int]:
    return next((one[len(ids) :] for one in texts if list(one[: len(ids)]) == list(ids)), [])


def _helped(drafter: Any, texts: Sequence[Sequence[int]]) -> Drafter:
    """Its guesses are put right now and then, as random weights seldom guess anything. Not for one that has
    read what it proposed.
    """
    own, rng = drafter.propose, np.random.default_rng(2)

    def propose(rows: Rows, depth: int) -> Proposal | None:
        proposal = own(rows, depth)
        if proposal is None or proposal.odds:
            return proposal
        tokens: Any = proposal.tokens.tolist()
        for guess, ids in zip(tokens, rows.ids, strict=True):
            right = _rest(texts, ids)[: int(rng.integers(depth + 1))]
            guess[: len(right)] = right
        return replace(proposal, tokens=mx.array(tokens, dtype=mx.int32))

    drafter.propose = propose
    return drafter


def make_drafters(
    case: Case, texts: Sequence[Sequence[int]], folder: Path, target: LoadedModel, memory: LayerMemory
) -> dict[str, Drafter]:
    made: dict[str, Drafter] = {}
    by_name: dict[str, Callable[[], Drafter]] = {
        "adversary": lambda: Adversary(target.vocab_size),
        "knowing": lambda: Knowing(texts),
        "lookup": lambda: NgramDrafter(shortest=1),
        "grammar": ForcedDrafter,
    }
    for name in case.drafters:
        if name in by_name:
            made[name] = by_name[name]()
            continue
        draft = _draft(case, name, folder, target)
        if draft is None and name != "own":
            continue
        if draft is not None and pair_problem(draft.described, target.described) is not None:
            continue
        drafter = drafters_for(target, draft, memory).get("head" if draft is None else "draft")
        if drafter is not None:
            made[name] = _helped(drafter, texts) if name in ("own", "block") else drafter
    return made


def _draft(case: Case, name: str, folder: Path, target: LoadedModel) -> LoadedModel | None:
    kind, _, which = case.family.rpartition(" ")
    if name == "own":
        return load_assistant(which, folder) if kind == "assisted" else None
    if name == "block":
        return _block_draft(target)
    if name == case.family:
        return load(case, folder, sound=True)
    return _of(name, "floats")


def make_adapters(case: Case, folder: Path) -> list[AdapterSource]:
    if not any(job.request.adapters for job in case.jobs):
        return []
    network = load(case, folder, sound=True).network
    pairs = {name: pairs_of(network, number, dora=number == 2) for number, name in ((1, "one"), (2, "two"))}
    pairs["bad"] = {key: replace(pair, up=pair.up * NAN) for key, pair in pairs_of(network, 1, False).items()}
    for pair in (
        pair for its in pairs.values() for pair in its.values()
    ):  # engines have threads of their own
        mx.eval([one for one in (pair.down, pair.up, pair.magnitude, pair.bias) if one is not None])
    return [AdapterSource(name, f"sha256:{name}", partial(LowRanks, its)) for name, its in pairs.items()]
