"""Values of parameters: read from text, checked, merged, written back.

Each value has one canonical form (a float parameter is always a float, stop strings are a tuple), so equal
settings are equal values and packages made from them have equal digests. What is legal stands in
`parameter_table`; this file only applies it.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from modelkit import words
from modelkit.arguments import as_number, as_whole
from modelkit.errors import ParameterError
from modelkit.modelfile.parameter_table import (
    MAX_STOP_CHARACTERS,
    MAX_STOPS,
    MAX_WORD_CHARACTERS,
    PARAMETERS,
    REFUSED,
    Parameter,
    ParameterValue,
    Resolved,
)
from runtime.quoting import quoted

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_WORD = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_WORD_CHARACTERS}}}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,32}(?:\.[0-9]{0,32})?|\.[0-9]{1,32})(?:[eE][+-]?[0-9]{1,4})?")


def parse_parameter(name: str, text: str) -> ParameterValue:
    """The value that `text` spells, as in a Modelfile or after `-p name=`.

    A stop string becomes a tuple of one. Raises ParameterError for an unknown or refused name, for text
    that spells no such value, and for a value out of range.
    """
    row = _lookup(name)
    if row.kind in ("choice", "word", "strings"):
        return check_parameter(name, text)
    if not (_INTEGER if row.kind == "int" else _NUMBER).fullmatch(text):
        raise _unfit(row, text)
    return check_parameter(name, int(text) if row.kind == "int" else float(text))


def check_parameter(name: str, value: object) -> ParameterValue:
    """A Python value in its canonical form. `stop` takes one text or several.

    Nothing is guessed: neither True nor "0.7" is a number, and 4096.0 is no whole number; numpy's numbers are
    what they are. Where "on" and
    "off" are choices, True and False mean them. Raises ParameterError.
    """
    row = _lookup(name)
    if row.kind == "strings":
        return _check_strings(row, value)
    if row.kind == "choice":
        return _check_choice(row, value)
    if row.kind == "word":
        return _check_word(row, value)
    number = as_whole(value) if row.kind == "int" else as_number(value)
    if number is None or not row.holds(number):
        raise _unfit(row, value)
    return number if row.kind == "int" else number + 0.0  # -0.0 and 0.0 are one setting


def check_name(name: str) -> str:
    """The name itself. Raises ParameterError for one that is not in the table."""
    return _lookup(name).name


def _check_strings(row: Parameter, value: object) -> tuple[str, ...]:
    texts: tuple[object, ...]
    match value:
        case str():
            texts = (value,)
        case list() | tuple():
            texts = tuple(value)
        case _:
            raise _unfit(row, value)
    if len(texts) > MAX_STOPS:
        raise ParameterError(f"{row.name} has {len(texts):,} texts, expected {row.expected}")
    several = not isinstance(value, str)
    return tuple(_check_stop(row, text, f"[{place}]" * several) for place, text in enumerate(texts))


def _check_choice(row: Parameter, value: object) -> str:
    if isinstance(value, bool) and row.switches:
        return "on" if value else "off"
    if isinstance(value, str) and value in row.choices:
        return value
    raise _unfit(row, value, hint=_meant_choice(row, value) if isinstance(value, str) else None)


def _check_word(row: Parameter, value: object) -> str:
    if isinstance(value, str) and _WORD.fullmatch(value):
        return str(value)
    raise _unfit(row, value)


def _meant_choice(row: Parameter, value: str) -> str | None:
    word = words.find(words.FORMATS, value)
    close = difflib.get_close_matches(value[:32].lower(), row.choices, n=1)
    found = word.ours if word is not None and word.ours in row.choices else next(iter(close), None)
    return f"Did you mean {found}?" if found else None


def _check_stop(row: Parameter, text: object, place: str) -> str:
    if isinstance(text, str) and not 1 <= len(text) <= MAX_STOP_CHARACTERS:
        raise ParameterError(f"{row.name}{place} has {len(text):,} characters, expected {row.expected}")
    if not isinstance(text, str) or not _encodable(text):
        raise _unfit(row, text)
    return str(text)


def _encodable(text: str) -> bool:
    """False for half a surrogate pair, which no text file or JSON answer can carry."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _lookup(name: str) -> Parameter:
    if name in PARAMETERS:
        return PARAMETERS[name]
    if name in REFUSED:
        raise ParameterError(f"parameter {name} has no meaning here: {REFUSED[name]}", hint="Leave it out.")
    word = words.find(words.PARAMETERS, name)
    if word is not None and not word.ours:
        raise ParameterError(f"parameter {name} is not known here: {word.instead}", hint="Leave it out.")
    raise ParameterError(f"unknown parameter {quoted(name)}", hint=_meant_name(name, word))


