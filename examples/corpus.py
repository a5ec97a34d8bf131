"""The training text: documents drawn from a seed. `python examples/corpus.py` prints a few of them.

A document is either a list of chat messages or plain text (one story, or a few in a row). Training,
evaluation and the tokenizer each draw from a seed of their own.
"""

from collections.abc import Iterator
from random import Random

from stories import tell
from talks import PLOTS, Message, conversation

Document = str | list[Message]


def documents(seed: int, count: int) -> Iterator[Document]:
    """`count` documents; the same seed gives the same ones, on every machine."""
    rng = Random(seed)  # noqa: S311 - stories, not secrets
    for _ in range(count):
        if rng.random() < 0.15:
            stories = rng.choices((1, 2, 4, 8), (80, 12, 6, 2))[0]
            yield "\n\n".join(tell(rng, rng.choice(PLOTS)).text for _ in range(stories))
        else:
            yield conversation(rng, rng.choices((1, 2, 3, 5, 12), (40, 25, 20, 12, 3))[0])


if __name__ == "__main__":
    for document in documents(1, 12):
        print(
            document if isinstance(document, str) else "\n".join(f"{role}: {text}" for role, text in document)
        )
        print("-" * 40)
