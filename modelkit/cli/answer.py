"""One answer on its way to the user: its pieces as they come, then what it cost."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from modelkit.cli.ui import count, printable, size, table

if TYPE_CHECKING:
    from modelkit.generation import Generation, GenerationStream
    from modelkit.memory import Memory
    from modelkit.model import Model
    from runtime.engine.request import Usage


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
        ("load", f"{model.load_s:.2f} s", "", _weights(model.memory)),
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
        rows.append(("draft", f"depth {usage.mean_depth:.2g}", share, _drafts(usage)))
    if model.threads is not None:
        rows.append(("threads", "", "", model.threads))
    return table(rows, right=[1, 2])


def _drafts(usage: "Usage") -> str:
    by = [f"{one.drafter} {one.accepted_tokens} of {one.drafted_tokens}" for one in usage.drafts]
    names = f" ({', '.join(by)})" if len(by) > 1 else ""
    return (
        f"{usage.accepted_tokens} of {usage.drafted_tokens} drafted tokens accepted{names}, "
        f"{usage.tokens_per_round:.3g} tokens per pass of the target"
    )


def _weights(memory: "Memory") -> str:
    return f"weights {size(memory.weight_bytes)}" + (
        f", draft {size(memory.draft_bytes)}" if memory.draft_bytes else ""
    )


def outlook(memory: "Memory") -> str:
    """What --verbose says before anything is loaded."""
    return f"{memory.sentence(size)}: {_weights(memory)}"


def _rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.3g} tokens/s" if tokens and seconds else ""
