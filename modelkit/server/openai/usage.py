"""What an answer cost, in OpenAI's words and in llama.cpp's."""

from collections.abc import Iterable, Sequence
from typing import Any

from runtime.engine.request import Usage


def chat_usage(prompts: Iterable[Sequence[Usage]], thinking_tokens: int) -> dict[str, Any]:
    """Of chat completions and completions. prompts: those of the answers to each of them; it counts once, and
    as cached what was known before the first of them read it.
    """
    prompt = cached = made = 0
    for usages in prompts:
        prompt += max((usage.prompt_tokens for usage in usages), default=0)
        cached += min((usage.cached_tokens for usage in usages), default=0)
        made += sum(usage.generated_tokens for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thinking_tokens},
    }


def response_usage(usage: Usage, thinking_tokens: int) -> dict[str, Any]:
    """Of responses."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.generated_tokens,
        "output_tokens_details": {"reasoning_tokens": thinking_tokens},
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
    }


def timings(usage: Usage) -> dict[str, Any]:
    """llama.cpp's names; times in milliseconds."""
    read = usage.prompt_tokens - usage.cached_tokens
    return {
        "cache_n": usage.cached_tokens,
        "prompt_n": read,
        "prompt_ms": _ms(usage.prefill_s),
        "prompt_per_token_ms": _ms(_share(usage.prefill_s, read)),
        "prompt_per_second": round(_share(read, usage.prefill_s), 3),
        "predicted_n": usage.generated_tokens,
        "predicted_ms": _ms(usage.decode_s),
        "predicted_per_token_ms": _ms(_share(usage.decode_s, usage.generated_tokens)),
        "predicted_per_second": round(_share(usage.generated_tokens, usage.decode_s), 3),
        "draft_n": usage.drafted_tokens,
        "draft_n_accepted": usage.accepted_tokens,
        "wait_ms": _ms(usage.wait_s),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _share(one: float, other: float) -> float:
    return one / other if other > 0 else 0.0
