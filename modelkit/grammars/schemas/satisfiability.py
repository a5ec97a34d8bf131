"""Has a value any way to be? Asked of what may be left out, and of one choice among several: what is
impossible is not written, and says nothing of the rest of its schema.

Beside what `Variants` finds contradicted, numbers are looked for within their bounds, and texts of a pattern
or a format are tried. What is inside objects and lists is asked where it must be there. Anything that takes
more than that counts as possible.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from modelkit.grammars.rules.raw_text import constraints_of, listed_values
from modelkit.grammars.rules.rules import Rules, all_of
from modelkit.grammars.schemas.merging import common_multiple
from modelkit.grammars.schemas.variant import NotExpressible, Schema, Variant, of_type, types_of
from modelkit.grammars.schemas.variants import Variants

_DEEPEST = 4
_LONGEST = 1_000  # characters that a text is tried with


def satisfiable(rules: Rules, variants: Variants, schema: Any, depth: int = 0) -> bool:
    """Has it a value?"""
    if depth > _DEEPEST:
        return True
    try:
        found = variants.of(schema)
    except NotExpressible:
        return True
    return any(satisfiable_types(rules, variants, variant, depth) for variant in found)


def satisfiable_types(rules: Rules, variants: Variants, variant: Variant, depth: int = 0) -> list[str]:
    """The types of which it has a value."""
    with rules.quiet():
        return [
            kind for kind in types_of(variant) if _has(rules, variants, kind, of_type(variant, kind), depth)
        ]


def _has(rules: Rules, variants: Variants, kind: str, its: Schema, depth: int) -> bool:
    if "enum" in its:
        return bool(listed_values(rules, its, ""))
    match kind:
        case "string":
            return _text(rules, its)
        case "number" | "integer":
            return number_between(its, whole=kind == "integer")
        case "array" if its.get("minItems", 0) > 0:
            front = its.get("prefixItems", ())[: its["minItems"]]
            needed = [*front, *([its.get("items", True)] if len(front) < its["minItems"] else [])]
            return all(satisfiable(rules, variants, one, depth + 1) for one in needed)
        case "object":
            named, must = its.get("properties", {}), its.get("required", ())
            return all(satisfiable(rules, variants, named[name], depth + 1) for name in must if name in named)
        case _:
            return True


def _text(rules: Rules, its: Schema) -> bool:
    said = constraints_of(rules, its, "")
    if not said.fits or said.least > _LONGEST:
        return True
    size = rf"(.|\n){{{said.least},{'' if said.most is None else said.most}}}"
    return rules.outcome(all_of([size, *said.fits])) != "never"


def number_between(its: Mapping[str, Any], *, whole: bool) -> bool:
    """Is there one between its bounds? A step is counted from 0."""
    low = _bound(its, "minimum", "exclusiveMinimum", max)
    high = _bound(its, "maximum", "exclusiveMaximum", min)
    if low is None or high is None:
        return True
    steps = [*([its["multipleOf"]] if its.get("multipleOf") else []), *([1] if whole else [])]
    if not steps:
        return low < high or (low == high and not (_open(its, low, "Minimum") or _open(its, high, "Maximum")))
    step = Fraction(str(reduce(common_multiple, steps)))
    first, last = math.ceil(low / step), math.floor(high / step)
    first += first * step == low and _open(its, low, "Minimum")
    last -= last * step == high and _open(its, high, "Maximum")
    return first <= last


def _bound(its: Mapping[str, Any], within: str, outside: str, tighter: Any) -> Fraction | None:
    found = [its[key] for key in (within, outside) if isinstance(its.get(key), int | float)]
    return Fraction(str(tighter(found))) if found else None


def _open(its: Mapping[str, Any], bound: Fraction, name: str) -> bool:
    """Is the bound itself excluded?"""
    said = its.get(f"exclusive{name}")
    return isinstance(said, int | float) and Fraction(str(said)) == bound
