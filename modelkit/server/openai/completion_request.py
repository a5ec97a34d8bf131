"""A request for a plain completion: its JSON in, prompts and keyword arguments of `Model.generate` out."""

from typing import Any

from modelkit.server.faults import refused
from modelkit.server.fields import Fields, wrong
from modelkit.server.models.turns import Priority
from modelkit.server.openai import forms, sampling
from modelkit.server.openai.chat_request import Style, read_rows, read_style
from runtime.records import dataclass

MOST_PROMPTS = 128
_OWN = frozenset(
    {
        "model",
        "prompt",
        "suffix",
        "echo",
        "n",
        "best_of",
        "logprobs",
        "stream",
        "stream_options",
        "timings_per_token",
        "return_progress",
    }
)
KNOWN = _OWN | sampling.FIELDS | forms.FIELDS

Prompt = str | list[int]
"""A text, or token ids."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What was asked for. Rows count the answers to the first prompt, then those to the second, ..."""

    model: str
    prompts: list[Prompt]
    suffix: str | None
    """What stands behind the answer; None for nothing."""
    options: dict[str, Any]
    """Keyword arguments of `Model.generate`."""
    each: int
    """How many answers to each prompt."""
    echo: bool
    """The prompt stands in front of the answer."""
    style: Style
    keep_alive: float | None
    """Seconds that the model stays; None: as the server is set."""
    priority: Priority | None
    """Who goes first where many wait."""
    hints: tuple[str, ...]
    """Fields that were given and change nothing."""
    listed: bool = False
    """Did the prompts come as a list of them, be it of one?"""

    @property
    def rows(self) -> int:
        return len(self.prompts) * self.each

    def prompt_of(self, row: int) -> str:
        """What the client calls the prompt that a row answers."""
        return f"prompt[{row // self.each}]" if self.listed else "prompt"


def read_completion(body: Fields, most_rows: int) -> CompletionRequest:
    """Raises Refused with the field's name. most_rows: answers to one prompt."""
    sampling.refuse_unknown(body, KNOWN)
    options = sampling.read_sampling(body) | forms.read_form(body)
    top = body.whole("logprobs", 0, sampling.MOST_TOP_LOGPROBS)
    if top is not None:
        options["top_logprobs"] = top
    prompts, suffix = read_prompts(body, "prompt"), body.text("suffix")
    if suffix and not all(isinstance(prompt, str) for prompt in prompts):
        raise refused("invalid_request", "suffix needs a prompt that is a text", "suffix")
    return CompletionRequest(
        model=body.text("model", ""),
        prompts=prompts,
        suffix=suffix or None,
        options=options,
        each=read_rows(body, most_rows),
        echo=body.flag("echo", default=False),
        style=read_style(body, logprobs=top is not None),
        keep_alive=sampling.read_keep_alive(body),
        priority=sampling.read_priority(body),
        hints=sampling.hints_in(body),
        listed=isinstance(body.peek["prompt"], list) and prompts != [body.peek["prompt"]],
    )


def read_prompts(body: Fields, field: str, most: int = MOST_PROMPTS) -> list[Prompt]:
    """A text, ids, or a list of either; embeddings take the same."""
    value = body.raw(field)
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise body.wrong(field, "a text, token ids, or a list of either")
    if isinstance(value[0], int):
        return [_ids(value, body.name(field))]
    if len(value) > most:
        raise refused("invalid_request", f"{field} has {len(value)} entries, expected at most {most}", field)
    return [
        one if isinstance(one, str) else _ids(one, f"{body.name(field)}[{place}]")
        for place, one in enumerate(value)
    ]


def _ids(value: object, where: str) -> list[int]:
    if not isinstance(value, list) or not value:
        raise wrong(where, value, "a text or token ids")
    for place, one in enumerate(value):
        if type(one) is not int or not 0 <= one < 2**31:
            raise wrong(f"{where}[{place}]", one, "a token id")
    return value
