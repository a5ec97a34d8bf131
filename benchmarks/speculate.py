"""Decoding with and without somebody who guesses, on one pair of models, in one run.

    python benchmarks/speculate.py [--target FOLDER --draft FOLDER] [--rounds 4] [--tokens 256] [PROMPT ...]

Every engine answers every prompt in turn, round by round, one request at a time; the first round, in which
depths are learned, is shown apart. A ratio is the median over rounds of that round's time of plain decoding
over the engine's own, so that what else the machine does touches both alike. The tokens of all engines must
be the same. "useless" is a draft of the same shape with random weights: it must cost next to nothing.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import mlx.core as mx  # noqa: E402
from mlx.utils import tree_map  # noqa: E402

import modelkit  # noqa: E402
from modelkit.opening import open_model  # noqa: E402
from modelkit.settings import Settings  # noqa: E402
from modelkit.source.inventory import Inventory  # noqa: E402
from modelkit.tokenizer import load_tokenizer  # noqa: E402
from runtime import device  # noqa: E402
from runtime.engine.engine import Engine, Options  # noqa: E402
from runtime.engine.request import Request, Usage  # noqa: E402
from runtime.loaded import LoadedModel, load_model  # noqa: E402
from runtime.sampling.params import SamplingParams  # noqa: E402
from runtime.speculate.draft_model import ModelDrafter  # noqa: E402
from runtime.speculate.drafter import Drafter  # noqa: E402
from runtime.speculate.ngram import NgramDrafter  # noqa: E402

PROMPTS = ["Once upon a time", "One day, a little girl named Lily", "There was a big"]
SAMPLING = {
    "greedy": SamplingParams(temperature=0),
    "T=0.8": SamplingParams(temperature=0.8, top_k=40, seed=7),
}
Drafters = Callable[[LoadedModel], Mapping[str, Drafter]]


@dataclass
class Contender:
    """An engine, and what it did: seconds, usage and tokens of each round."""

    engine: Engine
    seconds: list[float] = field(default_factory=list[float])
    usages: list[list[Usage]] = field(default_factory=list[list[Usage]])
    tokens: list[list[int]] = field(default_factory=list[list[int]])

    def round(self, requests: list[Request]) -> None:
        began, usages, tokens = time.perf_counter(), list[Usage](), list[list[int]]()
        for request in requests:
            stream = self.engine.submit(request)
            tokens.append([token for delta in stream for token in delta.ids])
            assert stream.finish is not None
            usages.append(stream.finish.usage)
        self.seconds.append(time.perf_counter() - began)
        self.usages.append(usages)
        self.tokens = tokens

    @property
    def depths(self) -> str:
        controllers = self.engine._speculation._controllers  # pyright: ignore[reportPrivateUsage] -- nobody else asks
        return ", ".join(f"{name} {controller.depth}" for (name, _), controller in controllers.items()) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=Path, default=ROOT / "examples" / "island" / "target")
    parser.add_argument("--draft", type=Path, default=ROOT / "examples" / "island" / "draft")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", default=PROMPTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        target, drafts = _package(Path(place), options.target, options.draft)
        tokenizer = load_tokenizer(target.files)
        ids = [tuple(tokenizer.encode(prompt, add_special=True)) for prompt in options.prompts]
        for name, sampling in SAMPLING.items():
            asked = [Request(prompt, options.tokens, replace(sampling)) for prompt in ids]
            contenders = {key: _start(target, make) for key, make in _field(drafts).items()}
            for _ in range(1 + options.rounds):
                for contender in contenders.values():
                    contender.round(asked)
            _print(name, contenders)
            for contender in contenders.values():
                contender.engine.close()


def _package(home: Path, target: Path, draft: Path) -> tuple[Inventory, dict[str, Inventory]]:
    """The target, and its draft as it is and in four bits, checked by create."""
    recipe = home / "Modelfile"
    recipe.write_text(f"FROM {target.absolute()}\nDRAFT {draft.absolute()}\n", encoding="utf-8")
    drafts: dict[str, Inventory] = {}
    for name, quantize in (("f32", None), ("q4", "q4")):
        modelkit.create(recipe, name=name, quantize_draft=quantize, home=home)
        with open_model(name, Settings(home=home)) as opened:
            assert opened.draft is not None
            own, drafts[name] = opened.inventory, opened.draft
    return own, drafts  # pyright: ignore[reportPossiblyUnbound] -- the loop runs twice


def _field(drafts: dict[str, Inventory]) -> dict[str, Drafters]:
    def guessing(
        inventory: Inventory, change: Callable[[LoadedModel], LoadedModel] = lambda m: m
    ) -> Drafters:
        return lambda target: {"draft": ModelDrafter(change(_load(inventory)), vocab_size=target.vocab_size)}

    return {
        "plain": lambda _: {},
        "draft": guessing(drafts["f32"]),
        "draft q4": guessing(drafts["q4"]),
        "lookup": lambda _: {"lookup": NgramDrafter()},
        "useless": guessing(drafts["f32"], _scrambled),
    }


def _scrambled(model: LoadedModel) -> LoadedModel:
    """The same modules with random weights."""
    noise = mx.random.key(0)
    network = model.network
    network.update(
        tree_map(lambda w: mx.random.normal(w.shape, w.dtype, 0, 0.1, key=noise), network.parameters())
    )
    mx.eval(network.parameters())
    return model


def _start(target: Inventory, make: Drafters) -> Contender:
    def load() -> LoadedModel:
        device.bind_blas()
        return _load(target)

    engine = Engine(load, Options(context_length=4096), make)
    return Contender(engine)


def _load(inventory: Inventory) -> LoadedModel:
    return load_model(inventory.config, [shard.path for shard in inventory.weights], on=device.device())


def _print(sampling: str, contenders: Mapping[str, Contender]) -> None:
    plain = contenders["plain"]
    tokens = sum(map(len, plain.tokens))
    same = all(contender.tokens == plain.tokens for contender in contenders.values())
    print(f"\n{sampling}: {tokens} tokens a round, the same by all: {'yes' if same else 'NO'}")
    print(f"{'':10}{'tokens/s':>10}{'ratio':>8}{'first':>8}{'drafted':>9}{'accepted':>10}  depth")
    for name, one in contenders.items():
        ratios = [base / own for base, own in zip(plain.seconds, one.seconds, strict=True)]
        usages = [usage for usages in one.usages[1:] for usage in usages]
        drafted, accepted = sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)
        share = f"{100 * accepted / drafted:.0f} %" if drafted else "-"
        print(
            f"{name:10}{tokens / statistics.median(one.seconds[1:]):>10.1f}"
            f"{statistics.median(ratios[1:]):>8.2f}{ratios[0]:>8.2f}{drafted:>9}{share:>10}  {one.depths}"
        )


if __name__ == "__main__":
    main()
