"""What an object and a list may have in them, in an order that a grammar can be written in."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from modelkit.grammars.patterns.full_match import full_expression
from modelkit.grammars.patterns.syntax import UnsupportedPattern
from modelkit.grammars.rules.rules import Rules, either, escaped, literal
from modelkit.grammars.schemas.satisfiability import satisfiable
from modelkit.grammars.schemas.variant import Schema
from modelkit.grammars.schemas.variants import Variants
from runtime.quoting import quoted
from runtime.records import dataclass

NAME = r"[A-Za-z0-9_.\-]{1,64}"
"""A regular expression of names that no schema gives, where they stand bare."""
QUOTED = r"[^\"\\\x00-\x1F]{1,64}"
"""The same of names between quotes."""
KEYED = r"[^\s\"'<>{}\[\]\\|:,]([^\"<>{}\[\]\\|:,\x00-\x1F]{0,62}[^\s\"<>{}\[\]\\|:,])?"
"""The same of names that a colon ends."""


@dataclass(frozen=True, slots=True)
class Others:
    """Properties that no schema names."""

    name: str
    """A terminal's body: their names, in front of nothing else."""
    schema: Any


@dataclass(frozen=True, slots=True)
class Members:
    """An object's properties."""

    named: tuple[tuple[str, Any, bool], ...]
    """(name, schema, required) in their order."""
    others: tuple[Others, ...]
    least: int
    """How many others there are at least."""
    most: int | None


@dataclass(frozen=True, slots=True)
class Items:
    """A list's elements."""

    front: tuple[Any, ...]
    """The schemas of the first ones."""
    rest: Any
    """The schema of all others, False for none."""
    least: int
    most: int | None


def members_of(rules: Rules, variants: Variants, schema: Schema, at: str, names: str = NAME) -> Members:
    """schema: of objects alone (`of_kind`). names: a regular expression of those that no schema gives."""
    known, must = schema.get("properties", {}), dict.fromkeys(schema.get("required", ()))
    more = schema.get("additionalProperties", not known)  # who names some means these: see modelkit.schema
    patterns = schema.get("patternProperties", {})
    beside = more if isinstance(more, Mapping) else True
    named = [
        (name, its, name in must)
        for name, its in known.items()
        if satisfiable(rules, variants, its)
        or (name in must and variants.any_of(its))  # then it is said where it stands
    ]
    written = {name for name, _, _ in named}
    for name in (name for name in must if name in known and name not in written):
        rules.leave(f"required of {at}: no value was found that {quoted(name)} has")
    named += [(name, beside, True) for name in must if name not in known]
    taken = "|".join(map(escaped, dict.fromkeys([*known, *must])))
    fits = dict[str, str]()
    for pattern in patterns:
        try:
            fits[pattern] = full_expression(pattern)
        except UnsupportedPattern as error:
            rules.leave(f"patternProperties of {at}: none is written by {quoted(pattern)}: {error}")
    free = f"/{names}/" + (f" & ~/{taken}/" if taken else "")
    others = [Others(f"{free} & /{fit}/", patterns[pattern]) for pattern, fit in fits.items()]
    if more is not False and len(fits) == len(patterns):
        not_these = "".join(f" & ~/{fit}/" for fit in fits.values())
        others.append(Others(free + not_these, more))
    others = [
        one
        for one in others
        if satisfiable(rules, variants, one.schema) and rules.outcome(one.name) != "never"
    ]
    least, most = _counts(rules, schema, named, at)
    return Members(tuple(named), tuple(others) if most != 0 else (), least, most)


def _counts(
    rules: Rules, schema: Schema, named: Sequence[tuple[str, Any, bool]], at: str
) -> tuple[int, int | None]:
    """Of others, at least and at most."""
    least, most = schema.get("minProperties", 0), schema.get("maxProperties")
    sure = sum(must for _, _, must in named)
    if least > sure and sure < len(named):
        rules.leave(f"minProperties of {at}: it counts properties that may be left out")
        least = 0
    if most is not None and most < len(named) and sure < len(named):
        rules.leave(f"maxProperties of {at}: it counts properties that may be left out")
    return max(least - sure, 0), None if most is None else max(most - len(named), 0)


def items_of(rules: Rules, variants: Variants, schema: Schema) -> Items:
    """schema: of lists alone (`of_kind`)."""
    front, rest = tuple(schema.get("prefixItems", ())), schema.get("items", True)
    least = schema.get("minItems", 0)

    def can_be(place: int, one: Any) -> bool:
        return satisfiable(rules, variants, one) or (place < least and variants.any_of(one))

    known = [one for _, one in takewhile(lambda pair: can_be(*pair), enumerate(front))]
    ended = len(known) < len(front) or not can_be(len(known), rest)
    limits = [*([schema["maxItems"]] if "maxItems" in schema else []), *([len(known)] if ended else [])]
    most = min(limits, default=None)
    return Items(tuple(known[:most]), False if ended else rest, least, most)


def joined(rules: Rules, items: Items, front: Sequence[str], rest: str, comma: str) -> str:
    """Rules of elements one behind the other, with commas between them. front, rest: the rules of those."""
    count = len(front)
    between = f"{literal(comma)} " if comma else ""
    tail = ""
    if items.most is None or items.most > count:
        least = max(items.least - count, 0)
        most = None if items.most is None else items.most - count
        one = f"{between}{rest}" if count else rest
        tail = repeated(one, "" if count else comma, least, most)
    for place in reversed(range(count)):
        tail = f"{between if place else ''}{front[place]} {tail}"
        if place >= items.least:
            tail = f"({tail})?"
    return rules.rule(tail or '""')


def repeated(one: str, comma: str, least: int, most: int | None) -> str:
    """So many of them, with commas between them. most: above 0, for the library takes no {0,0}."""
    if not comma:
        return f"({one}){{{least},{'' if most is None else most}}}"
    more = f"{{{max(least - 1, 0)},{'' if most is None else max(most - 1, 0)}}}"
    filled = one if most == 1 else f"{one} ({literal(comma)} {one}){more}"
    return filled if least else f"({filled})?"


def listed(rules: Rules, parts: Sequence[tuple[str, bool]], comma: str) -> str:
    """Parts in this order with commas between them, those that are not required left out at will."""
    if not parts:
        return rules.rule('""')
    some = _some(rules, parts, literal(comma))
    return some if any(must for _, must in parts) else rules.rule(f'{some} | ""')


def _some(rules: Rules, parts: Sequence[tuple[str, bool]], comma: str) -> str:
    """At least one of them. In halves of halves: one rule behind the other would be as deep as there are
    parts, and deeper than the library goes.
    """
    if len(parts) == 1:
        return parts[0][0]
    halves = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    one, other = (_some(rules, half, comma) for half in halves)
    needed = [any(must for _, must in half) for half in halves]
    variants = [f"{one} {comma} {other}"]
    variants += [] if needed[1] else [one]
    variants += [] if needed[0] else [other]
    return rules.rule(either(variants))
