"""How tokens are drawn and how far an answer goes: the fields that all of OpenAI's requests share.

Beside OpenAI's own names those of vLLM, SGLang, llama.cpp and LM Studio are read, which clients send as extra
fields of the body. Ranges are those of the PARAMETERs, said in the client's own words.
"""

from typing import Any

from modelkit.modelfile import PARAMETERS
from modelkit.server import hints
from modelkit.server.faults import refused
from modelkit.server.fields import EMPTY, LEAST_TOP_P, Fields
from modelkit.server.models.turns import Priority
from runtime.quoting import quoted

MOST_TOP_LOGPROBS = 20
MOST_BIASED = 1024

_NUMBERS = {
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "min_p": ("min_p",),
    "typical_p": ("typical_p", "typical", "typ_p"),
    "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "repeat_penalty": ("repeat_penalty", "repetition_penalty"),
    "top_n_sigma": ("top_n_sigma",),
    "dynatemp_range": ("dynatemp_range",),
    "dynatemp_exponent": ("dynatemp_exponent",),
    "xtc_probability": ("xtc_probability",),
    "xtc_threshold": ("xtc_threshold",),
    "dry_multiplier": ("dry_multiplier",),
    "dry_base": ("dry_base",),
}
_WHOLES = {
    "top_k": ("top_k",),
    "repeat_last_n": ("repeat_last_n", "repetition_context_size"),
    "dry_allowed_length": ("dry_allowed_length",),
    "dry_penalty_last_n": ("dry_penalty_last_n",),
    "min_tokens": ("min_tokens", "min_new_tokens"),
    "num_predict": ("max_completion_tokens", "max_tokens", "n_predict", "num_predict"),
    "num_keep": ("num_keep", "n_keep"),
    "draft_num_predict": ("draft_num_predict", "num_draft_tokens"),
}
_TIERS: dict[str, Priority] = {"flex": "background", "priority": "interactive", "fast": "interactive"}
_LANGUAGES = "source_language", "target_language"
_WORDS = {name: (name,) for name in ("context_shift", "draft_acceptance", *_LANGUAGES)}

# What these do elsewhere is not done here; with these values they do nothing there either.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "allowed_token_ids": ([],),
    "samplers": ([],),
    "min_keep": (0, 1),
    "n_probs": (0,),
    "post_sampling_probs": (False,),
    "xtc_special_tokens": ([],),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "use_beam_search": (False,),
    "length_penalty": (0, 1),
    "early_stopping": (False,),
    "truncate_prompt_tokens": (),
    "prompt_logprobs": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "logit_processors": ([],),
    "mirostat": (0,),
    "mirostat_tau": (5,),
    "mirostat_eta": (0.1,),
    "tfs_z": (1,),
    "top_a": (0,),
    "n_discard": (0,),
    "t_max_predict_ms": (0, -1),
    "penalize_nl": (False,),
}

# What does some of it here.
_NO_SAMPLER = "temperature, top_p, min_p and xtc_probability shape the text"
_INSTEAD = {
    "mirostat": _NO_SAMPLER,
    "tfs_z": _NO_SAMPLER,
    "top_a": _NO_SAMPLER,
    "bad_words": "logit_bias lowers single tokens",
    "allowed_token_ids": "regex, grammar or response_format say what an answer may be",
    "stop_token_ids": "stop ends an answer at a text",
    "samplers": "their order is fixed, and those that are off do nothing",
    "n_probs": "top_logprobs gives log-probabilities",
    "penalize_nl": "penalties treat a line end like any other token",
}

# An answer is the same without these.
HINTS: dict[str, hints.Kind] = {
    "user": hints.text,
    "metadata": hints.labels,
    "store": hints.flag,
    "safety_identifier": hints.text,
    "moderation": hints.thing,
    "prediction": hints.thing,
    "verbosity": hints.one_of("low", "medium", "high"),
    "web_search_options": hints.thing,
    "prompt_cache_key": hints.text,
    "prompt_cache_options": hints.thing,
    "prompt_cache_retention": hints.one_of("in_memory", "in-memory", "24h"),
    "cache_prompt": hints.flag,
    "cache_salt": hints.text,
    "id_slot": hints.whole,
    "slot_id": hints.whole,
    "request_id": hints.text,
    "priority": hints.whole,
    "spaces_between_special_tokens": hints.flag,
    "add_special_tokens": hints.flag,
}

FIELDS = frozenset(
    {
        *(name for names in (*_NUMBERS.values(), *_WHOLES.values()) for name in names),
        *_WORDS,
        *_NEUTRAL,
        *HINTS,
        "seed",
        "stop",
        "dry_sequence_breakers",
        "ignore_eos",
        "logit_bias",
        "keep_alive",
        "service_tier",
        "adapters",
    }
)


