"""PEFT's adapter_config.json: what changes numbers is read or refused; a field that nobody knows is refused
where it says anything.

Source: LoraConfig of peft 0.21 and its loading code. Which modules get adapters (`target_modules` and its
like) says where training created them; in loading the file's keys decide.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.json_text import is_number
from modelkit.regexes import ways
from modelkit.source.adapters.value import MAX_RANK, refuse_activated, refuse_field
from runtime.quoting import quoted, shown
from runtime.records import dataclass

_CONVERT = (
    "That start changes the base's own weights. Save it with "
    "`save_pretrained(..., path_initial_model_for_weight_conversion=...)`, which makes a plain LoRA of it."
)
_STARTS = (True, False, None, "gaussian", "eva", "orthogonal", "mica")
"""Values of init_lora_weights that leave the base as it is."""

_SILENT = frozenset({
    "alpha_pattern", "arrow_router", "auto_mapping", "base_model_name_or_path", "bias", "corda_config",
    "ensure_weight_tying", "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode",
    "init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_bias", "lora_dropout",
    "lora_ga_config", "loftq_config", "megatron_core", "modules_to_save", "peft_type", "peft_version",
    "qalora_group_size", "r", "rank_pattern", "revision", "runtime_config", "target_modules",
    "target_parameters", "task_type", "trainable_token_indices", "use_dora", "use_rslora", "velora_config",
})  # fmt: skip
"""Read here, or without a word in the numbers; what the starts of training have as configs counts by
init_lora_weights, and VeLoRA saves memory in training alone."""

_ACTIVATES = "alora_invocation_tokens"
_TIED = ("embed_tokens", "lm_head")
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)
_QUANTIFIER = re.compile(r"[*+{]")
_MAX_PATTERNS = 4096
_MAX_PATTERN_CHARACTERS = 512
_MAX_REPETITIONS = 3
_MOST_TRIES = 10_000_000
"""Of one pattern on one name: a fraction of a second."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A stranger's, which could take for ever: it is tried only where that is impossible."""

    text: str
    compiled: re.Pattern[str]
    ways: int
    """Through what it leaves open, its repetitions apart."""
    repetitions: int
    where: str
    """How messages call the field that it stands in."""

    def fits(self, module: str) -> bool:
        """As PEFT matches: the end of a module's name, after a dot or whole. Raises UnsupportedSource."""
        starts = module.count(".") + 1
        if starts * self.ways * len(module) ** self.repetitions > _MOST_TRIES:
            raise UnsupportedSource(f"{self.where}: the pattern {shown(self.text)} is too involved")
        return self.compiled.match(module) is not None


@dataclass(frozen=True, slots=True)
class PeftConfig:
    rank: int
    alpha: float
    ranks: tuple[tuple[Pattern, int], ...]
    """Modules with a rank of their own; the first that fits counts."""
    alphas: tuple[tuple[Pattern, float], ...]
    rank_stabilized: bool
    dora: bool
    targets: tuple[str, ...]
    """Parameters that are adapted by themselves (`target_parameters`), as endings of their names."""
    tokens: Mapping[str, tuple[int, ...]]
    """Ids that have rows of their own, by the table's name or its end; "" for whichever table it is."""
    ties: bool
    """Does what is done to the embedding hold for a head that is tied to it?"""
    base: str | None
    stacks_turned: Mapping[bool, bool]
    """Are pairs of stacks meant for the transposes of the matrices? By whether transformers holds the stacks
    input first; where that does not tell, it is not in here.
    """
    raw: Mapping[str, Any]

    def rank_of(self, module: str) -> int:
        return next((rank for pattern, rank in self.ranks if pattern.fits(module)), self.rank)

    def scale_of(self, module: str) -> float:
        rank = self.rank_of(module)
        alpha = next((alpha for pattern, alpha in self.alphas if pattern.fits(module)), self.alpha)
        return alpha / math.sqrt(rank) if self.rank_stabilized else alpha / rank


def read_peft_config(raw: Mapping[str, Any], label: str) -> PeftConfig:
    """Raises UnsupportedSource for what is not computed here, MalformedFile for values of a wrong type."""
    _refuse_others(raw, label)
    return PeftConfig(
        rank=_rank(raw.get("r"), "r", label),
        alpha=_number(raw.get("lora_alpha", 8), "lora_alpha", label),
        ranks=tuple(_patterns(raw, "rank_pattern", _rank, label)),
        alphas=tuple(_patterns(raw, "alpha_pattern", _number, label)),
        rank_stabilized=_flag(raw, "use_rslora", label),
        dora=_flag(raw, "use_dora", label),
        targets=_texts(raw.get("target_parameters"), "target_parameters", label),
        tokens=_tokens(raw.get("trainable_token_indices"), label),
        ties=_flag(raw, "ensure_weight_tying", label) and _names_tied(raw, label),
        base=_base(raw, label),
        stacks_turned=_stacks_turned(raw.get("peft_version")),
        raw=raw,
    )


