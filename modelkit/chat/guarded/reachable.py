"""What a template finds under a name: filters, tests, methods of plain values, and global functions.

Everything a chat template has been seen to need, and nothing because jinja2 has it: what a later release of
jinja2 or of Python adds stays out of reach until it stands here. A filter or a method that can make much of
little has its row in `growth`; the functions bound themselves.
"""

import json
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

from modelkit.chat.guarded import growth
from modelkit.chat.guarded.budget import Overrun
from runtime.quoting import quoted

MOST_RANGE = 100_000

_FILTERS = """
    abs attr batch capitalize center count d default dictsort e escape first float format groupby indent int
    items join last length list lower map max min reject rejectattr replace reverse round safe select
    selectattr slice sort string sum title tojson trim truncate unique upper wordcount wordwrap
"""

_TESTS = """
    != < <= == > >= boolean callable defined divisibleby eq equalto escaped even false filter float ge
    greaterthan gt in integer iterable le lessthan lower lt mapping ne none number odd sameas sequence string
    test true undefined upper
"""

_TEXT_METHODS = """
    capitalize casefold center count endswith expandtabs find index isalnum isalpha isascii isdecimal isdigit
    isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip partition
    removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith
    strip swapcase title upper zfill
"""

FILTERS = frozenset(_FILTERS.split())
TESTS = frozenset(_TESTS.split())

ATTRIBUTES: tuple[tuple[type, frozenset[str]], ...] = (
    (str, frozenset(_TEXT_METHODS.split())),
    (dict, frozenset({"copy", "get", "items", "keys", "values"})),
    (list, frozenset({"copy", "count", "index"})),
    (tuple, frozenset({"count", "index", "grouper", "list"})),  # the last two: what `groupby` yields
)


class Refused(Exception):
    """A template called `raise_exception`: it does not take this conversation."""


class PlainNamespace(Namespace):
    """Without names that begin with an underscore, and with nothing to print: it can hold itself."""

    def __init__(*args: Any, **named: Any) -> None:
        attributes = make_dict(*args[1:], **named)
        Namespace.__init__(args[0], attributes)
        for name in attributes:
            _check_name(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no names with an underscore in front: {quoted(name)}")


def make_dict(*args: Any, **named: Any) -> dict[str, Any]:
    for pairs in args:
        growth.check_pairs(pairs)
    return dict(*args, **named)


def make_range(*args: int) -> range:
    made = range(*args)
    if len(made) > MOST_RANGE:
        raise Overrun(f"it counts over more than {MOST_RANGE:,} numbers")
    return made


def raise_exception(message: object) -> None:
    raise Refused(str(message))


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