def _meant_name(name: str, word: words.Word | None) -> str:
    if word is not None:
        return f"Here it is {word.ours}."
    if name in ("adapter", "adapters"):
        return "Adapters are chosen with --adapter NAME[=SCALE], and by `adapters` of a request."
    close = difflib.get_close_matches(name[:32].lower(), PARAMETERS, n=3)
    return f"Did you mean {' or '.join(close)}?" if close else f"The parameters are {', '.join(PARAMETERS)}."


def _unfit(row: Parameter, value: object, *, hint: str | None = None) -> ParameterError:
    return ParameterError(f"{row.name} is {quoted(value)}, expected {row.expected}", hint=hint)


def _texts(value: ParameterValue) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return value
    return (value if isinstance(value, str) else repr(value),)


def at_load(names: Iterable[str]) -> list[str]:
    """Those of the parameters that are settled when a model is loaded, sorted."""
    return sorted(name for name in names if PARAMETERS[name].at_load)


def refuse_at_load(names: Iterable[str]) -> None:
    """Raise ParameterError where a request would change what is settled when a model is loaded."""
    if late := at_load(names):
        raise ParameterError(
            f"{', '.join(late)} cannot change for one request", hint="Set it when the model is loaded."
        )


class Parameters(Mapping[str, ParameterValue]):
    """The parameters that were set, and only those: a frozen mapping in the table's order.

        base = Parameters({"temperature": 0.2, "stop": ["###"]})
        base.merge(Parameters({"temperature": 1})).resolved().temperature == 1.0

    Raises ParameterError for any name or value that is not in the table.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        checked = {name: check_parameter(name, value) for name, value in (values or {}).items()}
        self._values = {name: checked[name] for name in PARAMETERS if name in checked}

    def __getitem__(self, name: str) -> ParameterValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return f"Parameters({self._values})"

    def added(self, name: str, text: str) -> "Parameters":
        """With one more `name` `text` from a Modelfile or command line.

        Stop strings add up; setting any other name twice raises ParameterError.
        """
        value = parse_parameter(name, text)
        old = self._values.get(name)
        if old is not None and not PARAMETERS[name].repeats:
            raise ParameterError(f"{name} is set twice: {old} and {value}", hint="Leave one of them out.")
        more = old + value if isinstance(old, tuple) and isinstance(value, tuple) else value
        return Parameters({**self._values, name: more})

    def merge(self, other: "Parameters") -> "Parameters":
        """Both; where both set a name `other` wins, its list of stop strings as a whole."""
        return Parameters({**self._values, **other})

    def resolved(self) -> Resolved:
        """With the defaults for all that is not set."""
        values: dict[str, Any] = self._values
        return Resolved(**values)

    def texts(self) -> tuple[tuple[str, str], ...]:
        """The (name, text) pairs of the PARAMETER lines that say the same, in the table's order."""
        return tuple((name, text) for name, value in self.items() for text in _texts(value))

    def to_json(self) -> dict[str, int | float | str | list[str]]:
        """A JSON object, keys sorted: equal parameters give equal bytes."""
        return {n: list(v) if isinstance(v, tuple) else v for n, v in sorted(self._values.items())}

    @classmethod
    def from_json(cls, value: object) -> "Parameters":
        """The inverse of `to_json`, for an object that may come from anyone."""
        if not isinstance(value, dict):
            raise ParameterError(f"parameters are {type(value).__name__}, expected a JSON object")
        return cls({str(name): setting for name, setting in value.items()})