def _refuse_others(raw: Mapping[str, Any], label: str) -> None:
    kind = raw.get("peft_type")
    if kind != "LORA":
        raise UnsupportedSource(
            f"{label} is an adapter of PEFT's type {quoted(kind)}",
            hint="LORA, with or without DoRA, is read.",
        )
    start = raw.get("init_lora_weights", True)
    if not any(start is one or (isinstance(start, str) and start == one) for one in _STARTS):
        refuse_field(label, "init_lora_weights", start, _CONVERT)
    if raw.get(_ACTIVATES):
        refuse_activated(label, _ACTIVATES)
    for name, value in raw.items():
        if name not in _SILENT and value:
            refuse_field(label, name, value)
    if raw.get("bias", "none") not in ("none", "all", "lora_only"):
        refuse_field(label, "bias", raw["bias"])
    for name in ("fan_in_fan_out", "lora_bias"):
        _flag(raw, name, label)


def _patterns(raw: Mapping[str, Any], key: str, read: Any, label: str) -> list[tuple[Pattern, Any]]:
    found = raw.get(key) or {}
    if not isinstance(found, dict) or len(found) > _MAX_PATTERNS:
        raise MalformedFile(f"{label}: `{key}` is not an object of at most {_MAX_PATTERNS} names")
    return [(_pattern(name, key, label), read(value, key, label)) for name, value in found.items()]


def _pattern(text: str, key: str, label: str) -> Pattern:
    """Repeated groups and more than three repetitions are refused."""
    repetitions = len(_QUANTIFIER.findall(text.replace("\\", "")))
    grouped = re.search(r"\)\s*[*+{]", text) is not None
    if len(text) > _MAX_PATTERN_CHARACTERS or repetitions > _MAX_REPETITIONS or grouped:
        raise UnsupportedSource(f"{label}: the pattern {shown(text)} in `{key}` is too involved")
    try:
        compiled = re.compile(rf"(?:[^\n]*\.)?(?:{text})$")
    except (re.error, OverflowError, RecursionError) as error:
        raise MalformedFile(f"{label}: {shown(text)} in `{key}` is not a pattern: {error}") from error
    return Pattern(text, compiled, ways(text), repetitions, f"{label}, `{key}`")


def _rank(value: object, key: str, label: str) -> int:
    if type(value) is not int or not 0 < value <= MAX_RANK:
        raise MalformedFile(
            f"{label}: `{key}` is {quoted(value)}; a rank from 1 to {MAX_RANK:,} was expected"
        )
    return value


def _number(value: object, key: str, label: str) -> float:
    if not is_number(value) or not abs(value) < 1e9:
        raise MalformedFile(f"{label}: `{key}` is {quoted(value)}; a number was expected")
    return float(value)


def _flag(raw: Mapping[str, Any], key: str, label: str) -> bool:
    value = raw.get(key)
    if value not in (True, False, None):
        raise MalformedFile(f"{label}: `{key}` is {quoted(value)}; true or false was expected")
    return bool(value)


def _texts(value: object, key: str, label: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedFile(f"{label}: `{key}` is not a list of names")
    return tuple(value)


def _tokens(value: object, label: str) -> dict[str, tuple[int, ...]]:
    if not value:
        return {}
    lists: dict[str, Any] = value if isinstance(value, dict) else {"": value}
    for ids in lists.values():
        if not isinstance(ids, list) or not all(type(one) is int and 0 <= one < 1 << 24 for one in ids):
            raise MalformedFile(f"{label}: `trainable_token_indices` holds no lists of token ids")
        if len(set(ids)) != len(ids):
            raise MalformedFile(f"{label}: `trainable_token_indices` has an id twice")
    return {name: tuple(ids) for name, ids in lists.items()}


def _names_tied(raw: Mapping[str, Any], label: str) -> bool:
    """Does PEFT see to `ensure_weight_tying`? Of usual names alone: it passes over GPT-2's `wte`."""
    targets, saved = raw.get("target_modules"), raw.get("modules_to_save")
    if isinstance(targets, str):
        pattern = _pattern(targets, "target_modules", label)
        targets = [name for name in _TIED if pattern.fits(name)] or [targets]
    names = [str(name) for one in (targets, saved) if isinstance(one, list) for name in one]
    return not names or any(name.rpartition(".")[2] in _TIED for name in names)


def _base(raw: Mapping[str, Any], label: str) -> str | None:
    name = raw.get("base_model_name_or_path")
    if name is not None and not isinstance(name, str):
        raise MalformedFile(f"{label}: `base_model_name_or_path` is not text")
    return name or None


def _stacks_turned(version: object) -> dict[bool, bool]:
    """PEFT takes a stack's second axis for its input. From 0.19.1 on it takes the third, but for modules that
    say `is_transposed`, which only those that hold stacks input first do, and not in every release of
    transformers. 0.19.0 did the same the wrong way round.
    """
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found is None:
        return {}
    numbers = tuple(map(int, found.groups()))
    if numbers < (0, 19, 0):
        return {False: True, True: False}
    return {False: numbers == (0, 19, 0)}
