"""PARAMETERs as keywords of Python functions, for type checkers: `temprature=` and `temperature="hot"` are
found before anything runs.

Checkers read types, not tables, so each row of `parameter_table` is said once more here; a test compares the
two. What holds at run time is the table alone.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict


class RequestParameters(TypedDict, total=False):
    """The parameters that one request may set."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    dynatemp_range: float
    dynatemp_exponent: float
    xtc_probability: float
    xtc_threshold: float
    repeat_last_n: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: str | Sequence[str]
    seed: int
    num_predict: int
    min_tokens: int
    num_keep: int
    context_shift: bool | Literal["off", "on"]
    think: bool | Literal["auto", "off", "on", "minimal", "low", "medium", "high", "xhigh", "max"]
    think_tokens: int
    stop: str | Sequence[str]
    source_language: str
    target_language: str
    draft_num_predict: int
    draft_acceptance: Literal["coupled", "rejection"]


class LoadParameters(RequestParameters, total=False):
    """All parameters; the ones added here are settled when a model is loaded."""

    num_ctx: int
    kv_format: Literal["auto", "f32", "f16", "bf16", "q8", "q4"]
    num_batch: int
    num_thread: int
    num_parallel: int
