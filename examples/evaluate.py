"""How good the two models are: `python examples/evaluate.py` prints loss, acceptance and samples.

All on documents that no training has seen.
"""

import argparse
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import network
from corpus import documents
from tokenizers import Tokenizer
from vocabulary import encode, render

from runtime.trunks.decoder import CausalLM

HELD_OUT_SEED = 9  # no document of this seed was trained on
DEPTH = 4
SHORT_TOKENS = 24  # an answer of at most so many is a fact, with one right wording; longer ones are stories
ASKED = (
    "Who lives in the lighthouse?",
    "What does the baker make?",
    "Tell me a story about Pip and the rain.",
    "Tell me a story about Wren and Bramble.",
    "What is the capital of France?",
)
SYSTEM = "You are the storyteller of Lantern Island."


def held_out_loss(model: CausalLM, tokenizer: Tokenizer, count: int = 200) -> float:
    """Mean negative log likelihood per predicted token, in nats."""
    total, places = 0.0, 0
    for document in documents(HELD_OUT_SEED, count):
        example = encode(tokenizer, document)
        wanted = mx.array(example.wanted[1:])
        logits = model.logits(network.hidden(model, mx.array([example.ids[:-1]])))[0]
        losses = nn.losses.cross_entropy(logits, mx.array(example.ids[1:]))
        total += (losses * wanted).sum().item()
        places += sum(example.wanted)
    return total / places


def facts_right(model: CausalLM, tokenizer: Tokenizer, count: int = 120) -> float:
    """Share of short answers whose every token is the model's likeliest, given the conversation before."""
    right = asked = 0
    for document in documents(HELD_OUT_SEED, count):
        if isinstance(document, str):
            continue
        example = encode(tokenizer, document)
        logits = model.logits(network.hidden(model, mx.array([example.ids[:-1]])))[0]
        guesses = [-1, *mx.argmax(logits, axis=-1).tolist()]  # nothing guesses the first token
        for start, stop in _answers(example.wanted):
            if stop - start <= SHORT_TOKENS:
                right += guesses[start:stop] == example.ids[start:stop]
                asked += 1
    return right / asked


def _answers(wanted: list[bool]) -> Iterator[tuple[int, int]]:
    """The runs of True, as half-open ranges."""
    start = 0
    for value, run in groupby(wanted):
        stop = start + len(list(run))
        if value:
            yield start, stop
        start = stop


def answer(
    model: CausalLM, tokenizer: Tokenizer, messages: list[tuple[str, str]], limit: int = 200
) -> list[int]:
    prompt = tokenizer.encode(render(messages, generate=True), add_special_tokens=False).ids
    return list(network.greedy(model, prompt, limit))


def agreement(draft: CausalLM, prompt: list[int], said: list[int]) -> list[bool]:
    """Per token that the target said: would the draft have said the same?"""
    tokens = mx.array([prompt + said[:-1]])
    guesses = mx.argmax(draft.logits(network.hidden(draft, tokens)[0, len(prompt) - 1 :]), axis=-1)
    return (guesses == mx.array(said)).tolist()


def speculate(agreed: list[bool], depth: int = DEPTH) -> tuple[int, int, int]:
    """Greedy speculation replayed: tokens drafted, tokens accepted, target calls.

    A call verifies `depth` drafted tokens, keeps those before the first wrong one, and adds the target's own.
    """
    drafted = accepted = calls = place = 0
    while place < len(agreed):
        offered = agreed[place : place + depth]
        kept = offered.index(False) if False in offered else len(offered)
        drafted, accepted, calls = drafted + len(offered), accepted + kept, calls + 1
        place += kept + 1
    return drafted, accepted, calls


def acceptance(
    target: CausalLM, draft: CausalLM, tokenizer: Tokenizer, count: int = 60
) -> tuple[float, float]:
    """Share of drafted tokens that the target accepts, and tokens per target call, on held-out questions."""
    drafted = accepted = calls = tokens = 0
    for document in documents(HELD_OUT_SEED, count):
        if isinstance(document, str):
            continue
        last = max(place for place, (role, _) in enumerate(document) if role == "user")
        prompt = tokenizer.encode(render(document[: last + 1], generate=True), add_special_tokens=False).ids
        said = list(network.greedy(target, prompt, 200))
        counts = speculate(agreement(draft, prompt, said))
        drafted, accepted, calls = drafted + counts[0], accepted + counts[1], calls + counts[2]
        tokens += len(said)
    return accepted / drafted, tokens / calls


def report(folder: Path) -> str:
    tokenizer = Tokenizer.from_file(str(folder / "target" / "tokenizer.json"))
    target, draft = network.load(folder / "target"), network.load(folder / "draft")
    share, per_call = acceptance(target, draft, tokenizer)
    losses = held_out_loss(target, tokenizer), held_out_loss(draft, tokenizer)
    lines = [
        f"held-out loss: target {losses[0]:.4f}, draft {losses[1]:.4f}",
        f"short answers right: target {facts_right(target, tokenizer):.1%}",
        f"at depth {DEPTH}: {share:.1%} of drafted tokens accepted, {per_call:.2f} tokens per target call",
    ]
    for asked in ASKED:
        said = tokenizer.decode(answer(target, tokenizer, [("system", SYSTEM), ("user", asked)]))
        lines += ["", f"> {asked}", said]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "island")
    given = parser.parse_args()
    network.settle()
    print(report(given.folder))
