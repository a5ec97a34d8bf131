"""What a model's authors recommend in generation_config.json: sampling, ids that are never drawn, and those
that answers begin with.

Nothing in that file keeps a model from running, so a value that cannot be used is a note.
"""

from collections.abc import Collection, Mapping
from typing import Any

from modelkit.errors import ParameterError
from modelkit.modelfile import Parameters
from runtime.models import Described
from runtime.quoting import quoted

# Their names, and what they are called here.
_SAMPLING = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repeat_penalty",
    "xtc_probability": "xtc_probability",  # of GGUF files
    "xtc_threshold": "xtc_threshold",
    "min_new_tokens": "min_tokens",
}
# What else changes texts in transformers, and the value with which it does not.
_NOT_APPLIED: Mapping[str, Any] = {
    "bad_words_ids": [],
    "begin_suppress_tokens": [],
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "guidance_scale": 1,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "sequence_bias": None,
    "stop_strings": [],
    "token_healing": False,
    "top_h": None,
    "watermarking_config": None,
}


def read_generation_config(
    config: Mapping[str, Any], applied: Collection[str] = ()
) -> tuple[Parameters, tuple[str, ...]]:
    """The sampling that the model's authors recommend, and a note for each value that cannot be used and for
    what would change texts in transformers alone. applied: what others make use of.

    `do_sample: false` means greedy. A repetition penalty acts on the whole context there, so it does here.
    """
    values: dict[str, object] = {}
    notes: list[str] = []
    for theirs, ours in _SAMPLING.items():
        value = config.get(theirs)
        if value is None:
            continue
        try:
            values[ours] = Parameters({ours: value})[ours]
        except ParameterError as error:
            notes.append(f"generation_config.json: {error.message}; the default is used")
    if config.get("do_sample") is False:
        values["temperature"] = 0.0
    if values.get("repeat_penalty", 1.0) != 1.0:
        values["repeat_last_n"] = -1
    acting = [
        name
        for name, idle in _NOT_APPLIED.items()
        if name not in applied and _unused(name, config.get(name)) not in (None, idle)
    ]
    notes += [f"generation_config.json: {name} is not applied" for name in acting]
    return Parameters(values), tuple(notes)


def _unused(name: str, value: Any) -> Any:
    """Of it what is not applied: words of one id are never drawn (`read_suppressed`)."""
    if name != "bad_words_ids" or not isinstance(value, list):
        return value
    return [word for word in value if _single(word) is None]


def _single(word: Any) -> Any:
    """The id of a word of one."""
    return word[0] if isinstance(word, list) and len(word) == 1 else None


def read_suppressed(config: Mapping[str, Any], vocab_size: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The ids that the model's authors never want drawn, and a note for what cannot be used."""
    notes: list[str] = []
    named = config.get("suppress_tokens")
    ids: list[Any] = [] if named is None else named if isinstance(named, list) else [named]
    words = config.get("bad_words_ids")
    if isinstance(words, list):
        ids = [*ids, *(one for word in words if (one := _single(word)) is not None)]
    known = [one for one in ids if type(one) is int and 0 <= one < vocab_size]
    if len(known) < len(ids):
        other = next(one for one in ids if not (type(one) is int and 0 <= one < vocab_size))
        notes.append(
            f"generation_config.json: suppress_tokens has {quoted(other)}, expected ids "
            f"below {vocab_size}; it is left out"
        )
    if len(set(known)) == vocab_size:
        known = []
        notes.append("generation_config.json: suppress_tokens has every id there is; none is suppressed")
    return tuple(sorted(set(known))), tuple(notes)


def read_start(config: Mapping[str, Any], described: Described) -> tuple[int | None, tuple[str, ...]]:
    """What answers begin with where an encoder reads the prompt, and a note for what cannot be used. The
    authors' word here goes before that of config.json, as in transformers.
    """
    start, own = config.get("decoder_start_token_id"), described.start_id
    if own is None or start is None:
        return own, ()
    if type(start) is int and 0 <= start < described.vocab_size:
        return start, ()
    return own, (
        f"generation_config.json: decoder_start_token_id is {quoted(start)}, expected an id below "
        f"{described.vocab_size}; {own} is used, as config.json says",
    )


def read_forced(
    config: Mapping[str, Any], generation: Mapping[str, Any], vocab_size: int
) -> tuple[int | None, tuple[str, ...]]:
    """The id that stands behind it, and a note for what cannot be used. config: config.json, which counts for
    a model without the other file.
    """
    where, source = ("generation_config.json", generation) if generation else ("config.json", config)
    forced = source.get("forced_bos_token_id")
    if forced is None or (type(forced) is int and 0 <= forced < vocab_size):
        return forced, ()
    return None, (
        f"{where}: forced_bos_token_id is {quoted(forced)}, expected an id below {vocab_size}; answers "
        "begin without it",
    )
