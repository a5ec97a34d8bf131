"""`unevaluatedProperties` and `unevaluatedItems`, as what they say of each way in which a schema may hold.

    {"anyOf": [A, B], "unevaluatedProperties": false}
        = anyOf: A, and no property but its own  |  the same of B  |  A and B, and none but those of both

What is unevaluated depends on which parts of a schema hold: members of an anyOf or a oneOf, `if`, schemas of
properties that are there, and what all of these refer to. Of each choice of them the parts are written beside
each other, with `additionalProperties` and `items` for what none of them looks at. A choice only says what
does hold: where more holds more is looked at, and that is another choice. So whatever is written fits the
schema. Where nothing is chosen and nothing referred to, `schema.as_meant` does the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any

from modelkit.grammars.rewriting.cases import Case, Work, case_of, conjunction
from modelkit.grammars.rewriting.excluded_values import NOTHING
from modelkit.grammars.rewriting.negation import cases_of
from modelkit.grammars.schemas.traversal import Schema, as_of_2020, subschemas
from modelkit.grammars.schemas.variant import NotExpressible
from modelkit.schema import target
from runtime.quoting import quoted
from runtime.records import dataclass

_PROPERTIES, _ITEMS = "unevaluatedProperties", "unevaluatedItems"
_WITH = "dependentSchemas"
_MOST_CHOICES = 256  # before those are left out that say nothing more than others
_MOST_COMBINED = 64
_A_LOOK = 20  # of work, at a schema


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is looked at of a value."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    any_name: bool = False
    front: int = 0
    """Items."""
    any_item: bool = False
    contained: tuple[int, ...] = ()
    """Items that fit these schemas, by their identities."""

    def __add__(self, other: "_Seen") -> "_Seen":
        any_name, any_item = self.any_name or other.any_name, self.any_item or other.any_item
        return _Seen(
            () if any_name else _together(self.names, other.names),
            () if any_name else _together(self.patterns, other.patterns),
            any_name,
            0 if any_item else max(self.front, other.front),
            any_item,
            () if any_item else _together(self.contained, other.contained),
        )

    def within(self, other: "_Seen") -> bool:
        """Does the other look at all of it?"""
        return other + self == other


@dataclass(frozen=True, slots=True)
class _Choice:
    """Of what may hold beside all that does anyway."""

    seen: _Seen = _Seen()
    """By what holds."""
    parts: tuple[Any, ...] = ()

    def __add__(self, other: "_Choice") -> "_Choice":
        return _Choice(self.seen + other.seen, (*self.parts, *other.parts))


_NOTHING_SEEN = _Choice()


def without_unevaluated(root: Schema) -> dict[str, str]:
    """Write them out, in place. Returned are those that stay: why, by their JSON pointers."""
    places = [*subschemas(root)]
    looking = _Looking(root, contains=not as_of_2020(root, places))
    refused = dict[str, str]()
    for at, schema in reversed(places):
        for key in (_PROPERTIES, _ITEMS):
            try:
                if key in schema:
                    looking.write_out(schema, key)
            except NotExpressible as why:
                refused[f"{at}/{key}"] = f"`{key}` cannot be enforced: {why}"
            except (TypeError, AttributeError, LookupError):  # no schema: the library says what is wrong
                continue
    return refused


class _Looking:
    """Changes schemas within `root`, in place. contains: what fits `contains` is looked at, too."""

    def __init__(self, root: Schema, *, contains: bool) -> None:
        self._root, self._contains, self._work = root, contains, Work()
        self._key, self._passed, self._own_cases = "", list[int](), list[Case]()
        self._contained = dict[int, Any]()

    def write_out(self, schema: Schema, key: str) -> None:
        self._key, self._passed, said = key, [], schema.pop(key)
        own = case_of({word: value for word, value in schema.items() if word != "not"})
        self._own_cases = [] if own is None else [own]
        try:
            chosen = [word for word in _CHOSEN if self._looks(schema, word)]
            choices = _all_of([*self._always(schema), *(self._of(schema, word) for word in chosen)])
            if len(choices) > _MOST_COMBINED:
                raise NotExpressible(f"more than {_MOST_COMBINED} choices of its parts may hold")
            closing = [self._closed(choice.seen, said) for choice in choices]
            made = [_beside(its, choice.parts) for its, choice in zip(closing, choices, strict=True)]
            self._work.write(made)
        except BaseException:
            schema[key] = said
            raise
        kept = {} if _WITH not in chosen else self._silent(schema)
        for one in (one for word in chosen for one in _CHOSEN[word]):
            schema.pop(one, None)
        schema |= {_WITH: kept} if kept else {}
        if len(made) == 1:
            _join(schema, closing[0], choices[0].parts)
        elif made and "anyOf" not in schema:
            schema["anyOf"] = made
        else:
            _join(schema, {}, [{"anyOf": made} if made else NOTHING])

    def _looks(self, schema: Mapping[str, Any], word: str) -> bool:
        """Does it look at anything by this keyword?"""
        return word in schema and any(one.seen != _Seen() for one in self._of(schema, word))

    def _choices(self, schema: Any) -> list[_Choice]:
        """Those of a schema that holds anyway, or is a part itself."""
        if not isinstance(schema, Mapping):
            return [] if schema is False else [_NOTHING_SEEN]
        self._work.take(_A_LOOK)
        if id(schema) in self._passed:
            raise NotExpressible("it refers to itself")
        self._passed.append(id(schema))
        words = (self._of(schema, word, stays=True) for word in _CHOSEN if word in schema)
        claims = ([one if one.seen != _Seen() else _NOTHING_SEEN for one in some] for some in words)
        found = _all_of([*self._always(schema), *claims])
        self._passed.pop()
        return found

    def _always(self, schema: Mapping[str, Any]) -> Iterator[list[_Choice]]:
        """Of all that holds whenever the schema does."""
        yield [_Choice(_Seen() + self._own(schema))]
        every = [*schema.get("allOf", ())]
        if "$ref" in schema:
            found = target(schema["$ref"], self._root)
            if found is None:
                raise NotExpressible(f"where {quoted(schema['$ref'])} leads is not known")
            every.append(found)
        yield from map(self._choices, every)

    def _own(self, schema: Mapping[str, Any]) -> _Seen:
        """What its own keywords look at."""
        if self._key == _PROPERTIES:
            any_name = bool(schema.keys() & {"additionalProperties", _PROPERTIES})
            return _Seen((*schema.get("properties", ()),), (*schema.get("patternProperties", ()),), any_name)
        within = tuple[int, ...]()
        if self._contains and "contains" in schema:
            within = (id(schema["contains"]),)
            self._contained[within[0]] = schema["contains"]
        any_item = bool(schema.keys() & {"items", _ITEMS})
        return _Seen(front=len(schema.get("prefixItems", ())), any_item=any_item, contained=within)

    def _of(self, schema: Mapping[str, Any], word: str, *, stays: bool = False) -> list[_Choice]:
        """Of one keyword. stays: it still says itself what must not hold."""
        match word:
            case "anyOf":
                return self._some_of(schema[word])
            case "oneOf":
                return [*self._one_of(schema[word], stays=stays)]
            case "if":
                return self._where(schema)
            case _:
                silent = self._silent(schema)
                return _all_of(
                    self._with(name, one) for name, one in schema[word].items() if name not in silent
                )

    def _held(self, schema: Any) -> list[_Choice]:
        """Those of a schema that need not hold."""
        return [_Choice(one.seen, (schema, *one.parts)) for one in self._choices(schema)]

    def _some_of(self, branches: Sequence[Any]) -> list[_Choice]:
        apart, some = self._apart(branches), list[tuple[_Choice, tuple[int, ...]]]()
        for place, branch in enumerate(branches):
            held = self._held(branch)
            some += [
                (choice + one, (*places, place))
                for choice, places in (*some, (_NOTHING_SEEN, ()))
                if not any((before, place) in apart for before in places)
                for one in held
            ]
            some = [some[number] for number in _needed([choice for choice, _ in some])]
        return [choice for choice, _ in some]

    def _one_of(self, branches: Sequence[Any], *, stays: bool) -> Iterator[_Choice]:
        apart = set[tuple[int, int]]() if stays else self._apart(branches)
        for place, branch in enumerate(branches):
            met = [
                one
                for other, one in enumerate(branches)
                if other != place and _two(place, other) not in apart
            ]
            others = ({"not": {"anyOf": met}},) if met and not stays else ()
            for choice in self._held(branch):
                yield _Choice(choice.seen, (*choice.parts, *others))

    def _apart(self, branches: Sequence[Any]) -> set[tuple[int, int]]:
        """Those of which no value fits both, as far as that is seen."""
        if len(branches) > _MOST_COMBINED:
            raise NotExpressible(f"it has more than {_MOST_COMBINED} ways")
        cases = [cases_of(branch, self._root, self._work) for branch in branches]
        places = [(one, other) for other in range(len(branches)) for one in range(other)]
        return {two for two in places if not self._meet(cases[two[0]], cases[two[1]])}

    def _meet(self, some: Sequence[Case], more: Sequence[Case]) -> bool:
        try:
            return bool(conjunction(conjunction(self._own_cases, some, self._work), more, self._work))
        except NotExpressible:  # as far as that is seen
            return True

    def _where(self, schema: Mapping[str, Any]) -> list[_Choice]:
        condition, then, otherwise = schema["if"], schema.get("then", True), schema.get("else", True)
        held = _all_of([self._held(condition), self._held(then)])
        fails = () if then is True and otherwise is True else ({"not": condition},)
        return [*held, *(_Choice(one.seen, (*fails, *one.parts)) for one in self._held(otherwise))]

    def _silent(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Schemas of properties that are there which look at nothing."""
        every = schema[_WITH].items()
        return {name: one for name, one in every if all(its.seen == _Seen() for its in self._choices(one))}

    def _with(self, name: str, schema: Any) -> list[_Choice]:
        """Of a property that is there, or not."""
        none = _Choice(_Seen(), ({"properties": {name: False}},))
        there = _Choice(_Seen(), ({"required": [name]},))
        return [none, *(there + one for one in self._held(schema))]

    def _closed(self, seen: _Seen, said: Any) -> Schema:
        """What holds of all that nothing looks at."""
        if seen.any_name or seen.any_item:
            return {}
        if self._key == _PROPERTIES:
            named: Schema = {"properties": dict.fromkeys(seen.names, True)} if seen.names else {}
            patterns = {"patternProperties": dict.fromkeys(seen.patterns, True)} if seen.patterns else {}
            return {**named, **patterns, "additionalProperties": said}
        branches = [*(self._contained[one] for one in seen.contained), *([said] if said is not False else [])]
        rest = branches[0] if len(branches) == 1 else {"anyOf": branches} if branches else False
        return {**({"prefixItems": [True] * seen.front} if seen.front else {}), "items": rest}


