"""The small files beside a tokenizer.json: what a model's makers publish, made of GGUF metadata."""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from modelkit.errors import MalformedFile
from modelkit.json_text import is_finite
from modelkit.source.gguf.vocabulary.pieces import KEY
from modelkit.source.gguf.vocabulary.special import Special
from runtime.quoting import quoted

_TEMPLATE = "tokenizer.chat_template"
_MOST_TEMPLATES = 64
_SAMPLING = "general.sampling."
_PARAMETERS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
}
"""llama.cpp's names, and generation_config.json's; of XTC transformers knows nothing."""
_NOT_APPLIED = {"mirostat": 0, "penalty_last_n": -1}
"""What else changes texts in llama.cpp, and the value with which it does not."""


def special_texts(special: Special, pieces: Sequence[str]) -> dict[str, str]:
    """bos_token, eos_token ...: as both tokenizer_config.json and special_tokens_map.json have them."""
    return {
        f"{role}_token": pieces[special.roles[role]]
        for role in ("bos", "eos", "unk", "pad", "sep", "cls", "mask")
        if role in special.roles
    }


def generation_config(
    metadata: Mapping[str, Any], special: Special, spare: Iterable[int], label: str
) -> dict[str, Any]:
    """Ids that end a text and ids that are never drawn (`spare`), and the authors' sampling.

    Raises MalformedFile for values of a wrong kind.
    """
    made: dict[str, Any] = {}
    for role in ("bos", "pad"):
        if role in special.roles:
            made[f"{role}_token_id"] = special.roles[role]
    if special.ends:
        made["eos_token_id"] = list(special.ends)
    never = sorted({*spare, *_ids(metadata, label)} - set(special.ends))
    if never:
        made["suppress_tokens"] = never
    for theirs, ours in _PARAMETERS.items():
        value = metadata.get(_SAMPLING + theirs)
        if value is not None:
            if not is_finite(value):
                raise MalformedFile(
                    f"{label}: `{_SAMPLING}{theirs}` is {quoted(value)}; a number was expected"
                )
            made[ours] = shortest(value)
    return made


def sampling_notes(metadata: Mapping[str, Any]) -> list[str]:
    """A sentence for each sampler of the authors' that acts in llama.cpp alone."""
    said = {name: metadata.get(_SAMPLING + name, idle) for name, idle in _NOT_APPLIED.items()}
    if metadata.get(_SAMPLING + "penalty_repeat", 1) == 1:
        del said["penalty_last_n"]  # of nothing
    acting = [name for name, value in said.items() if value != _NOT_APPLIED[name]]
    return [f"{_SAMPLING}{name} is not applied" for name in acting]


def shortest(value: float) -> int | float:
    """The shortest decimal that is the same number in 32 bits, which is how files store numbers."""
    if isinstance(value, int):
        return value
    return next((float(f"{value:.{digits}g}") for digits in range(1, 9) if _same(value, digits)), value)


def _same(value: float, digits: int) -> bool:
    text = float(f"{value:.{digits}g}")
    return struct.pack("<f", text) == struct.pack("<f", value)


def _ids(metadata: Mapping[str, Any], label: str) -> list[int]:
    value = metadata.get(KEY + "suppress_tokens", ())
    if not isinstance(value, tuple | list):
        raise MalformedFile(f"{label}: `{KEY}suppress_tokens` is not a list of ids")
    count = len(metadata.get(KEY + "tokens", ()))
    return [one for one in value if type(one) is int and 0 <= one < count]


def chat_templates(metadata: Mapping[str, Any], label: str) -> dict[str, str]:
    """Name of the template -> its source; the one without a name is `default`. Empty ones are none.

    Raises MalformedFile for templates that are not text.
    """
    names = metadata.get("tokenizer.chat_templates", ())
    if not isinstance(names, tuple | list) or len(names) > _MOST_TEMPLATES:
        raise MalformedFile(
            f"{label}: `tokenizer.chat_templates` is not a list of at most {_MOST_TEMPLATES} names"
        )
    keys = {**{str(name): f"{_TEMPLATE}.{name}" for name in names}, "default": _TEMPLATE}
    found = {name: metadata.get(key) for name, key in keys.items()}
    for name, source in found.items():
        if source is not None and not isinstance(source, str):
            raise MalformedFile(f"{label}: `{keys[name]}` is not text")
    return {name: source for name, source in found.items() if source and source.strip()}


def as_bytes(document: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """The same bytes for the same document."""
    separators = (",", ":") if indent is None else None
    return json.dumps(document, ensure_ascii=False, indent=indent, separators=separators).encode("utf-8")
