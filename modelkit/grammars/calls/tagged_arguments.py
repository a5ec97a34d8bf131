"""Arguments one by one in marks of their own, held to the tool's schema: texts raw, other values JSON.

A text may have in it what closes it, as a file of XML has: it ends where behind that mark, and blanks,
another argument begins or the call ends. A grammar does not look ahead, so those marks are part of the
text's rule, and what follows an argument is a rule of its own: that of the next one, or nothing.

    arguments = OPEN next | END        next = name value (OPEN next | END) | name text-and-OPEN next | ...

So it is where these marks are text to the vocabulary: a token is never part of a text.
"""

import json
from collections.abc import Sequence
from typing import Any

from modelkit.chat.styles.style import Tag
from modelkit.grammars.calls.arguments import variants_of
from modelkit.grammars.calls.members import Members, Others, items_of, joined, members_of, repeated
from modelkit.grammars.rules.raw_text import TextConstraints, constraints_of, listed_values, raw_text
from modelkit.grammars.rules.rules import Rules, either
from modelkit.grammars.schemas.satisfiability import satisfiable_types
from modelkit.grammars.schemas.variant import Schema, of_type
from modelkit.grammars.schemas.variants import Variants

_OTHER = "value"
_MOST_FOLLOWED = 60  # arguments: each is a rule inside the one before it
_Part = tuple[str, Schema]
"""(a type, integers being numbers; the schema of the values of this type)."""


def tagged_arguments(
    rules: Rules, schema: Schema, tag: Tag, end: str = "", others: Sequence[str] = ()
) -> str:
    """Each argument in marks of its own, and `end` behind them. others: marks that may follow one where the
    model goes astray: no text has its own mark and one of these in it.
    """
    return _Tagged(rules, Variants(schema), tag, end, others).objects(schema)


