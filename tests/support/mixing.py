"""Random runs on several ranks (`mixed`): family, form of the weights, cut, options of the engine, traffic
and drafts come from a seed. `python -m tests.support.mixing FIRST COUNT [SIZE]` tries many.

Stages have to say what one process says, to the bit. Shards have other sums, so that they are held to what
each of their requests says when it comes alone, without guesses and without prefixes.
"""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import eq
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import pytest

from runtime.blocks.types import BLOCK_TYPES
from runtime.cache.layout import LayerSpec, misfits
from runtime.cache.memory import LayerMemory
from runtime.cpu import native
from runtime.device import device
from runtime.engine.adapters import AdapterSource
from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.engine.request import Request
from runtime.engine.stream import Stream
from runtime.errors import CannotCut
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.loading.plan import device_for_cutting
from runtime.models import describe
from runtime.nn.adapters.low_rank import LowRanks
from runtime.ranks.follow import Follower
from runtime.ranks.group import Group
from runtime.ranks.lead import Leading
from runtime.ranks.load import Assignment, load_share
from runtime.ranks.parts import parts_of
from runtime.ranks.plan import Host, decide
from runtime.sampling.params import SamplingParams
from runtime.speculate.assistant import layers_read
from runtime.speculate.drafter import Drafter
from runtime.speculate.pair import drafters_for
from tests.support import ranks
from tests.support.assistants import load_assistant, record_of
from tests.support.blocks import random_rows
from tests.support.checkpoints import random_state
from tests.support.drafting import always_drafting
from tests.support.low_ranks import pairs_of
from tests.support.parity import Reference
from tests.support.sharing import FORMS, NAMES
from tests.support.tiny import CONFIG, llama_shapes

ASSISTED = "gemma4 with an assistant"
"""Whose draft reads what two of its target's layers remember."""

READERS = "t5", "umt5", "t5gemma"
"""Whose prompts an encoder reads."""

FAMILIES = (
    *READERS,
    "llama",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "cohere2",
    "gemma4_moe",
    "gemma4_text",
    "phi3_window",
    "qwen2_moe",
    "gpt_oss",
    "qwen3_next",
    "qwen3_5",
    "nemotron_h",
    "lfm2_moe",
    "deepseek_v3",
    "kimi_linear",
    "llama4",
    "falcon_h1",
    "iquest_loop",
    "falcon_mamba",
    "rwkv7",
    "zamba2",
    "ouro",
    "dory",
    ASSISTED,
)
NEAR = 0.02
"""Of a log-probability: what sums in another order may change, in matrices of few bits."""
NEAR_IN_CODES = 0.06
"""With keys and values in codes besides, which round to another code now and then."""
K_QUANTS = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs", "q8_0")
SMALL = {
    **CONFIG,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True)
class Case:
    """What a seed stands for."""

    family: str
    form: str
    """floats, packed, blocks (GGUF's Q8_0), or k: K-quants of many kinds, of a llama."""
    cut: str
    """stages, shards, or pairs."""
    options: dict[str, Any]
    guesses: bool
    adapted: bool

    @classmethod
    def of(cls, seed: int, size: int) -> "Case":
        dice = random.Random(seed)
        family, form = dice.choice(FAMILIES), dice.choice(("floats", "packed", "blocks", "k"))
        options: dict[str, Any] = {
            "context_length": 128,
            "budget_tokens": dice.choice((5, 16, 64)),
            "max_rows": dice.choice((1, 3, 4)),
            "prefix_bytes": dice.choice((None, 1 << 20)),
            "kv_format": dice.choice((None, None, "q8")),
            "mark_spacing": 1,
        }
        cut = dice.choice(("stages", "shards", "pairs") if size == 4 else ("stages", "shards"))
        guesses, adapted = dice.random() < 0.7, dice.random() < 0.3
        if form == "k":
            family = "llama"
        elif family == ASSISTED:
            form, guesses, adapted = "floats", True, False
        return cls(family, form, cut, options, guesses, adapted)

    def shards(self, size: int) -> int:
        return {"stages": 1, "shards": size, "pairs": 2}[self.cut]


