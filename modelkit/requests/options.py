"""What a request may ask for beside its prompt, as types for callers and as values for the rooms below.

A parameter that is settled at load is refused here: whatever is accepted acts.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from modelkit import arguments
from modelkit.grammars.forms import Form, read_form
from modelkit.modelfile import Parameters, Resolved
from modelkit.modelfile.keywords import RequestParameters
from modelkit.modelfile.parameters import refuse_at_load
from modelkit.requests.attached import Chosen, read_adapters
from runtime.records import dataclass
from runtime.sampling.breakers import Breakers
from runtime.sampling.params import BIAS_LIMIT, COLD, LARGEST_BIAS, SamplingParams
from runtime.sampling.ranges import ID_LIMIT, MOST_LOGPROBS

_MOST_CONTEXT = 2**63 - 1


class AnswerOptions(RequestParameters, total=False):
    """Keywords of every request for an answer."""

    format: str | Mapping[str, Any] | None
    grammar: str | None
    regex: str | None
    top_logprobs: int | None
    logit_bias: Mapping[int, float] | None
    adapters: Mapping[str, float] | Sequence[str] | None
    context_length: int | None
    template: str | None


class GenerateOptions(AnswerOptions, total=False):
    """Keywords of `Model.generate`."""

    raw: bool


class ChatOptions(AnswerOptions, total=False):
    """Keywords of `Model.chat`."""

    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: str
    parallel_tool_calls: bool
    variables: Mapping[str, Any] | None
    truncate: bool
    continue_final: bool


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """A request's options, checked."""

    resolved: Resolved
    """Every parameter with the value that holds."""
    form: Form | None
    """What the answer shall look like; None: as it comes."""
    top_logprobs: int | None
    """How many alternatives are reported with each token; None: no log-probabilities."""
    adapters: Chosen = ()
    """Those that answer, in order, with their scales."""
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    """By token id: added to its logit."""
    context_length: int | None = None
    """Most tokens of prompt and answer together, where that is less than the model's."""

    @property
    def json(self) -> bool:
        """Shall the answer be JSON?"""
        return self.form is not None and self.form.kind == "schema"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What a request says about calls of its tools."""

    choice: str = "auto"
    """"auto", "none", "required", or the name of the tool to call."""
    parallel: bool = True
    """May there be more than one call?"""


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The keywords that every request for an answer has, as the caller gave them."""

    format: object = None
    grammar: object = None
    regex: object = None
    top_logprobs: object = None
    logit_bias: object = None
    adapters: object = None
    context_length: object = None


def read_options(
    defaults: Parameters, adapters: Sequence[str], parameters: Mapping[str, object], given: GivenOptions
) -> RequestOptions:
    """adapters: names of those that the model has. Raises RequestError, ParameterError."""
    own = Parameters(parameters)
    refuse_at_load(own)
    return RequestOptions(
        resolved=defaults.merge(own).resolved(),
        form=read_form(given.format, given.grammar, given.regex),
        top_logprobs=arguments.optional(_logprobs, given.top_logprobs, "top_logprobs"),
        adapters=read_adapters(given.adapters, adapters),
        logit_bias=arguments.optional(_bias, given.logit_bias, "logit_bias") or {},
        context_length=arguments.optional(_context, given.context_length, "context_length"),
    )


def _context(value: object, where: str) -> int:
    return arguments.whole(value, where, 2, _MOST_CONTEXT)  # one token of prompt, and one of answer


def _logprobs(value: object, where: str) -> int:
    return arguments.whole(value, where, 0, MOST_LOGPROBS)


def _bias(value: object, where: str) -> dict[int, float]:
    if not isinstance(value, Mapping) or len(value) > BIAS_LIMIT:
        raise arguments.refused(where, value, f"at most {BIAS_LIMIT:,} token ids, each with a number")
    return {
        arguments.whole(token, f"an id of {where}", 0, ID_LIMIT - 1): _added(bias, f"{where}[{token}]")
        for token, bias in value.items()
    }


def _added(value: object, where: str) -> float:
    found = arguments.number(value, where)
    if not -LARGEST_BIAS <= found <= LARGEST_BIAS:  # logits are float32: it would be infinite there
        raise arguments.refused(where, value, f"at most {LARGEST_BIAS:.2g} in size")
    return found


def sampling_of(
    wanted: Resolved,
    suppressed: tuple[int, ...] = (),
    logit_bias: Mapping[int, float] | None = None,
    *,
    breakers: Breakers | None = None,
    ends: tuple[int, ...] = (),
    ends_from: int = 0,
) -> SamplingParams:
    """The sampling that these parameters ask for; without a seed, one is drawn here. suppressed: ids that the
    model's authors never want drawn. The rest: as in SamplingParams, which knows no texts.
    """
    return SamplingParams(
        temperature=wanted.temperature,
        top_k=wanted.top_k,
        top_p=wanted.top_p,
        min_p=wanted.min_p,
        typical_p=wanted.typical_p,
        top_n_sigma=wanted.top_n_sigma,
        dynatemp_range=wanted.dynatemp_range,
        dynatemp_exponent=wanted.dynatemp_exponent,
        xtc_probability=wanted.xtc_probability,
        xtc_threshold=wanted.xtc_threshold,
        repeat_penalty=wanted.repeat_penalty,
        repeat_last_n=wanted.repeat_last_n,
        presence_penalty=wanted.presence_penalty,
        frequency_penalty=wanted.frequency_penalty,
        dry_multiplier=wanted.dry_multiplier,
        dry_base=wanted.dry_base,
        dry_allowed_length=wanted.dry_allowed_length,
        dry_penalty_last_n=wanted.dry_penalty_last_n,
        dry_breakers=breakers,
        ends=ends,
        ends_from=ends_from,
        seed=secrets.randbits(63) if wanted.seed < 0 else wanted.seed,
        logit_bias=logit_bias or {},
        suppressed=suppressed,
        draft_acceptance="rejection" if wanted.draft_acceptance == "rejection" else "coupled",
    )


def idle_samplers(wanted: Resolved) -> tuple[str, ...]:
    """What is said where a sampler was asked for that cannot act beside the others."""
    notes: list[str] = []
    greedy = wanted.top_k == 1 or (wanted.temperature < COLD and not wanted.dynatemp_range)
    if wanted.xtc_probability and greedy:
        why = "top_k 1" if wanted.top_k == 1 else f"temperature {wanted.temperature:g}"
        notes.append(f"xtc_probability does nothing: {why} always takes the likeliest token")
    if wanted.xtc_probability and not greedy and wanted.xtc_threshold > 0.5:
        notes.append("xtc_probability does nothing: no two tokens reach an xtc_threshold above 0.5")
    if wanted.dry_multiplier and not wanted.dry_penalty_last_n:
        notes.append("dry_multiplier does nothing: dry_penalty_last_n is 0")
    return tuple(notes)