class _Tagged:
    def __init__(self, rules: Rules, variants: Variants, tag: Tag, end: str, others: Sequence[str]) -> None:
        self._rules, self._variants, self._tag = rules, variants, tag
        self._end = end
        self._others = [one for one in others if one not in (tag.open, end)]
        self._known: dict[tuple[str, str, str], str] = {}
        self._taken_apart: dict[tuple[int, str], tuple[Any, list[_Part]]] = {}

    def objects(self, schema: Schema) -> str:
        parts = [its for kind, its in self._parts(schema, "$") if kind == "object"]
        return self._rules.rule(either(map(self._object, parts)) or self._rules.literal(self._end))

    def _object(self, schema: Schema) -> str:
        its = members_of(self._rules, self._variants, schema, "$")
        counted = its.least or its.most is not None
        if self._marks_are_text and len(its.named) <= _MOST_FOLLOWED and not counted:
            return self._followed(its)
        return f"{self._listed(its, '$')} {self._rules.literal(self._end)}"

    @property
    def _marks_are_text(self) -> bool:
        tag, core = self._tag, self._tag.close.strip()
        plain = tag.type is None and not tag.nested and "{name}" not in core
        return plain and bool(self._end) and self._rules.pieces(core) == [core]

    def _followed(self, its: Members) -> str:
        rules, tag, following, may_end = self._rules, self._tag, "", True
        if its.others:
            following = rules.ahead()
            choices = (
                f"{rules.terminal(one.name)} {rules.literal(tag.name_end)} "
                f"{self._and_more(one.schema, '$.*', following, may_end)}"
                for one in its.others
            )
            rules.define(following, either(choices))
        for name, said, must in reversed(its.named):
            value = self._and_more(said, f"$.{name}", following, may_end)
            choice = f"{rules.literal(name + tag.name_end)} {value}"
            following = rules.rule(either([choice, *([] if must or not following else [following])]))
            may_end = may_end and not must
        return self._more(following, may_end)

    def _more(self, following: str, may_end: bool) -> str:
        """Behind the mark that closes an argument, or in front of all."""
        rules = self._rules
        choices = [f"{rules.literal(self._tag.open)} {following}"] if following else []
        return either([*choices, *([rules.literal(self._end)] if may_end else [])])

    def _and_more(self, schema: Any, at: str, following: str, may_end: bool) -> str:
        """A value and all behind it."""
        rules, tag = self._rules, self._tag
        its = self._any_text(schema, at)
        if its is None:
            return f"{self._value(schema, None, tag.close, at)} ({self._more(following, may_end)})"
        core = tag.close.strip()
        empty = tag.close[: tag.close.find(core)] if its.least else None

        def to(mark: str) -> str:
            return rules.behind(core, mark, (tag.open, self._end), self._others, empty)

        onward = [f"{to(tag.open)} {following}"] if following else []
        return f"({either([*onward, *([to(self._end)] if may_end else [])])})"

    def _any_text(self, schema: Any, at: str) -> TextConstraints | None:
        """A text that may have in it what closes it: one of which nothing is said but that it is not empty.
        To count characters beside marks that a text may have takes too many looks.
        """
        if schema == {"type": "string"}:  # as most are
            return TextConstraints()
        parts = self._parts(schema, at)
        if any(its == {"type": "string"} for _, its in parts):
            return TextConstraints()
        kind, its = parts[0] if len(parts) == 1 else ("", {})
        if kind != "string" or its.keys() != {"type", "minLength"}:
            return None
        said = constraints_of(self._rules, its, at)
        return said if said.least <= 1 else None

    def _members(self, schema: Schema, at: str) -> str:
        return self._listed(members_of(self._rules, self._variants, schema, at), at)

    def _listed(self, its: Members, at: str) -> str:
        parts = [
            f"({self._one(name, said, f'{at}.{name}')}){'' if must else '?'}"
            for name, said, must in its.named
        ]
        others = either(one for one in (self._other(one, at) for one in its.others) if one)
        once = "{name}" in self._tag.close  # the same name again and again
        if once and its.least > (1 if others else 0):
            self._rules.leave(
                f"minProperties of {at}: properties that the schema does not name are not written"
            )
        if others:
            least, most = (min(its.least, 1), 1) if once else (its.least, its.most)
            parts.append(repeated(self._rules.rule(others), "", least, most))
        return " ".join(parts) or '""'

    def _other(self, its: Others, at: str) -> str:
        """An argument that the schema does not name. Where the mark behind it has its name again, a grammar
        can only know one: "" where that is not a name for it.
        """
        if "{name}" not in self._tag.close:
            return self._one(None, its.schema, f"{at}.*", its.name)
        if self._rules.outcome(f"/{_OTHER}/ & {its.name}") == "never":
            self._rules.leave(f"patternProperties of {at}: this model's calls have none")
            return ""
        self._rules.leave(
            f"additionalProperties of {at}: of those that the schema does not name, this model's calls have "
            f"one, {_OTHER!r}"
        )
        return self._one(_OTHER, its.schema, f"{at}.*")

    def _one(self, name: str | None, schema: Any, at: str, names: str = "") -> str:
        tag, rules = self._tag, self._rules
        close = tag.close if name is None else tag.close.replace("{name}", name)

        def head(behind: str) -> str:
            if name is None:
                return f"{rules.literal(tag.open)} {rules.terminal(names)} {rules.literal(behind)}"
            return rules.literal(tag.open + name + behind)

        if tag.type is None:
            return f"{head(tag.name_end)} {self._value(schema, None, close, at)}"
        choices = list[str]()
        for kind in dict.fromkeys(kind for kind, _ in self._parts(schema, at)):
            word = tag.type.text if kind == "string" else tag.type.other or kind
            choices.append(
                f"{head(tag.type.open + word + tag.name_end)} {self._value(schema, kind, close, at)}"
            )
        return either(choices)

    def _parts(self, schema: Any, at: str) -> list[_Part]:
        """The schema as choices, each of one type; of a list of values, without those that cannot be."""
        key = (id(schema), at)
        if key not in self._taken_apart:
            # With the schema itself: another one could have its identity once it is gone.
            self._taken_apart[key] = schema, self._parts_of(schema, at)
        return self._taken_apart[key][1]

    def _parts_of(self, schema: Any, at: str) -> list[_Part]:
        found = list[_Part]()
        for variant in variants_of(self._rules, self._variants, schema, at):
            for kind in satisfiable_types(self._rules, self._variants, variant):
                its = of_type(variant, kind)
                if "enum" in its:
                    its = {"enum": listed_values(self._rules, its, at)}
                if its.get("enum") != []:
                    found.append(("number" if kind == "integer" else kind, its))
        return sorted(found, key=lambda part: part[0])

    def _value(self, schema: Any, only: str | None, close: str, at: str) -> str:
        """A value, of one type alone where `only` says so, and the mark behind it. A schema inside itself is
        a rule inside itself.
        """
        key = (json.dumps(schema, sort_keys=True), only or "", close)
        if key not in self._known:
            self._known[key] = self._rules.ahead()
            parts = [part for part in self._parts(schema, at) if only in (None, part[0])]
            self._rules.define(self._known[key], self._written(parts, close, at))
        return self._known[key]

    def _written(self, parts: Sequence[_Part], close: str, at: str) -> str:
        """One of the parts, and the mark. A text that may be anything may be all of them."""
        texts = [its for kind, its in parts if kind == "string"]
        if any(its == {"type": "string"} for its in texts):
            return raw_text(self._rules, [{}], close, at)
        if not parts:
            self._rules.leave(f"{at}: no value was found that it has")
            return raw_text(self._rules, [{}], close, at)
        choices = [self._part(kind, its, close, at) for kind, its in parts if kind != "string"]
        return either([*choices, *([raw_text(self._rules, texts, close, at)] if texts else [])])

    def _part(self, kind: str, schema: Schema, close: str, at: str) -> str:
        rules = self._rules
        if self._tag.nested and kind in ("object", "array") and "enum" not in schema:
            inner = self._members(schema, at) if kind == "object" else self._list(schema, at)
            return f"{rules.rule(inner)} {rules.literal(close)}"
        return f"{rules.json(self._variants.alone(schema))} {rules.literal(close)}"

    def _list(self, schema: Schema, at: str) -> str:
        its, item = items_of(self._rules, self._variants, schema), self._tag.item
        front = [self._one(item, one, f"{at}[{place}]") for place, one in enumerate(its.front)]
        rest = "" if its.rest is False else self._rules.rule(self._one(item, its.rest, f"{at}[]"))
        return joined(self._rules, its, front, rest, "")