def read_sampling(body: Fields) -> dict[str, Any]:
    """PARAMETERs, logit_bias and adapters: keyword arguments of `Model.chat` and `Model.generate`."""
    found: dict[str, Any] = {}
    for table, read in ((_NUMBERS, body.number), (_WHOLES, body.whole), (_WORDS, body.text)):
        for name, spellings in table.items():
            spelt = body.first(spellings)
            if spelt is not None:
                found[name] = body.fit(spelt, name, _meant(name, read(spelt)))
    _refuse_unlike_neutral(body)
    return (
        found | _seed(body) | _stop(body) | _breakers(body) | _endless(body) | _bias(body) | adapters_in(body)
    )


def _meant(name: str, value: Any) -> Any:
    """Values that are in range elsewhere."""
    if name == "top_p" and value == 0:
        return LEAST_TOP_P
    return 0 if name in ("top_k", "top_n_sigma") and value == -1 else value  # "off" in vLLM, and llama.cpp


def seeds(options: dict[str, Any], row: int) -> dict[str, Any]:
    """The options of one of several answers: each has a seed of its own, told by the first one's."""
    seed = options.get("seed")
    return options if seed is None or row == 0 else {**options, "seed": (seed + row) % 2**63}


def read_top_logprobs(body: Fields) -> int | None:
    """Chat's pair of fields; None where no log-probabilities are asked for."""
    wanted, top = body.flag("logprobs", default=False), body.whole("top_logprobs", 0, MOST_TOP_LOGPROBS)
    if wanted:
        return top or 0
    if top:
        raise refused("invalid_request", "top_logprobs needs logprobs to be true", "top_logprobs")
    return None


def refuse_unknown(body: Fields, known: frozenset[str]) -> None:
    """Names the first field that would have been passed over in silence. One that is off may mean as much as
    one that is on.
    """
    for field, value in body.peek.items():
        if field not in known and value not in EMPTY:
            raise refused("invalid_request", f"the field {quoted(field)} is not known here", field[:80])


def hints_in(body: Fields) -> tuple[str, ...]:
    """The fields that were given and change nothing. Raises Refused for one that is not what it is on the
    wire.
    """
    return hints.check_hints(body, HINTS)


def read_keep_alive(body: Fields) -> float | None:
    """`keep_alive` in seconds; None where the server decides."""
    return body.duration("keep_alive")


def read_priority(body: Fields) -> Priority | None:
    """`service_tier` where it says who goes first; None where the server decides."""
    tier = body.choice("service_tier", ("auto", "default", "scale", *_TIERS))
    return _TIERS.get(tier) if tier else None


def _refuse_unlike_neutral(body: Fields) -> None:
    for field in [one for one in _NEUTRAL if body.peek.get(one) is not None]:
        if body.raw(field) not in _NEUTRAL[field]:
            instead = f": {_INSTEAD[field]}" if field in _INSTEAD else ""
            raise refused(
                "invalid_request", f"{body.name(field)} is not offered by this server{instead}", field
            )


def _seed(body: Fields) -> dict[str, Any]:
    """-1 draws one, as for llama.cpp and Ollama. OpenAI takes other negative ones, too."""
    seed = body.whole("seed", -(2**63), 2**64 - 1)
    return {} if seed is None or seed == -1 else {"seed": seed % 2**63}


def _stop(body: Fields) -> dict[str, Any]:
    stops = [one for one in body.texts("stop") if one]
    return {"stop": body.fit("stop", "stop", stops)} if stops else {}


def _breakers(body: Fields) -> dict[str, Any]:
    """An empty list: repetitions are followed across everything."""
    field = "dry_sequence_breakers"
    return {field: body.fit(field, field, body.texts(field))} if body.has(field) else {}


def _endless(body: Fields) -> dict[str, Any]:
    """`ignore_eos`: the model cannot end its answer, so only a limit, a stop text or a complete form does."""
    ignored = body.flag("ignore_eos", default=False)
    return {"min_tokens": int(PARAMETERS["min_tokens"].maximum)} if ignored else {}


def _bias(body: Fields) -> dict[str, Any]:
    """{"50256": -100}: token ids as texts. A bias of 0 is none."""
    biased = body.fields("logit_bias")
    if biased is None:
        return {}
    biases: dict[int, float] = {}
    for key in biased.value:
        bias = biased.number(key, -100, 100)
        if not bias:
            continue
        if not (key.isascii() and key.isdecimal() and len(key) < 10):
            raise refused(
                "invalid_request", f"logit_bias has the key {quoted(key)}; expected a token id", "logit_bias"
            )
        biases[int(key)] = bias
    if len(biases) > MOST_BIASED:
        raise refused(
            "invalid_request",
            f"logit_bias has {len(biases):,} ids, expected at most {MOST_BIASED:,}",
            "logit_bias",
        )
    return {"logit_bias": biases} if biases else {}


def adapters_in(body: Fields) -> dict[str, Any]:
    """The package's adapters by name, or with scales: an extension of ours."""
    named = body.raw("adapters")
    if named is None:
        return {}
    if not isinstance(named, list | dict):
        raise body.wrong("adapters", "a list of names, or an object of scales by name")
    return {"adapters": named}
