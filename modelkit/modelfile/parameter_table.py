"""The table of PARAMETERs. Modelfile, command line, HTTP, Python keywords and docs all follow it.

A new parameter is one line of `Resolved`: its name, type, default, range (of what is drawn, the sampler's
own), scope and help. Every name of Ollama's is either there or in `REFUSED`, with the reason why it means
nothing on MLX; none is ignored.
"""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Literal

from runtime.records import dataclass
from runtime.sampling.ranges import RANGES, Range

ParameterValue = int | float | str | tuple[str, ...]
Kind = Literal["int", "float", "choice", "word", "strings"]
Scope = Literal["sampling", "generation", "context", "machine"]

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_WORD_CHARACTERS = 32
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row."""

    name: str
    kind: Kind
    default: ParameterValue | None
    """None: the surroundings decide (the model's context length, the measured depth)."""
    scope: Scope
    """What the value acts on, and so when it can change: "sampling" and "generation" with every request,
    "context" and "machine" when a model is loaded.
    """
    help: str
    minimum: float = 0
    """The lower end of the range, itself included unless `above`."""
    maximum: float = 0
    """The upper end of the range, itself included."""
    above: bool = False
    """Is the lower end itself excluded?"""
    choices: tuple[str, ...] = ()
    """The legal words, of a "choice"."""

    @property
    def at_load(self) -> bool:
        """Whether it is settled when a model is loaded; all others can change with every request."""
        return self.scope in ("context", "machine")

    @property
    def repeats(self) -> bool:
        """Whether several PARAMETER lines of this name add up."""
        return self.kind == "strings"

    @property
    def switches(self) -> bool:
        """Whether its words are, or begin with, on and off."""
        return {"on", "off"} <= {*self.choices}

    @property
    def expected(self) -> str:
        """The legal values in words."""
        if self.kind == "strings":
            return f"at most {MAX_STOPS:,} texts of 1 to {MAX_STOP_CHARACTERS:,} characters"
        if self.kind == "choice":
            return f"one of {', '.join(self.choices)}"
        if self.kind == "word":
            return f"a word of at most {MAX_WORD_CHARACTERS:,} letters, digits, - and _"
        if self.kind == "int":
            return f"a whole number from {self.minimum} to {self.maximum}"
        return f"a number {'above' if self.above else 'from'} {self.minimum:g} to {self.maximum:g}"

    def holds(self, number: float) -> bool:
        """Whether a number is in range; NaN never is."""
        return self.minimum <= number <= self.maximum and not (self.above and number == self.minimum)


def _int(default: int | None, minimum: int, maximum: int, scope: Scope, text: str) -> Any:
    row = {"kind": "int", "minimum": minimum, "maximum": maximum, "scope": scope, "help": text}
    return field(default=default, metadata=row)


def _drawn(default: float, span: Range, text: str) -> Any:
    """A setting of the sampler's, with the range that it takes."""
    row = {"minimum": span.low, "maximum": span.high, "above": span.above, "scope": "sampling", "help": text}
    return field(default=default, metadata={"kind": "int" if span.whole else "float", **row})


def _choice(default: str, choices: tuple[str, ...], scope: Scope, text: str) -> Any:
    row = {"kind": "choice", "choices": choices, "scope": scope, "help": text}
    return field(default=default, metadata=row)


def _word(scope: Scope, text: str) -> Any:
    return field(default=None, metadata={"kind": "word", "scope": scope, "help": text})


def _strings(scope: Scope, text: str, *, default: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"kind": "strings", "scope": scope, "help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Every parameter with the value that holds: what was set, else the default. The fields are the table."""

    temperature: float = _drawn(
        0.8, RANGES["temperature"], "How freely tokens are chosen; 0 always takes the likeliest."
    )
    top_k: int = _drawn(40, RANGES["top_k"], "Choose among the k likeliest tokens; 0 turns this off.")
    top_p: float = _drawn(
        0.9,
        RANGES["top_p"],
        "Choose among the likeliest tokens that together reach this probability; 1 turns this off.",
    )
    min_p: float = _drawn(
        0.0, RANGES["min_p"], "Drop tokens less likely than this fraction of the likeliest; 0 turns this off."
    )
    typical_p: float = _drawn(
        1.0,
        RANGES["typical_p"],
        "Choose among the most typical tokens that together reach this probability; 1 turns this off.",
    )
    top_n_sigma: float = _drawn(
        0.0,
        RANGES["top_n_sigma"],
        "Drop tokens whose logit is more than so many standard deviations below the best; 0 turns this off.",
    )
    dynatemp_range: float = _drawn(
        0.0,
        RANGES["dynatemp_range"],
        "Let the temperature be up to this much lower where the model is sure, and higher where it is not; 0 "
        "turns this off.",
    )
    dynatemp_exponent: float = _drawn(
        1.0,
        RANGES["dynatemp_exponent"],
        "How dynatemp_range follows the entropy: its share of the most possible, to this power.",
    )
    xtc_probability: float = _drawn(
        0.0,
        RANGES["xtc_probability"],
        "How often the top choices are excluded (XTC): of all tokens that reach xtc_threshold only the least "
        "likely stays; 0 turns this off, and temperature 0 does.",
    )
    xtc_threshold: float = _drawn(
        0.1,
        RANGES["xtc_threshold"],
        "The probability that makes a token a top choice; above 0.5 none is left out.",
    )
    repeat_last_n: int = _drawn(
        64,
        RANGES["repeat_last_n"],
        "How many tokens back the penalties look; 0 turns them off, -1 is the whole context.",
    )
    repeat_penalty: float = _drawn(
        1.0, RANGES["repeat_penalty"], "Divide the logits of tokens that occurred by this; 1 turns this off."
    )
    presence_penalty: float = _drawn(
        0.0, RANGES["presence_penalty"], "Subtract this from the logits of tokens that occurred."
    )
    frequency_penalty: float = _drawn(
        0.0, RANGES["frequency_penalty"], "Subtract this from a token's logit for each time it occurred."
    )
    dry_multiplier: float = _drawn(
        0.0,
        RANGES["dry_multiplier"],
        "Penalise a token that would go on with a repetition (DRY), by this times dry_base to the power of "
        "the repeated tokens beyond dry_allowed_length; 0 turns this off.",
    )
    dry_base: float = _drawn(
        1.75, RANGES["dry_base"], "By this the penalty of dry_multiplier grows with every repeated token."
    )
    dry_allowed_length: int = _drawn(
        2, RANGES["dry_allowed_length"], "Tokens that may be repeated before dry_multiplier acts."
    )
    dry_penalty_last_n: int = _drawn(
        -1,
        RANGES["dry_penalty_last_n"],
        "How many tokens back repetitions are looked for; 0 turns DRY off, -1 is the whole context.",
    )
    dry_sequence_breakers: tuple[str, ...] = _strings(
        "sampling",
        "Texts that no repetition is followed across; setting one replaces the default.",
        default=("\n", ":", '"', "*"),
    )
    seed: int = _int(
        -1,
        -1,
        2**63 - 1,
        "sampling",
        "The same seed and prompt give the same text; -1 draws a new seed each time.",
    )
    num_predict: int = _int(
        -1, -1, _INT_MAX, "generation", "Most tokens to generate; -1 is as many as the context holds."
    )
    min_tokens: int = _int(
        0,
        0,
        _INT_MAX,
        "generation",
        "Tokens before which the model cannot end its answer; a stop text, a form that is complete and any "
        "limit still can.",
    )
    num_keep: int | None = _int(
        None,
        -1,
        _INT_MAX,
        "generation",
        "How many tokens at the start of the prompt stay when the context is full; in a conversation, whole "
        "turns. The system message always stays; so does the first turn if this is -1 or unset.",
    )
    context_shift: str = _choice(
        "off",
        ("off", "on"),
        "generation",
        "What happens to an answer when the context is full: off ends it; on forgets some of the tokens "
        "after num_keep and continues.",
    )
    think: str = _choice(
        "auto",
        ("auto", "off", "on", "minimal", "low", "medium", "high", "xhigh", "max"),
        "generation",
        "Whether a model that can think before it answers does, and how much; auto leaves it to the chat "
        "template.",
    )
    think_tokens: int = _int(
        -1,
        -1,
        _INT_MAX,
        "generation",
        "Most tokens of thinking before the answer; then the thinking is closed. -1 is no limit.",
    )
    stop: tuple[str, ...] = _strings(
        "generation", "Texts that end the answer; they do not count in thinking and tool calls."
    )
    source_language: str | None = _word(
        "generation",
        "The language that a translation model reads, by the model's own code, such as eng_Latn or en_XX; "
        "unset is the default in its files.",
    )
    target_language: str | None = _word(
        "generation", "The language that it writes, by the same codes; unset is the default in its files."
    )
    draft_num_predict: int | None = _int(
        None,
        0,
        64,
        "generation",
        "Most tokens to draft per step; 0 turns drafting off and loads no draft, unset adapts to what pays.",
    )
    draft_acceptance: str = _choice(
        "coupled",
        ("coupled", "rejection"),
        "generation",
        "How drafted tokens are accepted: coupled never changes the text; rejection accepts a few more, but "
        "then the text depends on what was drafted.",
    )
    num_ctx: int | None = _int(
        None,
        2,  # one token of prompt, and one of answer
        _INT_MAX,
        "context",
        "Most tokens of prompt and answer together; unset is the model's maximum.",
    )
    kv_format: str = _choice(
        "auto",
        ("auto", "f32", "f16", "bf16", "q8", "q4"),
        "context",
        "How keys and values are stored; auto is the type the model computes in, q8 and q4 save memory.",
    )
    num_batch: int = _int(
        512,
        1,
        _INT_MAX,
        "machine",
        "Most prompt tokens per forward pass; fewer beside other answers, and if they take long.",
    )
    num_thread: int = _int(
        0,
        0,
        4096,
        "machine",
        "Threads for matrix products on the CPU; 0 is as many as other programs leave cores free.",
    )
    num_parallel: int = _int(8, 1, 1024, "machine", "Most answers generated at once; further requests wait.")


def _row(name: str, default: Any, metadata: Mapping[str, Any]) -> Parameter:
    return Parameter(name=name, default=default, **metadata)


PARAMETERS: dict[str, Parameter] = {f.name: _row(f.name, f.default, f.metadata) for f in fields(Resolved)}

_ONE_MEMORY = "MLX keeps all layers on one device"
_LOADING = "weights are mapped into memory where the device can use them so, and read otherwise"
_NO_SAMPLER = "this sampler is not offered; temperature, top_p, min_p and xtc_probability shape the text"
REFUSED: dict[str, str] = {
    "num_gpu": f"{_ONE_MEMORY}, so there is none to offload",
    "main_gpu": f"{_ONE_MEMORY}, so there is none to choose",
    "low_vram": f"{_ONE_MEMORY}; to save memory quantize the model or lower num_ctx",
    "numa": "MLX does not place memory by processor node",
    "use_mmap": f"{_LOADING}; there is nothing to choose",
    "use_mlock": f"{_LOADING}; the system keeps what is in use",
    "vocab_only": "models are always loaded completely",
    "logits_all": "Model.logits gives the logits of every position",
    "num_gqa": "the model's own config says how its heads are grouped",
    "f16_kv": "kv_format says how keys and values are kept",
    "penalize_newline": "penalties treat a newline like any other token",
    "mirostat": _NO_SAMPLER,
    "mirostat_tau": _NO_SAMPLER,
    "mirostat_eta": _NO_SAMPLER,
    "tfs_z": _NO_SAMPLER,
}

# Those that change neither the text nor what runs: in a Modelfile, which may have been written for Ollama,
# they are noted and passed over. Asked for on the command line or in Python, they are refused as well.
PASSED_OVER = frozenset(
    {
        *("num_gpu", "main_gpu", "low_vram", "numa", "use_mmap", "use_mlock", "logits_all", "num_gqa"),
        *("mirostat_tau", "mirostat_eta"),  # nothing without mirostat, which is refused
    }
)

# So are these with a value that says what holds here anyway, Ollama's defaults among them.
AS_HERE: dict[str, tuple[str, ...]] = {
    "mirostat": ("0",),
    "tfs_z": ("1", "1.0"),
    "penalize_newline": ("true", "1"),
    "vocab_only": ("false", "0"),
    "f16_kv": ("true", "1"),
}
