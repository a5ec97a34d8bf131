"""Decoding with and without somebody who guesses, in one run.

    python benchmarks/speculate.py                    a made-up pair, whose drafts are perfect or useless
    python benchmarks/speculate.py --island [PROMPT ...]                         the pair in examples/
    python benchmarks/speculate.py --target FOLDER --draft FOLDER [PROMPT ...]

Every engine answers every prompt in turn, round by round, one request at a time. A ratio is that of the
engine's time to that of plain decoding in the same round, so that what else the machine does touches both
alike: the median of the warm rounds, and apart from it the first one, in which depths are learned. The tokens
of all engines must be the same.

"fresh" prompts are answered in new words, "quoting" ones with what stands in them. "useless" drafts cost what
the draft costs and are never right: they must cost next to nothing. "perfect" ones are always right; "bound"
is what they could reach at most, from the costs that were measured on the way: the best of n + 1 tokens for
the cost of a round with n drafts.
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
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import known_text  # noqa: E402
import mlx.core as mx  # noqa: E402
from mlx.utils import tree_map  # noqa: E402

import modelkit  # noqa: E402
from modelkit.chat.message import Message  # noqa: E402
from modelkit.opening import open_model  # noqa: E402
from modelkit.requests.prompt import Prompter  # noqa: E402
from modelkit.settings import Settings  # noqa: E402
from modelkit.source.inventory import Inventory  # noqa: E402
from modelkit.tokenizer import load_tokenizer  # noqa: E402
from runtime import cpu, device  # noqa: E402
from runtime.engine.engine import Engine, Options  # noqa: E402
from runtime.engine.request import Request, Usage  # noqa: E402
from runtime.loaded import LoadedModel  # noqa: E402
from runtime.loading.load import load_model  # noqa: E402
from runtime.sampling.params import SamplingParams  # noqa: E402
from runtime.speculate.draft_model import ModelDrafter  # noqa: E402
from runtime.speculate.drafter import Drafter  # noqa: E402
from runtime.speculate.lessons import from_json  # noqa: E402
from runtime.speculate.ngram import NgramDrafter  # noqa: E402

ISLAND = ROOT / "examples" / "island"
ASKED = ["Tell me a story about a storm.", "What does the baker make?", "Who lives in the lighthouse?"]
TOLD = (
    "One foggy morning Tam was still out on the sea. Marta climbed the white steps and lit the great lamp. "
    "Far away Tam saw the light and turned towards it."
)
SAMPLING = {
    "greedy": SamplingParams(temperature=0),
    "T=0.8": SamplingParams(temperature=0.8, top_k=40, seed=7),
}
Load = Callable[[], LoadedModel]
Drafters = Callable[[LoadedModel], Mapping[str, Drafter]]
Prompts = dict[str, list[tuple[int, ...]]]


@dataclass(frozen=True)
class Field:
    """A target, who guesses for it, and what it is asked."""

    target: Load
    drafters: Mapping[str, Drafters]
    prompts: Prompts


@dataclass
class Contender:
    """An engine, and what it did: seconds, usages and tokens of each round."""

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
        lessons = from_json(self.engine.learned())
        return ", ".join(
            f"{name} {'/'.join(str(depth) for _, depth in sorted(lesson.depth.items()))}"
            for (name, _), lesson in lessons.items()
        )

    @property
    def bound(self) -> float | None:
        """The most that drafts which are always right could win, by the costs that were measured."""
        lessons = from_json(self.engine.learned())
        best = [(depth + 1) / cost for lesson in lessons.values() for depth, cost in lesson.costs.items()]
        return max(best, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--island", action="store_true", help="the pair in examples/island")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12, help="of the made-up target")
    parser.add_argument("--width", type=int, default=512, help="of the made-up target")
    parser.add_argument("--threads", type=int, help="for products on a processor")
    parser.add_argument("--greedy", action="store_true", help="not at T=0.8 too")
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", default=ASKED)
    options = parser.parse_args()
    if options.island:
        options.target, options.draft = ISLAND / "target", ISLAND / "draft"
    if (options.target is None) != (options.draft is None):
        parser.error("--target and --draft come together")
    cpu.bind_blas()
    if options.threads:
        cpu.set_threads(options.threads)
    with tempfile.TemporaryDirectory() as place:
        if options.target is None:
            run = _made_up(Path(place), options.layers, options.width, options.tokens)
        else:
            run = _real(Path(place), options.target, options.draft, options.prompts)
        for kind, prompts in run.prompts.items():
            for name, sampling in list(SAMPLING.items())[: 1 if options.greedy else None]:
                requests = [Request(prompt, options.tokens, replace(sampling)) for prompt in prompts]
                _compete(f"{kind}, {name}", run, requests, options.rounds)


def _compete(title: str, run: Field, requests: list[Request], rounds: int) -> None:
    contenders = {name: _start(run.target, make) for name, make in run.drafters.items()}
    for _ in range(1 + rounds):
        for contender in contenders.values():
            contender.round(requests)
    _print(title, contenders)
    for contender in contenders.values():
        contender.engine.close()


def _made_up(place: Path, layers: int, width: int, tokens: int) -> Field:
    right, wrong = known_text.order(0), known_text.order(1)
    target = known_text.make(place / "target", right, layers=layers, width=width)
    small = {"layers": 2, "width": width // 2}
    perfect = known_text.make(place / "perfect", right, **small)
    useless = known_text.make(place / "useless", wrong, **small)
    starts = (11, 222, 3333)
    nonsense = known_text.walk(wrong, 5, 50)
    prompts: Prompts = {
        "fresh": [(*nonsense, start) for start in starts],
        "quoting": [(*known_text.walk(right, start, tokens + 10), *nonsense, start) for start in starts],
    }
    return Field(lambda: load_model(*target, on=device.device()), _guessing(perfect, useless), prompts)


def _guessing(perfect: known_text.Files, useless: known_text.Files) -> dict[str, Drafters]:
    def draft(files: known_text.Files) -> Drafters:
        return lambda _: {"draft": ModelDrafter(load_model(*files, on=device.device()))}

    return {
        "plain": lambda _: {},
        "lookup": lambda _: {"lookup": NgramDrafter()},
        "perfect": draft(perfect),
        "useless": draft(useless),
        "useless+lookup": lambda target: {**draft(useless)(target), "lookup": NgramDrafter()},
    }


def _real(home: Path, target: Path, draft: Path, asked: list[str]) -> Field:
    """A pair of folders, checked by create; the draft as it is, in four bits, and with random weights."""
    recipe = home / "Modelfile"
    recipe.write_text(f"FROM {target.absolute()}\nDRAFT {draft.absolute()}\n", encoding="utf-8")
    drafts: dict[str, Load] = {}
    for name, quantize in (("draft", None), ("draft q4", "q4")):
        package = name.replace(" ", "-")
        modelkit.create(recipe, name=package, quantize_draft=quantize, home=home)
        with open_model(package, Settings(home=home)) as opened:
            assert opened.draft is not None
            own, drafts[name] = _loader(opened.inventory), _loader(opened.draft)
            tokenizer = load_tokenizer(opened.inventory.files)
            prompter = Prompter(tokenizer, opened.ready.template, opened.metadata)
    prompts = {
        "fresh": [_ids(prompter, [Message("user", one)]) for one in asked],
        "quoting": [
            _ids(prompter, [Message("user", one), Message("assistant", TOLD), Message("user", one)])
            for one in asked
        ],
    }

    def guessing(load: Load) -> Drafters:
        return lambda model: {"draft": ModelDrafter(load(), vocab_size=model.vocab_size)}

    field: dict[str, Drafters] = {"plain": lambda _: {}, "lookup": lambda _: {"lookup": NgramDrafter()}}
    field |= {name: guessing(load) for name, load in drafts.items()}
    field["draft+lookup"] = lambda model: {**guessing(drafts["draft"])(model), "lookup": NgramDrafter()}
    field["useless"] = guessing(lambda: _scrambled(drafts["draft"]()))
    return Field(own, field, prompts)  # pyright: ignore[reportPossiblyUnbound] -- the loop runs twice


def _ids(prompter: Prompter, messages: list[Message]) -> tuple[int, ...]:
    if prompter.template is None:
        return tuple(prompter.raw("\n".join(str(message.content) for message in messages)).ids)
    return tuple(prompter.chat(messages, None, None).ids)


def _loader(inventory: Inventory) -> Load:
    shards = [shard.path for shard in inventory.weights]
    return lambda: load_model(inventory.config, shards, on=device.device())


def _scrambled(model: LoadedModel) -> LoadedModel:
    """The same modules with random weights."""
    noise = mx.random.key(0)
    network = model.network
    network.update(
        tree_map(lambda w: mx.random.normal(w.shape, w.dtype, 0, 0.1, key=noise), network.parameters())
    )
    mx.eval(network.parameters())
    return model


def _start(target: Load, make: Drafters) -> Contender:
    return Contender(Engine(target, Options(context_length=4096), lambda model, _: make(model)))


def _print(title: str, contenders: Mapping[str, Contender]) -> None:
    plain = contenders["plain"]
    tokens = sum(map(len, plain.tokens))
    same = all(contender.tokens == plain.tokens for contender in contenders.values())
    print(f"\n{title}: {tokens} tokens a round, the same by all: {'yes' if same else 'NO'}")
    print(
        f"{'':16}{'tokens/s':>9}{'warm':>7}{'cold':>7}{'bound':>7}"
        f"{'per pass':>10}{'depth':>7}{'accepted':>10}  learned depth"
    )
    for name, one in contenders.items():
        ratios = [base / own for base, own in zip(plain.seconds, one.seconds, strict=True)]
        usages = [usage for usages in one.usages[1:] for usage in usages]
        drafted, accepted = sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)
        rounds = sum(u.rounds for u in usages)
        made = sum(u.generated_tokens - 1 for u in usages)
        bound = one.bound if name == "perfect" else None
        print(
            f"{name:16}{tokens / statistics.median(one.seconds[1:]):>9.1f}"
            f"{statistics.median(ratios[1:]):>7.2f}{ratios[0]:>7.2f}{f'{bound:.2f}' if bound else '':>7}"
            f"{made / rounds:>10.2f}{drafted / rounds:>7.2f}"
            f"{f'{accepted / drafted:.0%}' if drafted else '-':>10}  {one.depths or '-'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