_CHOSEN = {
    "anyOf": ("anyOf",),
    "oneOf": ("oneOf",),
    "if": ("if", "then", "else"),
    _WITH: (_WITH,),
}
"""Keywords that choose what holds, and all that goes with each."""


def _all_of(every: Iterable[list[_Choice]]) -> list[_Choice]:
    """All of these at once."""
    lists = [*every]
    found = [_sum([choices[0] for choices in lists if len(choices) == 1])]
    for choices in lists:
        if len(choices) != 1:
            both_ = [one + other for one, other in product(found, choices)]
            found = [both_[number] for number in _needed(both_)]
    return found


def _sum(choices: Sequence[_Choice]) -> _Choice:
    """The same of many that are the only ones: what is looked at is put together once."""
    seen = [one.seen for one in choices]
    whole = _Seen(
        _together(*(one.names for one in seen)),
        _together(*(one.patterns for one in seen)),
        any(one.any_name for one in seen),
        max((one.front for one in seen), default=0),
        any(one.any_item for one in seen),
        _together(*(one.contained for one in seen)),
    )
    return _Choice(_Seen() + whole, tuple(part for one in choices for part in one.parts))


def _needed(choices: Sequence[_Choice]) -> list[int]:
    """Those that look at more than others of which no more is asked. Raises NotExpressible for too many."""
    if len(choices) > _MOST_CHOICES:
        raise NotExpressible(f"more than {_MOST_COMBINED} choices of its parts may hold")
    parts = [{id(part) for part in one.parts} for one in choices]

    def less(other: int, place: int) -> bool:
        return parts[other] <= parts[place] and (other < place or parts[other] != parts[place])

    return [
        place
        for place, one in enumerate(choices)
        if not any(less(other, place) and one.seen.within(its.seen) for other, its in enumerate(choices))
    ]


def _join(schema: Schema, said: Schema, parts: Sequence[Any]) -> None:
    """Write both beside what the schema says."""
    for key, value in said.items():
        known = schema.get(key)
        if key in ("properties", "patternProperties") and isinstance(known, dict):
            schema[key] = {**value, **known}
        elif key == "prefixItems" and isinstance(known, list):
            schema[key] = [*known, *value[len(known) :]]
        else:
            schema[key] = value
    if parts:
        schema["allOf"] = [*schema.get("allOf", ()), *parts]


def _beside(said: Schema, parts: Sequence[Any]) -> Schema:
    some = [part for part in parts if part not in (True, {})]
    return {**said, **({"allOf": some} if some else {})}


def _two(one: int, other: int) -> tuple[int, int]:
    return (one, other) if one < other else (other, one)


def _together(*every: Sequence[Any]) -> tuple[Any, ...]:
    return (*dict.fromkeys(chain.from_iterable(every)),)
