"""One answer on its way to the user: its pieces as they come, then what it cost."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.ui import count, printable, size, table

if TYPE_CHECKING:
    from modelkit.generation import Generation, GenerationStream
    from modelkit.model import Model


def say(stream: "GenerationStream") -> "Generation":
    """Print the pieces: exact where output is piped, without control characters on a terminal.

    An interrupt cancels the generation and is raised again; `stream.result` then has what came until then.
    """
    shown = printable if sys.stdout.isatty() else str
    with stream as pieces:
        for piece in pieces:
            click.echo(shown(piece), nl=False)
    return stream.result


def to_json(answer: "Generation") -> dict[str, Any]:
    return {
        "text": answer.text,
        "ids": list(answer.ids),
        "reason": answer.reason,
        "stop": answer.stop,
        "seed": answer.seed,
        "usage": asdict(answer.usage),
    }


def timings(answer: "Generation", model: "Model") -> str:
    """What --verbose says: memory, tokens, seconds and rates, and the seed that makes the same text again."""
    usage = answer.usage
    computed = usage.prompt_tokens - usage.cached_tokens
    # The first token comes out of the prompt's own pass, so decoding made one less.
    made = max(usage.generated_tokens - 1, 0)
    rows = [
        ("load", f"{model.load_s:.2f} s", "", _memory(model)),
        (
            "prompt",
            f"{usage.prefill_s:.2f} s",
            _rate(computed, usage.prefill_s),
            f"{count(usage.prompt_tokens, 'token')}, {usage.cached_tokens} cached",
        ),
        (
            "answer",
            f"{usage.decode_s:.2f} s",
            _rate(made, usage.decode_s),
            f"{count(usage.generated_tokens, 'token')}, ended by {answer.reason}, seed {answer.seed}",
        ),
    ]
    if usage.drafted_tokens:
        share = f"{usage.accepted_tokens / usage.drafted_tokens:.0%}"
        counts = f"{usage.accepted_tokens} of {usage.drafted_tokens} drafted tokens accepted"
        rows.append(("draft", "", share, counts))
    return table(rows, right=[1, 2])


def _memory(model: "Model") -> str:
    held = model.memory
    draft = f", draft {size(held.draft_bytes)}" if held.draft_bytes else ""
    return (
        f"weights {size(held.weight_bytes)}{draft}, up to {size(held.cache_bytes)} "
        f"for a sequence of {model.context_length} tokens"
    )


def _rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.3g} tokens/s" if tokens and seconds else ""
