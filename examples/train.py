"""Train the tokenizer, the target and its draft, and say how good they are: `python examples/train.py`.

The target learns the corpus, first with half its layers, which is twice as fast, then with all of them: each
new layer begins as one that changes nothing (arXiv 1511.05641). The draft learns the target, that is, its
whole next-token distribution (arXiv 1503.02531), because a draft is right when it says what its target would
say. Matrices are updated by Muon, the rest by AdamW, under one cosine schedule for each of the three.
Everything follows from the seeds below.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import network
import vocabulary
from corpus import documents
from evaluate import report
from tokenizers import Tokenizer
from vocabulary import PAD_ID, Example, encode

from runtime.trunks.decoder import CausalLM

TOKENIZER_SEED, SHALLOW_SEED, DRAFT_SEED, TARGET_SEED = 1, 2, 3, 4
TOKENS_PER_BATCH = 2048
POOL_DOCUMENTS = 512  # sorted by length before they are cut into batches, so that little is padding
ISLAND = Path(__file__).parent / "island"


@dataclass(frozen=True, slots=True)
class Batch:
    """B rows of L tokens, right-padded. `places` index the flattened [B * L] predictions that count."""

    inputs: mx.array  # int32 [B, L]
    places: mx.array  # int32 [N]
    wanted: mx.array  # int32 [N], the ids to predict there


def batches(
    tokenizer: Tokenizer, seed: int, count: int, longest: int = network.CONTEXT_TOKENS
) -> Iterator[Batch]:
    """`count` batches of documents of at most `longest` tokens."""
    rng = Random(seed)  # noqa: S311 - a shuffle, not a secret
    while count > 0:
        pool = [encode(tokenizer, document) for document in documents(rng.getrandbits(32), POOL_DOCUMENTS)]
        pool = [example for example in pool if len(example.ids) <= longest]
        cut = list(_cut(sorted(pool, key=lambda example: len(example.ids))))
        rng.shuffle(cut)
        yield from map(_batch, cut[:count])
        count -= len(cut)


def _cut(pool: list[Example]) -> Iterator[list[Example]]:
    while pool:
        rows = 1
        while rows < len(pool) and (rows + 1) * len(pool[rows].ids) <= TOKENS_PER_BATCH:
            rows += 1
        yield pool[:rows]
        pool = pool[rows:]


def _batch(examples: list[Example]) -> Batch:
    width = max(len(example.ids) for example in examples) - 1
    rows, places, wanted = [], [], []
    for row, example in enumerate(examples):
        rows.append(example.ids[:-1] + [PAD_ID] * (width + 1 - len(example.ids)))
        for place, (token, counts) in enumerate(zip(example.ids[1:], example.wanted[1:], strict=True)):
            if counts:
                places.append(row * width + place)
                wanted.append(token)
    return Batch(mx.array(rows), mx.array(places), mx.array(wanted))


def logits(model: CausalLM, batch: Batch) -> mx.array:
    """[N, V]: the output head runs only where a prediction counts."""
    states = network.hidden(model, batch.inputs)
    return model.logits(states.reshape(-1, states.shape[-1])[batch.places])


def optimizer(steps: int, matrices: float, rest: float) -> optim.Optimizer:
    def schedule(peak: float) -> Callable[[mx.array], mx.array]:
        warm = max(1, steps // 50)
        return optim.join_schedules(
            [
                optim.linear_schedule(peak / warm, peak, warm),
                optim.cosine_decay(peak, steps - warm, peak / 50),
            ],
            [warm],
        )

    def is_matrix(name: str, weight: mx.array) -> bool:
        return weight.ndim == 2 and "embed" not in name

    muon = optim.Muon(schedule(matrices), momentum=0.95, weight_decay=0.01)
    return optim.MultiOptimizer([muon, optim.AdamW(schedule(rest), betas=[0.9, 0.98])], [is_matrix])


def train(
    model: CausalLM,
    loss: Callable[[CausalLM, Batch], mx.array],
    data: Iterator[Batch],
    steps: int,
    label: str,
    *,
    peak: float = 1.0,
) -> None:
    update = optimizer(steps, matrices=0.02 * peak, rest=0.005 * peak)
    step_loss = nn.value_and_grad(model, loss)
    started, tokens, mean = time.monotonic(), 0, 0.0
    for step, batch in enumerate(data, 1):
        value, gradients = step_loss(model, batch)
        gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        update.update(model, gradients)
        mx.eval(model.parameters(), update.state)
        tokens += batch.inputs.size
        mean += (value.item() - mean) / min(step, 50)
        if step % 50 == 0 or step == steps:
            elapsed_s = time.monotonic() - started
            speed = f"{tokens / elapsed_s:,.0f} tokens/s, {elapsed_s:.0f} s"
            print(f"{label} {step}/{steps}  loss {mean:.3f}  {speed}", flush=True)


def train_shallow(tokenizer: Tokenizer, steps: int) -> CausalLM:
    mx.random.seed(SHALLOW_SEED)
    model = network.build(network.SHALLOW)
    train(model, corpus_loss, batches(tokenizer, SHALLOW_SEED, steps), steps, "shallow target")
    return model


def train_target(tokenizer: Tokenizer, shallow: CausalLM, steps: int) -> CausalLM:
    model = network.grown(shallow)
    train(model, corpus_loss, batches(tokenizer, TARGET_SEED, steps), steps, "target", peak=0.5)
    return model


def corpus_loss(model: CausalLM, batch: Batch) -> mx.array:
    return nn.losses.cross_entropy(logits(model, batch), batch.wanted, reduction="mean")


def train_draft(tokenizer: Tokenizer, target: CausalLM, steps: int) -> CausalLM:
    mx.random.seed(DRAFT_SEED)
    model = network.build(network.DRAFT)

    def loss(model: CausalLM, batch: Batch) -> mx.array:
        says = mx.stop_gradient(mx.softmax(logits(target, batch), axis=-1))
        mine = logits(model, batch)
        return (mx.logsumexp(mine, axis=-1) - (says * mine).sum(axis=-1)).mean()

    train(model, loss, batches(tokenizer, DRAFT_SEED, steps), steps, "draft")
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the tokenizer, the target and its draft.")
    parser.add_argument("--out", type=Path, default=ISLAND, help="gets shallow/, target/ and draft/")
    parser.add_argument("--shallow-steps", type=int, default=1000, help="0 keeps the one that is there")
    parser.add_argument("--target-steps", type=int, default=900, help="0 keeps the target that is there")
    parser.add_argument("--draft-steps", type=int, default=900, help="0 keeps the draft that is there")
    given = parser.parse_args()
    print(network.settle())
    shallow, target, draft = (given.out / name for name in ("shallow", "target", "draft"))
    if given.shallow_steps:
        tokenizer = vocabulary.learn(TOKENIZER_SEED, 8000)
        vocabulary.save(tokenizer, shallow, network.CONTEXT_TOKENS)
        network.save(train_shallow(tokenizer, given.shallow_steps), network.SHALLOW, shallow)
    tokenizer = vocabulary.load(shallow if shallow.exists() else target)
    for folder in (target, draft):
        vocabulary.save(tokenizer, folder, network.CONTEXT_TOKENS)
    if given.target_steps:
        deep = train_target(tokenizer, network.load(shallow), given.target_steps)
        network.save(deep, network.TARGET, target)
    if given.draft_steps:
        small = train_draft(tokenizer, network.load(target), given.draft_steps)
        network.save(small, network.DRAFT, draft)
    print(report(given.out))


if __name__ == "__main__":
    main()
