"""Fields of a request that are for somebody else's machinery: labels, caches, accounts, tiers.

An answer is the same without them, and a response names those that were given. But what a field is on the
wire holds for them, too: a client that sends `user: 5` has an error in it, which another server would find.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from modelkit.server.fields import Fields, wrong
from runtime.quoting import shown

Kind: TypeAlias = Callable[[Fields, str], object]
"""Raises Refused where a field is not of this kind."""

text: Kind = Fields.text
texts: Kind = Fields.texts
flag: Kind = Fields.flag
whole: Kind = Fields.whole
number: Kind = Fields.number


def one_of(*words: str) -> Kind:
    return lambda body, field: body.choice(field, words)


def thing(body: Fields, field: str) -> None:
    """An object, whatever is in it."""
    if not isinstance(body.raw(field), Mapping):
        raise body.wrong(field, "an object")


def things(body: Fields, field: str) -> None:
    """A list of objects."""
    for place, one in enumerate(body.items(field)):
        if not isinstance(one, Mapping):
            raise wrong(f"{body.name(field)}[{place}]", one, "an object")


def text_or_thing(body: Fields, field: str) -> None:
    if not isinstance(body.raw(field), str | Mapping):
        raise body.wrong(field, "a text or an object")


def labels(body: Fields, field: str) -> None:
    """Texts by name."""
    thing(body, field)
    for name, value in body.raw(field).items():
        if not isinstance(value, str):
            raise wrong(f"{body.name(field)}.{shown(name)}", value, "a text")


def check_hints(body: Fields, hints: Mapping[str, Kind]) -> tuple[str, ...]:
    """Those of the hints that there are, in order of their names. Raises Refused for one of another kind."""
    found = sorted(field for field in hints.keys() & body.peek.keys() if body.peek[field] is not None)
    for field in found:
        hints[field](body, field)
        body.idle(field)
    return tuple(found)
