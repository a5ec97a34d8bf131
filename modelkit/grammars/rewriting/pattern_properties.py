"""What a schema says of names: patterns that one name fits together are written apart, also those of
several parts of an allOf, and so is what `propertyNames` says beside properties and patterns.

    {"patternProperties": {"^a": A, "b$": B}}
        = names with a in front and no b behind: A  |  with b behind and no a in front: B  |  with both: both

The library takes patterns that have no name in common, and no `propertyNames`. A name that is listed and fits
a pattern has what both say, and is none of the pattern's: in calls nobody else puts them together, nor does
the library where that refers to something in a circle. Patterns that a few names fit are these names: where
all of them were written, or are listed, the library takes a comma for one more. What takes too long to write
stays as it was, and is refused.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from modelkit.grammars.patterns.automata import (
    Automaton,
    WorkLimit,
    accepted_texts,
    accepts,
    accepts_any,
    complement,
    intersection,
    of_length,
    of_texts,
)
from modelkit.grammars.patterns.determinizing import automaton_of
from modelkit.grammars.patterns.elimination import pattern_of
from modelkit.grammars.patterns.syntax import UnsupportedPattern
from modelkit.grammars.patterns.text_sets import patterns_in
from modelkit.grammars.rewriting.cases import SAYS_NOTHING, TYPES, Case, Work, case_of, conjoined, written_of
from modelkit.grammars.rewriting.negation import cases_of
from modelkit.grammars.schemas.traversal import Schema, subschemas
from modelkit.grammars.schemas.variant import VARIANT_KEYWORDS, NotExpressible

_NAMES = "propertyNames"
_PATTERNS = "patternProperties"
_OBJECT = frozenset({"properties", _PATTERNS, "additionalProperties"})
_MOST_PATTERNS = 6
_MOST_NAMES = 300  # that are told from a pattern
_FEW_NAMES = 64  # that are written in the place of one

_Group = tuple[Automaton, str | None, list[Any]]
"""(names, the pattern that is written for them as it is, schemas of their properties)."""


def with_disjoint_names(root: Schema) -> bool:
    """Write them out, in place. Was there any?"""
    writing = _Writing(root)
    for _, schema in reversed([*subschemas(root)]):
        with suppress(NotExpressible, TypeError, AttributeError, LookupError):
            writing.changed |= _join(schema)
        if _NAMES in schema or _PATTERNS in schema:
            try:
                writing.write_out(schema)
            except (NotExpressible, UnsupportedPattern, TypeError, AttributeError, LookupError):
                continue  # as it is: the library says what is wrong
    return writing.changed


def with_few_names(root: Schema) -> bool:
    """Write those names in the place of patterns that a few fit, in place. Was there any?"""
    looks, found = WorkLimit(), False
    for _, schema in subschemas(root):
        patterns = schema.get(_PATTERNS)
        if not isinstance(patterns, dict):
            continue
        for pattern in [*patterns]:
            with suppress(UnsupportedPattern, TypeError, AttributeError):
                if (texts := accepted_texts(automaton_of(pattern, looks), _FEW_NAMES)) is not None:
                    named, said = schema.setdefault("properties", {}), patterns.pop(pattern)
                    named |= {name: _all([named.get(name, True), said]) for name in texts}
                    found = True
        if not patterns:
            _without_patterns(schema)
    return found


def _without_patterns(schema: Schema) -> None:
    """An object with nothing but named properties is closed where that is not said (`schema.as_meant`)."""
    del schema[_PATTERNS]
    schema.setdefault("additionalProperties", True)


def _join(schema: Schema) -> bool:
    """Put what several parts of an allOf say of names together, where one has patterns, in place."""
    every = schema.get("allOf", ())
    plain = [
        one for one in every if isinstance(one, dict) and not one.keys() - VARIANT_KEYWORDS - SAYS_NOTHING
    ]
    named = [one for one in (schema, *plain) if one.keys() & _OBJECT]
    if len(named) < 2 or not any(_PATTERNS in one for one in named):
        return False
    case = case_of({key: value for key, value in schema.items() if key in VARIANT_KEYWORDS})
    for one in plain:
        case = case and (said := case_of(one)) and conjoined(case, said)
    if case is None:  # nothing is left of it, which the library says
        return False
    written = written_of(case)
    rest = [one for one in every if not any(one is other for other in plain)]
    kept = {key: value for key, value in schema.items() if key not in VARIANT_KEYWORDS and key != "allOf"}
    more = [*rest, *written.pop("allOf", ())]
    schema.clear()
    schema |= kept | written | ({"allOf": more} if more else {})
    return True


class _Writing:
    """Changes schemas within `root`, in place."""

    def __init__(self, root: Schema) -> None:
        self.changed = False
        self._root, self._looks, self._work = root, WorkLimit(), Work()
        self._known: dict[str, Automaton | ValueError] = {}
        self._automata: dict[str, Automaton] = {}

    def write_out(self, schema: Schema) -> None:
        """Raises NotExpressible and UnsupportedPattern."""
        patterns = schema.get(_PATTERNS, {})
        names = self._of_names(schema[_NAMES]) if _NAMES in schema else None
        groups: list[_Group] = [
            (self._of_pattern(pattern), pattern, [inner]) for pattern, inner in patterns.items()
        ]
        if len(groups) > _MOST_PATTERNS:
            raise UnsupportedPattern(f"more than {_MOST_PATTERNS} patterns")
        named = dict(schema.get("properties", {}))
        met = any(_said_by(groups, name) for name in named)
        overlap = any(map(self._meet, groups, [groups[:place] for place in range(len(groups))]))
        a_few = any(accepted_texts(its, _FEW_NAMES) is not None for its, _, _ in groups)
        if names is None and not overlap and not met and not a_few:
            return
        groups = self._told_apart(groups)
        for name in named:
            said = _said_by(groups, name)
            named[name] = False if names and not accepts(names, name) else _all([named[name], *said])
        if names is not None:
            groups = self._with_others(groups, schema.get("additionalProperties", True))
            groups = [group for one in groups if (group := self._within(one, names)) is not None]
        taken = self._listed([*named])
        written = dict[str, Any]()
        for one in groups:
            if (its := self._within(one, complement(taken))) is None:
                continue
            if (texts := accepted_texts(its[0], _FEW_NAMES)) is not None:
                named |= dict.fromkeys(texts, _all(its[2]))
            else:
                written[its[1] or pattern_of(its[0])] = _all(its[2])
        self._put(schema, named, written)

    def _of_pattern(self, pattern: str) -> Automaton:
        if pattern not in self._automata:
            self._automata[pattern] = automaton_of(pattern, self._looks)
        return self._automata[pattern]

    def _put(self, schema: Schema, named: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        self._work.write([named, written])
        if _NAMES in schema:
            del schema[_NAMES]
            schema["additionalProperties"] = False
        for key, value in (("properties", named), (_PATTERNS, written)):
            if value:
                schema[key] = value
            elif key in schema and key == _PATTERNS:
                _without_patterns(schema)
        self.changed = True

    def _of_names(self, schema: Any) -> Automaton:
        """What it takes. Raises NotExpressible and UnsupportedPattern for what is more than texts."""
        key = json.dumps(schema)
        if key not in self._known:  # one may be referred to from everywhere
            try:
                self._known[key] = self._looked_through(schema)
            except (NotExpressible, UnsupportedPattern) as why:
                self._known[key] = why
        known = self._known[key]
        if isinstance(known, ValueError):
            raise known.with_traceback(None)
        return known

    def _looked_through(self, schema: Any) -> Automaton:
        every = [self._of_case(case) for case in cases_of(schema, self._root, self._work)]
        return (
            complement(intersection([complement(one) for one in every], self._looks))
            if every
            else of_texts([])
        )

    def _of_case(self, case: Case) -> Automaton:
        variant = case.variant
        if case.others:
            raise NotExpressible("more is said of names than of texts")
        if "string" not in variant.get("type", TYPES):
            return of_texts([])
        every = [automaton_of(pattern, self._looks) for pattern in patterns_in(variant)]
        if "minLength" in variant or "maxLength" in variant:
            every.append(of_length(int(variant.get("minLength", 0)), variant.get("maxLength")))
        every += [self._listed(variant["enum"])] if "enum" in variant else []
        every += [complement(self._listed(case.no))] if case.no else []
        return intersection(every, self._looks) if every else complement(of_texts([]))

    def _listed(self, names: Sequence[Any]) -> Automaton:
        texts = [name for name in names if isinstance(name, str)]
        if len(texts) > _MOST_NAMES:
            raise UnsupportedPattern("more names than are told from a pattern")
        return of_texts(texts)

    def _meet(self, one: _Group, others: Sequence[_Group]) -> bool:
        return any(accepts_any(intersection([one[0], other[0]], self._looks)) for other in others)

    def _told_apart(self, groups: Sequence[_Group]) -> list[_Group]:
        """Groups of names that have none in common."""
        apart = list[_Group]()
        for names, pattern, said in groups:
            left: _Group | None = (names, pattern, said)
            cut = list[_Group]()
            for its, its_pattern, its_said in apart:
                both = intersection([its, names], self._looks)
                if not accepts_any(both):
                    cut.append((its, its_pattern, its_said))
                    continue
                cut.append((both, None, [*its_said, *said]))
                cut += [one] if (one := self._within((its, its_pattern, its_said), complement(names))) else []
                left = self._within(left, complement(its)) if left else None
            apart = [*cut, *([left] if left else [])]
        return apart

    def _within(self, group: _Group, names: Automaton) -> _Group | None:
        """Those of its names that these take."""
        its, _, said = group
        if not accepts_any(intersection([its, complement(names)], self._looks)):
            return group
        less = intersection([its, names], self._looks)
        return (less, None, said) if accepts_any(less) else None

    def _with_others(self, groups: list[_Group], others: Any) -> list[_Group]:
        """And all other names."""
        if others is False:
            return groups
        rest = intersection(
            [complement(of_texts([])), *(complement(names) for names, _, _ in groups)], self._looks
        )
        return [*groups, (rest, None, [others])] if accepts_any(rest) else groups


def _said_by(groups: Sequence[_Group], name: str) -> list[Any]:
    return [one for names, _, said in groups if accepts(names, name) for one in said]


def _all(said: Sequence[Any]) -> Any:
    some = [one for place, one in enumerate(said) if one not in (True, {}) and one not in said[:place]]
    if any(one is False for one in some):
        return False
    return True if not some else some[0] if len(some) == 1 else {"allOf": some}
