"""What the server counts, as Prometheus reads it.

Labels have few values: names of dialects, models and drafters that there are, statuses, reasons. What would
make too many series is counted under "other". Nothing of a request's text is here.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Literal

from modelkit.server.trace import Trace
from runtime.records import dataclass

Labels = tuple[tuple[str, str], ...]
_MOST_SERIES = 200
_LOADED_S = 0.001  # who waits for less has found the model loaded
_BOUNDS_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_BOUNDS_TOKENS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0, 32.0)

# name -> what it says, and what vLLM calls the same thing, for the dashboards that exist
COUNTERS = {
    "modelkit_requests_total": ("Requests that have ended.", ""),
    "modelkit_answers_total": ("Answers by how they ended.", "vllm:request_success_total"),
    "modelkit_prompt_tokens_total": ("Tokens of prompts.", "vllm:prompt_tokens_total"),
    "modelkit_cached_tokens_total": (
        "Those of them that were not read again.",
        "vllm:prefix_cache_hits_total",
    ),
    "modelkit_generated_tokens_total": ("Tokens of answers.", "vllm:generation_tokens_total"),
    "modelkit_passes_total": ("Passes of the model after the prompts were read.", ""),
    "modelkit_drafted_tokens_total": ("What drafters proposed.", "vllm:spec_decode_num_draft_tokens_total"),
    "modelkit_accepted_tokens_total": (
        "What of that was kept.",
        "vllm:spec_decode_num_accepted_tokens_total",
    ),
    "modelkit_tool_calls_total": (
        "Calls of tools in answers: ok, unknown_name where no such tool was offered, or broken where the "
        "arguments are not a JSON object.",
        "",
    ),
    "modelkit_load_failures_total": (
        "Models that were asked for and did not come: error, too_large, or no_room in time.",
        "",
    ),
    "modelkit_evictions_total": ("Models that left before their time, to make room for others.", ""),
    "modelkit_departures_total": (
        "Models that left memory: idle, to make room, replaced by a newer package or none, stopped, failed.",
        "",
    ),
}
HISTOGRAMS = {
    "modelkit_time_to_first_token_seconds": (
        "From a request's arrival to the first piece of its answer.",
        "vllm:time_to_first_token_seconds",
    ),
    "modelkit_inter_token_seconds": (
        "From one piece of an answer to the next.",
        "vllm:inter_token_latency_seconds",
    ),
    "modelkit_queue_seconds": ("In the queue of a loaded model.", "vllm:request_queue_time_seconds"),
    "modelkit_prefill_seconds": ("Reading the prompt.", "vllm:request_prefill_time_seconds"),
    "modelkit_decode_seconds": ("From the first token to the last.", "vllm:request_decode_time_seconds"),
    "modelkit_request_seconds": ("From a request's arrival to its end.", "vllm:e2e_request_latency_seconds"),
    "modelkit_model_load_seconds": ("What requests waited for a model to be loaded.", ""),
    "modelkit_accepted_length_tokens": ("How many tokens of a draft were kept, of each that was judged.", ""),
}
GAUGES = {
    "modelkit_requests_running": ("Requests whose answer comes.", "vllm:num_requests_running"),
    "modelkit_requests_waiting": (
        "Requests that wait for a model, a place or their first token.",
        "vllm:num_requests_waiting",
    ),
    "modelkit_models_loaded": ("Models in memory.", ""),
    "modelkit_memory_bytes": (
        "By kind: weights, draft, context reserved for conversations, prefix kept of earlier prompts.",
        "",
    ),
    "modelkit_engine_step_seconds": ("How long the present step of the engine has been running.", ""),
}


@dataclass(slots=True)
class Histogram:
    """How often what took how long, in seconds, or had so many tokens."""

    bounds: tuple[float, ...] = _BOUNDS_S
    buckets: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.buckets = [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        self.buckets[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        count = 0
        for bound, here in zip((*map(str, self.bounds), "+Inf"), self.buckets, strict=True):
            count += here
            yield f"{name}_bucket{_written((*labels, ('le', bound)))} {count}"
        yield f"{name}_sum{_written(labels)} {self.total:.6f}"
        yield f"{name}_count{_written(labels)} {count}"


class Metrics:
    """On the event loop's thread only. alias: "vllm" to give what can be given under vLLM's names too."""

    def __init__(self, alias: Literal["vllm"] | None = None) -> None:
        self._alias = alias
        self._counters: dict[str, dict[Labels, int]] = {name: {} for name in COUNTERS}
        self._histograms: dict[str, dict[Labels, Histogram]] = {name: {} for name in HISTOGRAMS}

    def request(self, trace: Trace) -> None:
        """A request has ended."""
        said = (("dialect", trace.dialect), ("status", str(trace.status)))
        self._count("modelkit_requests_total", said, 1)
        if not trace.model:
            return
        model, usage = (("model", trace.model),), trace.usage
        self._count("modelkit_answers_total", (*model, ("finish", trace.finish or "other")), 1)
        self._count("modelkit_prompt_tokens_total", model, usage.prompt_tokens)
        self._count("modelkit_cached_tokens_total", model, usage.cached_tokens)
        self._count("modelkit_generated_tokens_total", model, usage.generated_tokens)
        self._count("modelkit_passes_total", model, usage.rounds)
        for outcome, calls in trace.tool_calls.items():
            self._count("modelkit_tool_calls_total", (*model, ("outcome", outcome)), calls)
        for one in usage.drafts:
            drafter = (*model, ("drafter", one.drafter))
            self._count("modelkit_drafted_tokens_total", drafter, one.drafted_tokens)
            self._count("modelkit_accepted_tokens_total", drafter, one.accepted_tokens)
            for length, times in enumerate(one.lengths):
                if times:
                    self._observe("modelkit_accepted_length_tokens", drafter, length, times, _BOUNDS_TOKENS)
        if trace.first_token_s is not None:
            self._observe("modelkit_time_to_first_token_seconds", model, trace.first_token_s)
        if trace.load_s > _LOADED_S:
            self._observe("modelkit_model_load_seconds", model, trace.load_s)
        self._observe("modelkit_request_seconds", model, trace.total_s)
        for one in trace.usages:
            self._observe("modelkit_queue_seconds", model, trace.queued_s + one.wait_s)
            self._observe("modelkit_prefill_seconds", model, one.prefill_s)
            self._observe("modelkit_decode_seconds", model, one.decode_s)

    def gaps(self, model: str) -> Histogram:
        """How long the pieces of an answer come after the ones before; for whoever counts many."""
        return self._histogram("modelkit_inter_token_seconds", (("model", model),))

    def text(
        self,
        gauges: Mapping[str, Mapping[Labels, float]],
        counted: Mapping[str, Mapping[Labels, int]] | None = None,
    ) -> str:
        """Everything. gauges: what is true at this moment, by the names of GAUGES. counted: what others have
        counted, by the names of COUNTERS.
        """
        lines: list[str] = []
        theirs = {name: _few(counts) for name, counts in (counted or {}).items()}
        for name, counts in {**self._counters, **theirs}.items():
            lines += self._series_lines(name, *COUNTERS[name], "counter", counts.items())
        for name, values in gauges.items():
            lines += self._series_lines(name, *GAUGES[name], "gauge", values.items())
        for name, histograms in self._histograms.items():
            lines += self._series_lines(name, *HISTOGRAMS[name], "histogram", histograms.items())
        return "\n".join(lines) + "\n"

    def _series_lines(
        self, name: str, told: str, twin: str, kind: str, series: Iterable[tuple[Labels, float | Histogram]]
    ) -> Iterator[str]:
        found = list(series)
        for called in (name, twin) if twin and self._alias else (name,):
            yield f"# HELP {called} {told}"
            yield f"# TYPE {called} {kind}"
            for labels, value in found:
                here = labels if called == name else tuple((_THEIRS.get(k, k), v) for k, v in labels)
                if isinstance(value, Histogram):
                    yield from value.lines(called, here)
                else:
                    yield f"{called}{_written(here)} {value:.15g}"

    def _count(self, name: str, labels: Labels, more: int) -> None:
        counts = self._counters[name]
        key = _bounded(labels, counts)
        counts[key] = counts.get(key, 0) + more

    def _observe(
        self,
        name: str,
        labels: Labels,
        value: float,
        times: int = 1,
        bounds: tuple[float, ...] = _BOUNDS_S,
    ) -> None:
        self._histogram(name, labels, bounds).add(value, times)

    def _histogram(self, name: str, labels: Labels, bounds: tuple[float, ...] = _BOUNDS_S) -> Histogram:
        histograms = self._histograms[name]
        key = _bounded(labels, histograms)
        if key not in histograms:
            histograms[key] = Histogram(bounds)
        return histograms[key]


_THEIRS = {"model": "model_name", "finish": "finished_reason"}


def _bounded(labels: Labels, series: Mapping[Labels, object]) -> Labels:
    if labels in series or len(series) < _MOST_SERIES:
        return labels
    return tuple((name, "other") for name, _ in labels)


def _few(counts: Mapping[Labels, int]) -> dict[Labels, int]:
    few: dict[Labels, int] = {}
    for labels, count in counts.items():
        key = _bounded(labels, few)
        few[key] = few.get(key, 0) + count
    return few


def _written(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
