"""What a request may ask for beside its prompt, as types for callers and as values for the rooms below.

A parameter that is settled at load is refused here: whatever is accepted acts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modelkit import arguments
from modelkit.attached import Chosen
from modelkit.errors import ParameterError
from modelkit.grammar import Form, read_form
from modelkit.modelfile import PARAMETERS, Parameters, Resolved
from modelkit.modelfile.keywords import RequestParameters

MOST_LOGPROBS = 20

# These are decided when a model is loaded; a request cannot change them.
_AT_LOAD = frozenset(name for name, row in PARAMETERS.items() if row.scope in ("context", "machine"))


class AnswerOptions(RequestParameters, total=False):
    """Keywords of every request for an answer."""

    format: str | Mapping[str, Any] | None
    grammar: str | None
    regex: str | None
    top_logprobs: int | None
    adapters: Mapping[str, float] | Sequence[str] | None


class GenerateOptions(AnswerOptions, total=False):
    """Keywords of `Model.generate`."""

    raw: bool


class ChatOptions(AnswerOptions, total=False):
    """Keywords of `Model.chat`."""

    tools: Sequence[Mapping[str, Any]] | None
    variables: Mapping[str, Any] | None
    truncate: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's options, checked."""

    resolved: Resolved
    """Every parameter with the value that holds."""
    form: Form | None
    """What the answer shall look like; None: as it comes."""
    top_logprobs: int | None
    """How many alternatives are reported with each token; None: no log-probabilities."""
    adapters: Chosen = ()
    """Those that answer, in order, with their scales."""


def read_options(
    defaults: Parameters,
    parameters: Mapping[str, object],
    output: object,
    grammar: object,
    regex: object,
    top_logprobs: object,
    adapters: Chosen = (),
) -> Asked:
    """The arguments that all requests have in common. Raises RequestError, ParameterError."""
    given = Parameters(parameters)
    late = sorted(_AT_LOAD & given.keys())
    if late:
        raise ParameterError(
            f"{', '.join(late)} cannot change for one request", hint="Set it when the model is loaded."
        )
    return Asked(
        resolved=defaults.merge(given).resolved(),
        form=read_form(output, grammar, regex),
        top_logprobs=arguments.given(_logprobs, top_logprobs, "top_logprobs"),
        adapters=adapters,
    )


def _logprobs(value: object, where: str) -> int:
    return arguments.whole(value, where, 0, MOST_LOGPROBS)
