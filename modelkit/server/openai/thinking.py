"""Whether, how hard and how long to think, in all the spellings that clients have for it.

The most particular one wins: a request that carries several says the same with each.
"""

from typing import Any

from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from runtime.quoting import quoted

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
FIELDS = frozenset(
    {
        "reasoning_effort",
        "reasoning",
        "thinking",
        "think",
        "enable_thinking",
        "chat_template_kwargs",
        "reasoning_budget",
        "thinking_budget_tokens",
        "thinking_budget",
        "reasoning_format",
        "include_reasoning",
        "separate_reasoning",
    }
)
_MOST_TOKENS = 2**31 - 1


def read_thinking(body: Fields) -> dict[str, Any]:
    """think, think_tokens and variables: keyword arguments of `Model.chat`."""
    body.choice("reasoning_format", ("none", "auto", "deepseek", "deepseek-legacy"))
    for field in ("include_reasoning", "separate_reasoning"):
        if body.flag(field) is False:
            raise refused("invalid_request", f"{field}: thinking always has a field of its own here", field)
    variables = dict(template.value) if (template := body.fields("chat_template_kwargs")) else {}
    found = _effort(body.raw("reasoning_effort"), "reasoning_effort")
    found |= _reasoning(body) | _thinking(body) | _think(body)
    for name in ("enable_thinking", "thinking"):
        if isinstance(variables.get(name), bool):
            found["think"] = variables.pop(name)
    if (enabled := body.flag("enable_thinking")) is not None:
        found["think"] = enabled
    for field in ("reasoning_budget", "thinking_budget_tokens", "thinking_budget"):
        if body.has(field):
            found |= _budget(body, field)
    return found | ({"variables": variables} if variables else {})


def effort_of(given: Fields) -> dict[str, Any]:
    """Of `{"effort": ..}`, where that is all there is."""
    return _effort(given.raw("effort"), given.name("effort"))


def _effort(value: object, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if value not in EFFORTS:
        raise refused(
            "invalid_request", f"{where} is {quoted(value)}; expected one of {', '.join(EFFORTS)}", where
        )
    return {"think": False if value == "none" else value}


def _reasoning(body: Fields) -> dict[str, Any]:
    """{"effort", "max_tokens", "enabled"}, as OpenRouter has it; `effort` alone is that of responses."""
    given = body.fields("reasoning")
    if given is None:
        return {}
    found: dict[str, Any] = {}
    if (enabled := given.flag("enabled")) is not None:
        found["think"] = enabled
    found |= _effort(given.raw("effort"), "reasoning.effort")
    return found | (_budget(given, "max_tokens") if given.has("max_tokens") else {})


def _thinking(body: Fields) -> dict[str, Any]:
    """{"type": "enabled" | "disabled", "budget_tokens"}, as Anthropic, GLM and DeepSeek have it."""
    value = body.raw("thinking")
    if value is None or isinstance(value, bool):
        return {} if value is None else {"think": value}
    given = body.inner("thinking")
    kind = given.choice("type", ("enabled", "disabled", "adaptive", "auto"))
    found: dict[str, Any] = {} if kind is None else {"think": kind != "disabled"}
    return found | (_budget(given, "budget_tokens") if given.has("budget_tokens") else {})


def _think(body: Fields) -> dict[str, Any]:
    """Ollama's: a flag or a level."""
    value = body.raw("think")
    return {} if value is None else {"think": value} if isinstance(value, bool) else _effort(value, "think")


def _budget(body: Fields, field: str) -> dict[str, Any]:
    """Tokens: -1 is no limit, 0 is no thinking."""
    tokens = body.whole(field, -1, _MOST_TOKENS)
    return {"think": False} if tokens == 0 else {} if tokens is None else {"think_tokens": tokens}
