"""Choices of which exactly one may fit (oneOf), and objects that have so many of their properties, as cases.

Where no value fits two ways of a oneOf, it is an anyOf. Where one may, each way is written without what fits
another one: "a, and no b" or "b, and no a". Of an object whose properties are all named, at least two of
three are "the first two, or the first and the third, or ..."; of one that may have others, too, "... or the
first and others", and one that may have so many in all has just some of its names, or no others. What has no
such cases stays as it was written.

The objects are closed already (`schema.as_meant`), so what is left open here is meant to be. To the letter
most are open: of {"a": 1} both {"properties": {"a": ..}} and {"properties": {"b": ..}} hold, and a oneOf of
these does not. So a way is written without what fits another one to the letter. Where nothing is left of any,
or that is not known, without what fits another one as it is meant: and that is said.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from math import comb
from typing import Any

from modelkit.grammars.rewriting.cases import MOST_CASES, Case, Work, case_of, conjunction, names_in
from modelkit.grammars.rewriting.excluded_values import schemas_of_cases, write_exclusions
from modelkit.grammars.rewriting.negation import all_of, cases_of, none_of
from modelkit.grammars.schemas.traversal import LETTER, Schema, subschemas
from modelkit.grammars.schemas.variant import NotExpressible
from modelkit.schema import CLOSED

_MOST_BRANCHES = 64
_MOST_COUNTED = 300
_MOST_ANY = 4  # names of which each choice is written
_MOST_NAMED = 2_400  # in all ways together: each takes four of the parser's items
_DEFINITIONS = ("$defs", "definitions")
_COUNTS = ("minProperties", "maxProperties")


def without_one_of(root: Schema) -> str | None:
    """Write them out, in place. Returned is where a value first may fit several ways, to the letter."""
    several, work = dict[int, str](), Work()
    for at, schema in reversed([*subschemas(root)]):
        try:
            if "oneOf" in schema:
                choice = _Choice(schema, root, work)
                choice.write_out(at)
                if choice.meant:
                    several[id(schema)] = f"{at}/oneOf"
            if schema.keys() & {*_COUNTS}:
                letter = {**schema}
                work.start()
                _count(schema, work)
                work.note(schema, letter, at)
        except (NotExpressible, TypeError, AttributeError, LookupError):
            continue  # as it is: the library says what is wrong
    write_exclusions(root)
    places = [*subschemas(root)]
    for _, schema in places:
        for key in (LETTER, CLOSED):
            schema.pop(key, None)
    # What stood within another one that was written out may be there no more.
    return next((several[id(schema)] for _, schema in places if id(schema) in several), None)


class _Choice:
    """A oneOf of a schema. work: what is left of it for all of them."""

    def __init__(self, schema: Schema, root: Schema, work: Work) -> None:
        self._schema, self._root, self._work = schema, root, work
        work.start()
        self.meant = False
        """Are ways told apart only as they are meant?"""
        listed = schema["oneOf"]
        self._branches = [self._told_apart(branch) for branch in listed] if isinstance(listed, list) else []
        own = case_of(schema)
        self._said = [] if own is None else [own]

    def write_out(self, at: str) -> None:
        """at: its JSON pointer."""
        if not 1 <= len(self._branches) <= _MOST_BRANCHES:
            return
        letter = {key: value for key, value in self._schema.items() if key not in _DEFINITIONS}
        made = self._written()
        self._work.write(made)
        del self._schema["oneOf"]
        _add(self._schema, made)
        self._work.note(self._schema, letter, at)

    def _written(self) -> list[Any]:
        """The ways, each without what fits others."""
        with suppress(NotExpressible):
            made = self._without_others(letter=True)
            if any(branch is not False for branch in made):
                return made
        self.meant = True
        self._work.left_out.clear()
        return self._without_others(letter=False)

    def _without_others(self, *, letter: bool) -> list[Any]:
        """letter: others are what they say, and not what they are meant to be."""
        own = [conjunction(self._said, self._of(branch), self._work) for branch in self._branches]
        every = own
        if letter:
            every = [
                conjunction(self._said, all_of(branch, self._root, self._work), self._work)
                for branch in self._branches
            ]
        return [self._alone(place, own[place], every, closed=not letter) for place in range(len(own))]

    def _of(self, branch: Any) -> list[Case]:
        return cases_of(branch, self._root, self._work)

    def _told_apart(self, branch: Any) -> Any:
        """With the property that tells the ways apart, which OpenAPI asks for: pydantic writes one that has a
        default as if it might be left out, and does not read such an object.
        """
        said = self._schema.get("discriminator")
        name = said.get("propertyName") if isinstance(said, dict) else None
        if not isinstance(name, str):
            return branch
        cases = [case.variant for case in self._of(branch)]
        named = all(name in one.get("properties", ()) for one in cases)
        needed = all(name in one.get("required", ()) for one in cases)
        self._work.narrowed |= named and not needed
        return {"allOf": [branch, {"required": [name]}]} if named and not needed else branch

    def _alone(self, place: int, own: Sequence[Case], every: Sequence[list[Case]], *, closed: bool) -> Any:
        """One way, without what fits others."""
        others = [
            number
            for number in range(len(every))
            if number != place and conjunction(own, every[number], self._work)
        ]
        if not others:
            return self._branches[place]
        cases = [
            one
            for case in map(self._meant, self._of(self._branches[place]))
            for one in self._apart(case, {number: every[number] for number in others}, closed=closed)
        ]
        if len(cases) > MOST_CASES:
            raise NotExpressible(f"its conditions make more than {MOST_CASES} cases")
        made = schemas_of_cases(cases, {})
        return made[0] if len(made) == 1 else {"anyOf": made} if made else False

    def _meant(self, case: Case) -> Case:
        """An object with named properties is meant to be one."""
        if "properties" not in case.variant or case.variant.keys() & {"type", "enum"}:
            return case
        self._work.narrowed = True
        return replace(case, variant={**case.variant, "type": ["object"]})

    def _apart(self, case: Case, others: Mapping[int, list[Case]], *, closed: bool) -> list[Case]:
        """A case of a way, without what fits others."""
        own = conjunction(self._said, [case], self._work)
        left = [case] if own else []
        for number, its in others.items():
            if left and conjunction(own, its, self._work):
                branch, names = self._branches[number], names_in(own)
                none = none_of(branch, self._root, self._work, own[0].variant, names, closed=closed)
                left = conjunction(left, none, self._work)
        return left


def _count(schema: Schema, work: Work) -> None:
    """Of an object that names properties."""
    own = case_of(schema)
    said = {} if own is None else own.variant
    named = [name for name, inner in said.get("properties", {}).items() if inner is not False]
    must = [name for name in named if name in said.get("required", ())]
    free = [name for name in named if name not in must]
    least = max(schema.get("minProperties", 0) - len(must), 0)
    if said.get("additionalProperties") is not False or "patternProperties" in said:
        _count_with_others(schema, must, free, least, work)
        return
    surplus = max(len(named) - schema.get("maxProperties", len(named)), 0)
    if least > len(free) or surplus > len(free):
        return
    most = _MOST_COUNTED if 0 in (least, surplus) else MOST_CASES
    choices = comb(len(free), least) * comb(len(free), surplus)
    if choices > most or choices * len(named) > _MOST_NAMED:
        return
    there = [Case({"required": [*chosen]}) for chosen in combinations(free, int(least))]
    gone = [Case({"properties": dict.fromkeys(chosen, False)}) for chosen in combinations(free, int(surplus))]
    made = schemas_of_cases(
        conjunction(there, gone, work) if least and surplus else gone if surplus else there, {}
    )
    for key in _COUNTS:
        schema.pop(key, None)
    if made != [{}]:
        _add(schema, made)


def _count_with_others(schema: Schema, must: list[str], free: list[str], least: int, work: Work) -> None:
    """Of one that may have others: enough of those that are named, or fewer and the rest of them others."""
    if "maxProperties" in schema:
        _count_up_to(schema, must, free, least, work)
        return
    counts = range(min(least, len(free)) + 1)
    choices = sum(comb(len(free), count) for count in counts)
    if not free or not least or choices > MOST_CASES or choices * len(free) > _MOST_NAMED:
        return
    enough = schema.pop("minProperties")
    made = list[Schema]()
    for count in reversed(counts):
        for chosen in combinations(free, count):
            others = {} if count == least else {"minProperties": enough}
            gone = {name: False for name in free if name not in chosen} if others else {}
            made.append({"required": [*chosen], "properties": gone} | others)
    _add(schema, made)


def _count_up_to(schema: Schema, must: list[str], free: list[str], least: int, work: Work) -> None:
    """Of one that may have others, and so many in all: those that are named and no others, or just some that
    are named, and others. Of many that are named these are all of them, or none.
    """
    some = [*_some_of(free)] if len(free) <= _MOST_ANY else [(), tuple(free)]
    choices = comb(len(free), least) + len(some)
    if not free or len(must) + len(free) > schema["maxProperties"] or choices * len(free) > _MOST_NAMED:
        return
    if len(free) > _MOST_ANY:
        work.leave_out(
            f"beside others, more than {_MOST_ANY} listed properties are all there or none (maxProperties)"
        )
    counted = {key: schema.pop(key) for key in _COUNTS if key in schema}
    alone: Schema = {"properties": dict.fromkeys([*must, *free], True), "additionalProperties": False}
    made = [{**alone, "required": [*chosen]} for chosen in combinations(free, least)]
    for chosen in some:
        gone = {name: False for name in free if name not in chosen}
        made.append({"required": [*chosen], "properties": gone} | counted)
    _add(schema, made)


def _some_of(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for count in range(len(names) + 1):
        yield from combinations(names, count)


def _add(schema: Schema, branches: list[Any]) -> None:
    """One of these must hold, too."""
    if "anyOf" in schema:
        schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": branches}]
    else:
        schema["anyOf"] = branches
