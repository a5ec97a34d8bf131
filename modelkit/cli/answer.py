"""What is said of an answer: why it ended and what it cost. `speaking` prints the answer itself."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from modelkit.cli.terminal.screen import width
from modelkit.cli.terminal.tables import table
from modelkit.cli.terminal.ui import count, size, wrapped

if TYPE_CHECKING:
    from modelkit.answers.generation import Generation
    from modelkit.client.model_like import ModelLike
    from modelkit.memory import Memory
    from runtime.engine.request import Usage


def why_cut(answer: "Generation", model: "ModelLike") -> str | None:
    """A sentence about an answer that ended because of its length; None for any other."""
    if answer.reason != "length":
        return None
    if answer.cut == "context":
        full = f"the context of {count(model.context_length, 'token')} is full"
        return f"the answer was cut short: {full}; context_shift=on would let it continue"
    made = answer.usage.generated_tokens
    return f"the answer was cut short: num_predict allows {count(made, 'token')}"


def left_out(answer: "Generation", model: "ModelLike") -> str | None:
    """A sentence about a conversation that was shortened for this answer; None for one that was not."""
    dropped = answer.dropped_messages
    if not dropped:
        return None
    were = "was" if dropped == 1 else "were"
    return (
        f"the conversation has outgrown the context of {count(model.context_length, 'token')}: "
        f"{count(dropped, 'earlier message')} {were} left out"
    )


def forgot(answer: "Generation") -> str | None:
    """A sentence about an answer for which something was forgotten; None for any other."""
    dropped = answer.usage.dropped_tokens
    if not dropped:
        return None
    return (
        f"the context was full: {count(dropped, 'earlier token')} had to be forgotten to continue the answer"
    )


def to_json(answer: "Generation") -> dict[str, Any]:
    return {
        "text": answer.text,
        "thinking": answer.thinking,
        "ids": list(answer.ids),
        "reason": answer.reason,
        "cut": answer.cut,
        "stop": answer.stop,
        "seed": answer.seed,
        "dropped_messages": answer.dropped_messages,
        "usage": asdict(answer.usage),
    }


def timings(answer: "Generation", model: "ModelLike") -> str:
    """What --verbose says: memory, tokens, seconds and rates, and the seed that makes the same text again."""
    usage = answer.usage
    computed = usage.prompt_tokens - usage.cached_tokens
    # The first token comes out of the prompt's own pass, so decoding made one less.
    made = max(usage.generated_tokens - 1, 0)
    known = f", {usage.cached_tokens:,} of them cached" if usage.cached_tokens else ""
    rows = [
        (
            "prompt ",
            _seconds(usage.prefill_s),
            _rate(computed, usage.prefill_s),
            f"{count(usage.prompt_tokens, 'token')}{known}",
        ),
        (
            "answer ",
            _seconds(usage.decode_s),
            _rate(made, usage.decode_s),
            f"{count(usage.generated_tokens, 'token')}, {_ending(answer)}, seed {answer.seed}",
        ),
    ]
    lines = [table(rows, right=[1, 2], err=True)]
    if usage.drafted_tokens:
        lines.append(f"draft    {_drafts(usage)}")
    if model.threads is not None:
        lines.append(f"threads  {model.threads}")
    return wrapped("\n".join(lines), width(err=True), " " * 9)


def loading(model: "ModelLike") -> str:
    """What --verbose says once, of the model."""
    return f"loaded in {_seconds(model.load_s)}: {_weights(model.memory)}"


def _ending(answer: "Generation") -> str:
    match answer.reason:
        case "length":
            return "cut by its length"
        case "cancelled":
            return "stopped"
        case _:
            return "ended by the model" if answer.stop is None else "ended by a stop text"


def _drafts(usage: "Usage") -> str:
    by = [f"{one.drafter} {one.accepted_tokens} of {one.drafted_tokens}" for one in usage.drafts]
    names = f" ({', '.join(by)})" if len(by) > 1 else ""
    said = f"{usage.accepted_tokens} of {count(usage.drafted_tokens, 'drafted token')} accepted{names}"
    return f"{said}; {count(usage.generated_tokens, 'token')} in {count(usage.rounds + 1, 'pass', 'passes')}"


def _weights(memory: "Memory") -> str:
    parts = [
        ("weights", memory.weight_bytes),
        ("draft", memory.draft_bytes),
        ("adapters", memory.adapter_bytes),
    ]
    return ", ".join(f"{name} {size(nbytes)}" for name, nbytes in parts if nbytes or name == "weights")


def outlook(memory: "Memory") -> str:
    """What --verbose says before anything is loaded."""
    return f"{memory.sentence(size)}: {_weights(memory)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _rate(tokens: int, seconds: float) -> str:
    if not tokens or not seconds:
        return ""
    rate = tokens / seconds
    return f"{rate:,.0f} tokens/s" if rate >= 100 else f"{rate:.3g} tokens/s"
