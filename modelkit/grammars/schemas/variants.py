"""What a JSON schema says of one value, as a choice of plain descriptions (`variant`).

All that references, anyOf, oneOf and allOf say of the value is merged into them, each with every choice. The
library that has taken the schema as JSON has said what no grammar can be made of: of oneOf, its choices
exclude each other here.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from modelkit.grammars.schemas.merging import merged
from modelkit.grammars.schemas.variant import NotExpressible, Schema, Variant, own_variant, types_of
from modelkit.output.reading.validation import fits
from modelkit.schema import branches, target
from runtime.quoting import quoted

MOST_VARIANTS = 64


class Variants:
    """Of the schemas within one. root: where references lead to."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._inner: Schema | None = None

    def of(self, schema: Any) -> list[Variant]:
        """Those of a schema; none of one that no value has. Raises NotExpressible."""
        variants = self._variants(schema, ())
        if len(variants) > 1:
            variants = [*{json.dumps(variant, sort_keys=True): variant for variant in variants}.values()]
        sound = (variant for variant in map(self._sound, variants) if variant is not None)
        return [variant for variant in sound if types_of(variant)]

    def any_of(self, schema: Any) -> bool:
        """Has a value of this schema any way to be?"""
        try:
            return bool(self.of(schema))
        except NotExpressible:
            return True

    def alone(self, variant: Schema) -> Schema:
        """A schema that can stand by itself."""
        if '"$ref"' not in json.dumps(variant):
            return variant
        if self._inner is None:
            known = {key: value for key, value in self._root.items() if key not in ("$schema", "$id")}
            self._inner = _moved(known)
        return {**_moved(variant), "$defs": {_ROOT: self._inner}}

    def _variants(self, schema: Any, passed: tuple[int, ...]) -> list[Variant]:
        if not isinstance(schema, Mapping):
            return [] if schema is False else [{}]
        variants = [own_variant(schema)]
        if "$ref" in schema:
            found = target(schema["$ref"], self._root)
            if found is None:
                raise NotExpressible(f"where {quoted(schema['$ref'])} leads is not known")
            # A value that is described by itself alone has no way to be.
            there = [] if id(found) in passed else self._variants(found, (*passed, id(found)))
            variants = _both(variants, there)
        for one in branches(schema, "allOf"):
            variants = _both(variants, self._variants(one, passed))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                variants = _both(
                    variants,
                    [variant for one in branches(schema, key) for variant in self._variants(one, passed)],
                )
        return variants

    def _sound(self, variant: Variant) -> Variant | None:
        """Without listed values that something else excludes; None where nothing is left."""
        if "enum" not in variant:
            return variant
        others = {key: value for key, value in variant.items() if key not in ("enum", "pattern", "format")}
        listed = [value for value in variant["enum"] if fits(value, others, self._root)]
        kept = {key: variant[key] for key in ("pattern", "format") if key in variant}
        return {**kept, "enum": listed} if listed else None


def _both(some: Sequence[Variant], others: Sequence[Variant]) -> list[Variant]:
    if len(some) * len(others) > MOST_VARIANTS:
        raise NotExpressible(f"it has more than {MOST_VARIANTS} choices")
    found = (merged(one, other) for one, other in product(some, others))
    return [variant for variant in found if variant is not None]


_ROOT = "="


def _moved(schema: Any) -> Any:
    """With references to the root of before led to where it is put."""
    if isinstance(schema, list):
        return [_moved(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _moved_member(key, value) for key, value in schema.items()}


def _moved_member(key: str, value: Any) -> Any:
    if key == "$ref" and isinstance(value, str) and value.startswith("#"):
        return f"#/$defs/{_ROOT}{value[1:]}"
    return (
        value
        if key in ("const", "enum", "default", "examples") and not isinstance(value, Mapping)
        else _moved(value)
    )
