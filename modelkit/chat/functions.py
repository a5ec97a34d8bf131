"""The functions and types that a template finds under global names, each bounded."""

import json
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

from modelkit.chat import growth
from modelkit.chat.budget import Overrun

MOST_RANGE = 100_000


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
        raise SecurityError(f"a namespace has no names with an underscore in front: {name[:40]!r}")


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
