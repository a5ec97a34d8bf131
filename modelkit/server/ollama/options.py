"""`options` of a request: Ollama's names and habits to PARAMETERs of ours.

Where a client and Ollama have more room than the table of parameters, the nearest value that means the same
is taken: a negative seed or num_predict is -1, a negative top_k or temperature is 0, a top_p above 1 is 1.
What cannot act on one request is left out, and a header of the response names it; clients send such options
by habit.
"""

import math
from collections.abc import Mapping
from typing import Any

from modelkit.json_text import is_number
from modelkit.modelfile import PARAMETERS, Parameter
from modelkit.server.faults import Refused, refused
from modelkit.server.fields import LEAST_TOP_P, Fields
from runtime.records import dataclass

_LEAST = {"seed": -1, "num_predict": -1, "top_k": 0, "num_keep": -1, "repeat_last_n": -1}
_NEAREST = {
    "temperature": (0.0, math.inf),
    "top_p": (LEAST_TOP_P, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (LEAST_TOP_P, 1.0),
    "top_n_sigma": (0.0, math.inf),
}
"""Shares and a temperature beyond these mean to Ollama what they themselves mean."""
_IN_GO = {"int": "integer", "float": "float32", "strings": "array", "choice": "string", "word": "string"}


@dataclass(frozen=True, slots=True)
class Options:
    """What a request's options come to."""

    parameters: Mapping[str, Any]
    """For `Model.chat` and `Model.generate`."""
    context: int | None = None
    """num_ctx: most tokens of prompt and answer together, for this request. None: as the model was loaded."""
    ignored: tuple[str, ...] = ()
    """Names that were left out."""


def read_options(given: Fields | None) -> Options:
    """Raises Refused for a known option with a value of a wrong type."""
    parameters: dict[str, Any] = {}
    ignored: list[str] = []
    context: int | None = None
    for name, value in ({} if given is None else given.value).items():
        row = PARAMETERS.get(name)
        if value is None:
            continue
        if name == "num_ctx" and row:
            wanted = _whole(row, value)
            if wanted < 1:  # which no prompt fits: who sends that means none of its own
                ignored.append("options.num_ctx")
            else:
                context = int(min(max(2, wanted), row.maximum))
        elif row is None or row.at_load:
            ignored.append(f"options.{name}")
        else:
            parameters[name] = _value(row, value)
    return Options(parameters, context, tuple(ignored))


def _value(row: Parameter, value: object) -> object:
    if row.kind == "int":
        return max(_LEAST.get(row.name, row.minimum), _whole(row, value))
    if row.kind == "float":
        if not is_number(value):
            raise _wrong_type(row)
        if isinstance(value, int) and abs(value) >= 2**63:
            return value  # refused later
        least, most = _NEAREST.get(row.name, (-math.inf, math.inf))
        return min(max(least, float(value)), most)
    if row.kind == "strings":
        return _texts(row, value)
    if not isinstance(value, str):
        raise _wrong_type(row)
    return value


def _whole(row: Parameter, value: object) -> int:
    """Clients send whole numbers as floats; Ollama cuts the rest off, too."""
    if not is_number(value):
        raise _wrong_type(row)
    return int(value)


def _texts(row: Parameter, value: object) -> list[str]:
    """Empty texts stop nothing."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise _wrong_type(row)
    return [one for one in texts if one]


def _wrong_type(row: Parameter) -> Refused:
    return refused(
        "invalid_request", f'option "{row.name}" must be of type {_IN_GO[row.kind]}', f"options.{row.name}"
    )