def weights_of(case: Case, seed: int) -> tuple[dict[str, mx.array], Mapping[str, Any]]:
    if case.family == ASSISTED:
        config, tensors = record_of("target")
        state = random_state({name: shape for name, (_, shape) in tensors.items()})
        return {name: mx.array(value) for name, value in state.items()}, config
    if case.form != "k":
        record = Reference(case.family).record
        weights = {name: mx.array(value) for name, value in random_state(record["tensors"]).items()}
        return (
            (weights, record["config"])
            if case.form == "floats"
            else FORMS[case.form](weights, record["config"])
        )
    dice = random.Random(seed)
    config: dict[str, Any] = {**SMALL, "quantization": {}}
    shapes = llama_shapes(SMALL)
    weights = {name: mx.array(value) for name, value in random_state(shapes).items()}
    for number, (name, shape) in enumerate(shapes.items()):
        if len(shape) == 2:
            kind = BLOCK_TYPES[dice.choice(K_QUANTS)]
            weights[name] = mx.array(random_rows(kind, *shape, seed=number, size=0.002))
            config["quantization"][name.removesuffix(".weight")] = {"mode": "gguf", "type": kind.name}
    return weights, config


def traffic(seed: int, case: Case) -> list[tuple[Request, bool]]:
    """Requests, of which some leave early. The first half come together, the others after them."""
    dice = random.Random(seed + 1000)
    base = [dice.randrange(3, 60) for _ in range(dice.choice((6, 20, 40)))]
    made: list[tuple[Request, bool]] = []
    for _ in range(6):
        ids = dice.choice((base, base[: len(base) // 2 + 1], base[:5] * 5, [*base, *base[:7]]))
        ids = [
            *ids[: dice.randrange(3, len(ids) + 1)],
            *[dice.randrange(3, 60) for _ in range(dice.randrange(3))],
        ]
        warm = SamplingParams(
            temperature=0.9, top_k=30, repeat_penalty=dice.choice((1.0, 1.1)), seed=dice.randrange(9)
        )
        sampling = dice.choice((SamplingParams(temperature=0), warm))
        some = dice.choice(((), (("one", 1.0),), (("two", 0.5), ("one", -0.4)))) if case.adapted else ()
        marks = tuple(sorted({dice.randrange(1, len(ids)) for _ in range(2)})) if dice.random() < 0.5 else ()
        more: dict[str, Any] = {"marks": marks, "adapters": some, "top_logprobs": 2}
        read = {"ids": (0,), "source": tuple(ids)} if case.family in READERS else {"ids": tuple(ids)}
        asked = Request(max_tokens=dice.randrange(2, 24), sampling=sampling, **read, **more)
        made.append((asked, dice.random() < 0.2))
    return made


def _ids(stream: Stream, *, leaves: bool) -> Any:
    if leaves:
        with stream:
            next(iter(stream), None)
        return None
    pieces = list(stream)
    assert stream.finish is not None
    logprobs = [one.logprob for piece in pieces for one in piece.logprobs]
    return [[token for piece in pieces for token in piece.ids], logprobs, stream.finish.reason]


def _play(engine: Engine, asked: list[tuple[Request, bool]], *, together: bool) -> list[Any]:
    """What is said to those that stay. together: three at a time, and those that leave do so first."""
    said: list[Any] = []
    for part in (asked[:3], asked[3:]):
        if together:
            streams = [(engine.submit(one), leaves) for one, leaves in part]
            for stream, leaves in streams:
                if leaves:
                    _ids(stream, leaves=True)
            said += [_ids(stream, leaves=False) for stream, leaves in streams if not leaves]
        else:
            said += [_ids(engine.submit(one), leaves=False) for one, leaves in part if not leaves]
    return said


def mixed(group: Group, seed: int, changes: Mapping[str, Any]) -> Any:
    """Rank 0: the case in words, and what differs; "" for nothing, or why it was refused. changes: of what
    the seed stands for.
    """
    case = replace(Case.of(seed, group.size), **changes)
    weights, config = weights_of(case, seed)
    on = device()
    with TemporaryDirectory() as place:
        folder = Path(place)
        file = folder / "model.safetensors"
        mx.save_safetensors(str(file), weights)
        headers: Mapping[str, Any] = {key: (NAMES[one.dtype], one.shape) for key, one in weights.items()}
        whole = partial(load_model, config, [file], on=on)
        adapters: dict[str, LowRanks] = {}
        if case.adapted:
            network = whole().network
            adapters = {
                name: LowRanks(pairs_of(network, number, dora=number == 2))
                for name, number in (("one", 1), ("two", 2))
            }
        for one in adapters.values():
            for pair in one.pairs.values():  # engines read them on threads of their own
                mx.eval([part for part in (pair.magnitude, pair.bias) if part is not None])
        try:
            parts = parts_of(config, headers, shards=case.shards(group.size), on=on)
            plan = decide(parts, [Host("")] * group.size)
        except CannotCut as error:
            return [str(case), f"refused: {error}"]
        draft = partial(load_assistant, "plain", folder) if case.family == ASSISTED else None
        copied: frozenset[int] = frozenset()
        if draft is not None and group.rank == 0:
            copied = layers_read(draft().described, describe(config))
        if draft is not None and plan.shards > 1:
            try:
                load_share(
                    config,
                    [file],
                    Assignment(plan, group, copied=layers_read(draft().described, describe(config))),
                    on=on,
                )
            except CannotCut as error:
                return [str(case), f"refused: {error}"]
        assigned = Assignment(plan, group, copied=copied)
        share = partial(load_share, config, [file], assigned, on=on, adapters=adapters)
        if group.rank:
            for _ in range(2 if case.cut != "stages" else 1):
                Follower(group, share()).run()
            return None
        if draft is None and seed % 2 and case.family == "llama":
            draft = whole  # which is right, mostly
        alike = partial(
            load_model, config, [file], on=device_for_cutting(on, config) if plan.shards > 1 else on
        )
        run = Run(case, traffic(seed, case), share, alike, draft, adapters, group)
        return [str(case), run.difference(describe(config).layout)]


@dataclass(frozen=True)
class Run:
    """Of a case, on rank 0."""

    case: Case
    asked: list[tuple[Request, bool]]
    share: Callable[[], LoadedModel]
    whole: Callable[[], LoadedModel]
    """Held as ranks hold it, in one process."""
    draft: Callable[[], LoadedModel] | None
    adapters: dict[str, LowRanks]
    group: Group

    def difference(self, layout: Sequence[LayerSpec]) -> str:
        """In words; "" for none."""
        options = Options(**self.case.options)
        if misfits(layout, options.kv_format):
            options = replace(options, kv_format=None)
        plain = replace(options, prefix_bytes=None, max_rows=1)
        with pytest.MonkeyPatch.context() as patched:
            always_drafting(patched)
            said = self._said(self.share, options, together=True, crew=True)
        alone = self._said(self.whole, plain, together=False)
        expected, bar = alone, NEAR if options.kv_format is None else NEAR_IN_CODES
        if self.case.cut != "stages":
            expected = self._said(self.share, plain, together=False, crew=True)
            pairs = zip(expected, alone, strict=True)
            far = [(one, own) for one, own in pairs if not _is_near(one, own, bar)]
            if far:
                return f"far from one process: {far[0]!s:.300}"
        assert len(said) == len(expected) > 0
        # Without kernels a row's bits depend on who shares its step (docs/determinism.md).
        same = eq if native.kernels is not None else partial(_is_near, bar=bar)
        pairs = [(mine[0], own[0]) for mine, own in zip(said, expected, strict=True) if not same(mine, own)]
        return "" if not pairs else f"{pairs[0][0]} for {pairs[0][1]}"

    def _said(
        self, load: Callable[[], LoadedModel], options: Options, *, together: bool, crew: bool = False
    ) -> list[Any]:
        sources = [
            AdapterSource(name, f"sha256:{name}", lambda name=name: self.adapters[name])
            for name in self.adapters
        ]
        drafters = self._drafters if together else _none
        engine = Engine(load, options, drafters, None, sources, leading=Leading(self.group) if crew else None)
        try:
            return _play(engine, self.asked, together=together)
        finally:
            engine.close()

    def _drafters(self, target: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        if not self.case.guesses:
            return {}
        return drafters_for(target, self.draft() if self.draft else None, memory)


def _none(_target: LoadedModel, _memory: LayerMemory) -> dict[str, Drafter]:
    return {}


def _is_near(mine: Any, own: Any, bar: float) -> bool:
    """Of the first token: later ones stand behind others, perhaps."""
    if mine[0][:1] != own[0][:1] or not mine[1]:
        return True
    return abs(mine[1][0] - own[1][0]) < bar


def main(first: int, count: int, size: int) -> None:
    with TemporaryDirectory() as folder:
        crew = ranks.Standing(Path(folder), size)
        for seed in range(first, first + count):
            try:
                case, wrong = crew.do(Path(folder), _MODULE, mixed.__name__, seed, {}, within_s=120)[0]
                print(seed, wrong or "same", case if wrong else "", flush=True)
            except AssertionError as error:
                print(seed, Case.of(seed, size), "FAILED", error, flush=True)
                crew = ranks.Standing(Path(folder), size)
        crew.close()


_MODULE = "tests.support.mixing"

if __name__ == "__main__":
    main(*map(int, [*sys.argv[1:], "2"][:3]))
